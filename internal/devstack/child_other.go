//go:build !linux

package devstack

import "syscall"

// dieWithParent reports that this platform has no death signal: a [watchdog] stands in.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) bool { return false }
