package devstack

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// watchdog is a tiny process that signals another one when this process dies: it reads from a pipe whose other
// end only this process holds, and reading ends when the holder is gone. It stands in for the kernel's death
// signal where there is none.
type watchdog struct {
	cmd  *exec.Cmd
	hold *os.File
}

// startWatchdog guards the process pid.
func startWatchdog(pid int, sig syscall.Signal) (*watchdog, error) {
	read, hold, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe for the watchdog: %w", err)
	}
	defer read.Close()
	cmd := exec.Command("/bin/sh", "-c", `trap '' INT TERM HUP; read -r line; kill -"$1" "$2"`, "sh",
		strconv.Itoa(int(sig)), strconv.Itoa(pid))
	cmd.Stdin = read
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		hold.Close()
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	return &watchdog{cmd: cmd, hold: hold}, nil
}

// dismiss ends the watchdog without a signal to the guarded process, which is gone already. A nil watchdog is
// allowed.
func (w *watchdog) dismiss() {
	if w == nil {
		return
	}
	_ = w.cmd.Process.Kill() // before the pipe closes, or it would fire
	_ = w.cmd.Wait()
	_ = w.hold.Close()
}
