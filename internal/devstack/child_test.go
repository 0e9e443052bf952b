package devstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func shell(t *testing.T, script string) childSpec {
	t.Helper()
	dir := t.TempDir()
	return childSpec{
		name: "the script", path: "/bin/sh", args: []string{"-c", script}, env: os.Environ(), dir: dir,
		logPath: filepath.Join(dir, "log"), deathSignal: syscall.SIGKILL,
	}
}

func TestStopGoesOnToTheNextSignal(t *testing.T) {
	spec := shell(t, `trap 'echo deaf' INT; echo up; while :; do sleep 0.05; done`)
	c, err := startChild(spec)
	if err != nil {
		t.Fatal(err)
	}
	logged := func(want string) func() bool {
		return func() bool {
			log, err := os.ReadFile(spec.logPath)
			return err == nil && strings.Contains(string(log), want)
		}
	}
	eventually(t, 10*time.Second, "the script runs", logged("up"))
	err = c.stop(context.Background(), stopStep{syscall.SIGINT, 300 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "did not end") {
		t.Errorf("a child that does not obey: err = %v", err)
	}
	eventually(t, 10*time.Second, "the script got the first signal", logged("deaf"))
	err = c.stop(context.Background(), stopStep{syscall.SIGINT, 300 * time.Millisecond}, stopStep{syscall.SIGKILL, 10 * time.Second})
	if err != nil || !c.exited() || processAlive(c.pid()) {
		t.Errorf("err = %v, exited %v", err, c.exited())
	}
	if err := c.stop(context.Background(), stopStep{syscall.SIGINT, 0}); err != nil {
		t.Errorf("stop of a child that has ended: %v", err)
	}
}

func TestRunChildReportsTheEndOfTheLog(t *testing.T) {
	err := runChild(t.Context(), shell(t, `i=0; while [ $i -lt 100 ]; do echo "line $i"; i=$((i+1)); done; exit 3`))
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "line 99") || strings.Contains(err.Error(), "line 10\n") {
		t.Errorf("err = %v", err)
	}
	if err := runChild(t.Context(), shell(t, "exit 1")); err == nil || !strings.Contains(err.Error(), "logged nothing") {
		t.Errorf("err = %v", err)
	}
	if err := runChild(t.Context(), shell(t, "exit 0")); err != nil {
		t.Error(err)
	}
	missing := shell(t, "")
	missing.path = "/no/such/program"
	if err := runChild(t.Context(), missing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("err = %v", err)
	}
}

func TestRunChildCancelledEndsTheWholeGroup(t *testing.T) {
	spec := shell(t, `sleep 600 & echo $! > grandchild; wait`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- runChild(ctx, spec) }()
	var grandchild int
	eventually(t, 10*time.Second, "the script has a child", func() bool {
		text, err := os.ReadFile(filepath.Join(spec.dir, "grandchild"))
		if err != nil {
			return false
		}
		n, err := fmt.Sscan(string(text), &grandchild)
		return n == 1 && err == nil
	})
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	eventually(t, 10*time.Second, "the grandchild is gone", func() bool { return ended(grandchild) })
}

// ended reports whether a process that is not our child is gone, or a zombie that its new parent has yet to read.
func ended(pid int) bool {
	if !processAlive(pid) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}

func TestWatchdogSignalsWhenItsHolderIsGone(t *testing.T) {
	guarded := exec.Command("sleep", "600")
	if err := guarded.Start(); err != nil {
		t.Fatal(err)
	}
	dog, err := startWatchdog(guarded.Process.Pid, syscall.SIGTERM)
	if err != nil {
		t.Fatal(err)
	}
	dog.hold.Close() // as the kernel does when the holder dies
	err = guarded.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("the guarded process ended with %v", err)
	}
	if err := dog.cmd.Wait(); err != nil {
		t.Errorf("watchdog: %v", err)
	}
}

func TestWatchdogDismissed(t *testing.T) {
	guarded := exec.Command("sleep", "600")
	if err := guarded.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = guarded.Process.Kill()
		_ = guarded.Wait()
	}()
	dog, err := startWatchdog(guarded.Process.Pid, syscall.SIGTERM)
	if err != nil {
		t.Fatal(err)
	}
	dog.dismiss()
	if ended(guarded.Process.Pid) {
		t.Error("a dismissed watchdog bit")
	}
	(*watchdog)(nil).dismiss()
}

func TestOnFreePortTriesAgainOnlyWhenThePortWasTaken(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte("LOG:  could not bind IPv4 address: Address already in use\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("it ended")
	tries := 0
	port, err := onFreePort(t.Context(), func() (int, error) {
		if tries++; tries < 3 {
			return 0, markPortTaken(refused, log)
		}
		return freePort()
	})
	if err != nil || tries != 3 || port == 0 {
		t.Errorf("port %d, tries %d, err %v", port, tries, err)
	}
	tries = 0
	_, err = onFreePort(t.Context(), func() (int, error) { tries++; return 0, markPortTaken(refused, log) })
	if !errors.Is(err, refused) || tries != portAttempts {
		t.Errorf("tries %d, err %v", tries, err)
	}
	tries = 0
	_, err = onFreePort(t.Context(), func() (int, error) { tries++; return 0, markPortTaken(refused, log+".none") })
	if !errors.Is(err, refused) || tries != 1 {
		t.Errorf("tries %d, err %v", tries, err)
	}
}

func TestFreePortsDiffer(t *testing.T) {
	seen := map[int]bool{}
	for range 200 {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("port %d was given twice", port)
		}
		seen[port] = true
	}
	for port := range seen {
		listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", loopback, port))
		if err != nil {
			t.Fatalf("a free port cannot be listened on: %v", err)
		}
		listener.Close()
		break
	}
}

func TestProgressOfASlowStep(t *testing.T) {
	lines := make(chan string, 100)
	p := newProgress(func(line string) { lines <- line })
	p.every = 10 * time.Millisecond
	end := p.during("building it", "first time only")
	if line := <-lines; line != "building it; first time only" {
		t.Errorf("first line %q", line)
	}
	if line := <-lines; line != "building it, 0s so far; first time only" {
		t.Errorf("second line %q", line)
	}
	end()
	for len(lines) > 0 {
		<-lines
	}
	p.say("after %d", 1)
	if line := <-lines; line != "after 1" {
		t.Errorf("a step that has ended still reports: %q", line)
	}
	newProgress(nil).during("silent", "")()
}

func TestLockFileExcludesAndTellsWhoWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	release, err := lockFile(t.Context(), path, "waiting", newProgress(nil))
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		<-waits
		cancel()
	})
	if _, err := lockFile(ctx, path, "waiting", newProgress(func(line string) { waits <- line })); !errors.Is(err, context.Canceled) {
		t.Errorf("a held lock was taken: %v", err)
	}
	group.Wait()
	got := make(chan error, 1)
	go func() {
		again, err := lockFile(t.Context(), path, "waiting", newProgress(func(line string) { waits <- line }))
		if err == nil {
			again()
		}
		got <- err
	}()
	<-waits
	release()
	if err := <-got; err != nil {
		t.Error(err)
	}
}
