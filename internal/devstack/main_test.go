package devstack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// envOwner makes the test binary play a program that owns a part: it starts it, says so on standard output, and
// waits to be killed.
const envOwner = "DEVSTACK_TEST_OWNER"

// envUpstream is the server in front of which an owner starts a PgBouncer.
const envUpstream = "DEVSTACK_TEST_UPSTREAM"

// ownedPart is what such an owner prints.
type ownedPart struct {
	PID    int
	Folder string
}

func TestMain(m *testing.M) {
	if part := os.Getenv(envOwner); part != "" {
		if err := ownForever(part); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func ownForever(part string) error {
	ctx := context.Background()
	var owned ownedPart
	switch part {
	case "postgres":
		pg, err := StartPostgres(ctx, PostgresOptions{Settings: quick})
		if err != nil {
			return err
		}
		owned = ownedPart{pg.PID(), pg.Folder()}
	case "pgbouncer":
		b, err := StartPgBouncer(ctx, PgBouncerOptions{Upstream: os.Getenv(envUpstream)})
		if err != nil {
			return err
		}
		owned = ownedPart{b.PID(), b.Folder()}
	case "temporal":
		server, err := StartTemporal(ctx, TemporalOptions{})
		if err != nil {
			return err
		}
		owned = ownedPart{server.PID(), server.Folder()}
	}
	if err := json.NewEncoder(os.Stdout).Encode(owned); err != nil {
		return err
	}
	time.Sleep(time.Hour)
	return errors.New("nobody killed the owner")
}

// quick is what a server needs that keeps nothing.
var quick = map[string]string{"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}

// startOwner runs the test binary as the owner of a part and returns once the part answers.
func startOwner(t *testing.T, part string) (owner *exec.Cmd, owned ownedPart) {
	t.Helper()
	owner = exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), envOwner+"="+part)
	var stderr bytes.Buffer
	owner.Stderr = &stderr
	stdout, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = owner.Process.Kill()
		_ = owner.Wait()
	})
	if err := json.NewDecoder(stdout).Decode(&owned); err != nil {
		_ = owner.Wait()
		t.Fatalf("the owner did not start its part: %v\n%s", err, stderr.String())
	}
	return owner, owned
}

// testContext bounds a test that may have to build the Temporal CLI first.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// openTempDir is a temporary folder that other users can pass through, which t.TempDir is not.
func openTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "devstack-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// eventually polls until the condition holds, or fails the test.
func eventually(t *testing.T, within time.Duration, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %v still not: %s", within, what)
		}
	}
}

// processesIn lists the processes whose working directory lies in the folder, on Linux. That finds the backends of
// a server too, which work in its data directory.
func processesIn(t *testing.T, folder string) []int {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, link := range links {
		cwd, err := os.Readlink(link)
		if err != nil || (cwd != folder && !strings.HasPrefix(cwd, folder+"/") && !strings.HasPrefix(cwd, folder+" ")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// assertGone checks that a stopped part has left no process and no file.
func assertGone(t *testing.T, pid int, folder string) {
	t.Helper()
	if processAlive(pid) {
		t.Errorf("process %d is still there", pid)
	}
	if pids := processesIn(t, folder); len(pids) > 0 {
		t.Errorf("processes %v still work in %s", pids, folder)
	}
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there (%v)", folder, err)
	}
}

// assertOwnGroup checks that a terminal's Ctrl-C for our process group does not reach the part.
func assertOwnGroup(t *testing.T, pid int) {
	t.Helper()
	group, err := syscall.Getpgid(pid)
	if err != nil {
		t.Fatal(err)
	}
	if own := syscall.Getpgrp(); group == own {
		t.Errorf("process %d is in our own process group %d", pid, own)
	}
}
