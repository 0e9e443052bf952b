package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// childSpec says how to run one child process.
type childSpec struct {
	name string // what error messages call it
	path string
	args []string
	env  []string
	dir  string
	// logPath receives standard output and standard error; it is appended to.
	logPath string
	// credential is the user to run as; nil means the caller's own.
	credential *syscall.Credential
	// deathSignal is what the child gets when this process dies without having stopped it.
	deathSignal syscall.Signal
}

// child is a running process in a process group of its own that ends with its parent.
type child struct {
	name    string
	logPath string
	cmd     *exec.Cmd
	guard   *watchdog
	done    chan struct{}
	err     error // from Wait; read it after done
}

// startChild starts the process and returns once it has been forked.
func startChild(spec childSpec) (*child, error) {
	log, err := os.OpenFile(spec.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", spec.name, err)
	}
	defer log.Close() // the child has its own descriptor

	cmd := exec.Command(spec.path, spec.args...)
	cmd.Env = spec.env
	cmd.Dir = spec.dir
	cmd.Stdout = log
	cmd.Stderr = log
	// A group of its own: a terminal's Ctrl-C is sent to the foreground group and must not reach the child
	// before the owner has drained.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: spec.credential}
	kernelGuards := dieWithParent(cmd.SysProcAttr, spec.deathSignal)

	c := &child{name: spec.name, logPath: spec.logPath, cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The kernel sends the death signal when the *thread* that forked ends, not the process. So the
		// goroutine keeps its thread until the child is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil && !kernelGuards {
			c.guard, err = startWatchdog(cmd.Process.Pid, spec.deathSignal)
			if err != nil {
				err = errors.Join(err, cmd.Process.Kill(), cmd.Wait())
			}
		}
		started <- err
		if err != nil {
			return
		}
		c.err = cmd.Wait()
		c.guard.dismiss()
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s (%s): %w", spec.name, spec.path, err)
	}
	return c, nil
}

// runChild runs the process to its end. When ctx ends first, the whole process group is interrupted, then killed.
func runChild(ctx context.Context, spec childSpec) error {
	c, err := startChild(spec)
	if err != nil {
		return err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		c.interruptGroup()
		return fmt.Errorf("%s: %w", spec.name, ctx.Err())
	}
	if c.err != nil {
		return fmt.Errorf("%s failed: %w\n%s", spec.name, c.err, logTail(spec.logPath))
	}
	return nil
}

// interruptGroup ends the child and what it started: politely for three seconds, then what is left is killed.
func (c *child) interruptGroup() {
	if c.exited() {
		return
	}
	_ = syscall.Kill(-c.pid(), syscall.SIGINT)
	timer := time.NewTimer(3 * time.Second)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
	}
	// Also when the child itself has ended: those it started may ignore an interrupt. Their group keeps its id for
	// as long as it has a member; an empty one answers ESRCH.
	_ = syscall.Kill(-c.pid(), syscall.SIGKILL)
	<-c.done
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// exited reports whether the process has ended.
func (c *child) exited() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// stopStep is one signal of a shutdown and how long the child may take to obey it.
type stopStep struct {
	signal syscall.Signal
	wait   time.Duration
}

// stop sends the signals one after another until the process has ended. The end of ctx cuts the first wait short
// and no other, so that a caller out of time still leaves nothing behind, within the sum of the other waits.
func (c *child) stop(ctx context.Context, steps ...stopStep) error {
	impatient := ctx.Done()
	for _, step := range steps {
		if c.exited() {
			return nil
		}
		if err := c.cmd.Process.Signal(step.signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("send %v to %s (process %d): %w", step.signal, c.name, c.pid(), err)
		}
		timer := time.NewTimer(step.wait)
		select {
		case <-c.done:
		case <-timer.C:
		case <-impatient:
		}
		timer.Stop()
		impatient = nil
	}
	if c.exited() {
		return nil
	}
	return fmt.Errorf("%s (process %d) did not end, not even when killed; end it by hand", c.name, c.pid())
}

// logTail is the end of a log for an error message: at most 25 lines of the last 8 KiB, indented.
func logTail(path string) string {
	const maxBytes, maxLines = 8 << 10, 25
	f, err := os.Open(path)
	if err != nil {
		return fmt.Sprintf("(its log cannot be read: %v)", err)
	}
	defer f.Close()
	var size int64
	if info, err := f.Stat(); err == nil {
		size = info.Size()
	}
	buf := make([]byte, min(size, maxBytes))
	n, err := f.ReadAt(buf, size-int64(len(buf)))
	if n == 0 {
		if err != nil && size > 0 {
			return fmt.Sprintf("(its log cannot be read: %v)", err)
		}
		return "(it logged nothing)"
	}
	lines := strings.Split(strings.TrimRight(string(buf[:n]), "\n"), "\n")
	if len(lines) > maxLines {
		lines = lines[len(lines)-maxLines:]
	}
	return "the end of its log:\n    " + strings.Join(lines, "\n    ")
}

// environWithout is this process's environment less the variables whose names start with one of the prefixes,
// plus the given ones.
func environWithout(prefixes []string, add ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !hasAnyPrefix(kv, prefixes) {
			env = append(env, kv)
		}
	}
	return append(env, add...)
}

func hasAnyPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
