package devstack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// deadPID is the id of a process that has just ended.
func deadPID(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

func TestSweepTakesOnlyWhatIsDeadAndOurs(t *testing.T) {
	base := t.TempDir()
	long := time.Now().Add(-time.Hour)
	make := func(name string, files ...string) string {
		path := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Join(path, dataDirName), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if err := os.WriteFile(filepath.Join(path, file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(path, long, long); err != nil {
			t.Fatal(err)
		}
		return path
	}
	dead := deadPID(t)
	name := func(kind string, pid int, tail string) string { return fmt.Sprintf("bursar-%s-%d-%s", kind, pid, tail) }

	stale := make(name("postgres", dead, "stale"), ownerLock)
	staleTemporal := make(name("temporal", dead, "stale"), ownerLock)
	pidUsedAgain := make(name("postgres", os.Getpid(), "again"), ownerLock)
	neverLocked := make(name("postgres", dead, "unlocked"))
	swept := []string{stale, staleTemporal, pidUsedAgain, neverLocked}

	held := make(name("postgres", dead, "held"), ownerLock)
	lock, err := os.Open(filepath.Join(held, ownerLock))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if got, err := tryFlock(lock); err != nil || !got {
		t.Fatal(got, err)
	}
	ownerAboutToLock := make(name("postgres", os.Getpid(), "starting"))
	young := make(name("postgres", dead, "young"))
	if err := os.Chtimes(young, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	ending := make(name("postgres", dead, "ending"), ownerLock)
	pidFile := filepath.Join(ending, dataDirName, "postmaster.pid")
	if err := os.WriteFile(pidFile, []byte(fmt.Sprintf("%d\n/x\n", os.Getpid())), 0o600); err != nil {
		t.Fatal(err)
	}
	other := make("bursar-postgres-notes", ownerLock)
	elsewhere := make("elsewhere", ownerLock)
	link := filepath.Join(base, name("postgres", dead, "link"))
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	kept := []string{held, ownerAboutToLock, young, ending, other, elsewhere, link}
	if os.Geteuid() == 0 {
		foreign := make(name("postgres", dead, "foreign"), ownerLock)
		if err := os.Chown(foreign, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		kept = append(kept, foreign)
	}

	sweep(base)
	for _, path := range swept {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was left (%v)", filepath.Base(path), err)
		}
	}
	for _, path := range kept {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s was swept: %v", filepath.Base(path), err)
		}
	}
	sweep(filepath.Join(base, "missing")) // nothing to sweep is no error
}

func TestFolderLiesWhereTheUserCanReachIt(t *testing.T) {
	someone := &syscall.Credential{Uid: 4242, Gid: 4242}
	closed := filepath.Join(t.TempDir(), "closed")
	if err := os.MkdirAll(filepath.Join(closed, "inner"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", filepath.Join(closed, "inner"))
	own, err := folderBase(nil)
	if err != nil || filepath.Base(own) != "inner" {
		t.Errorf("for ourselves: %q, %v", own, err)
	}
	theirs, err := folderBase(someone)
	if err != nil || strings.Contains(theirs, "closed") || firstClosed(theirs, someone) != "" {
		t.Errorf("for another user: %q, %v", theirs, err)
	}
	home, err := newFolder("postgres", nil)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(home.path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("our own folder: %v %v", info.Mode(), err)
	}
	sweep(own)
	if _, err := os.Stat(home.path); err != nil {
		t.Errorf("swept while in use: %v", err)
	}
	if err := home.remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(home.path); !errors.Is(err, os.ErrNotExist) {
		t.Error("not removed")
	}
	t.Setenv("TMPDIR", filepath.Join(closed, "missing"))
	if _, err := newFolder("postgres", nil); err == nil || !strings.Contains(err.Error(), "TMPDIR") {
		t.Errorf("a missing temporary folder: %v", err)
	}
}

func TestPassable(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct {
		mode     os.FileMode
		uid, gid uint32
		want     bool
	}{
		{0o100, uint32(os.Getuid()), 4242, true},
		{0o011, uint32(os.Getuid()), 4242, false},
		{0o010, 4242, uint32(os.Getgid()), true},
		{0o101, 4242, uint32(os.Getgid()), false},
		{0o001, 4242, 4242, true},
		{0o110, 4242, 4242, false},
	} {
		if err := os.Chmod(dir, test.mode); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := passable(info, &syscall.Credential{Uid: test.uid, Gid: test.gid}); got != test.want {
			t.Errorf("mode %o for %d:%d: %v, want %v", test.mode, test.uid, test.gid, got, test.want)
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}
