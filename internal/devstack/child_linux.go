package devstack

import "syscall"

// dieWithParent has the kernel send sig to the child when the thread that forked it ends. It reports whether
// the platform can do so.
func dieWithParent(attr *syscall.SysProcAttr, sig syscall.Signal) bool {
	attr.Pdeathsig = sig
	return true
}
