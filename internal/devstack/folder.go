package devstack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// folder is the temporary home of one part. Its owner holds a lock on a file in it for as long as it lives, which
// is how a later process tells a folder in use from one left behind by a killed owner.
type folder struct {
	path string
	lock *os.File
}

const ownerLock = "owner.lock"

var folderName = regexp.MustCompile(`^bursar-(?:pgbouncer|postgres|temporal)-(\d+)-[0-9A-Za-z]+$`)

// newFolder makes an empty folder for a part of the given kind, after it has swept those of dead owners. When runAs
// is set the folder lies where that user can reach it, and that user can pass through it.
func newFolder(kind string, runAs *syscall.Credential) (*folder, error) {
	base, err := folderBase(runAs)
	if err != nil {
		return nil, err
	}
	sweep(base)
	path, err := os.MkdirTemp(base, fmt.Sprintf("bursar-%s-%d-", kind, os.Getpid()))
	if err != nil {
		return nil, fmt.Errorf("make a temporary folder (set TMPDIR to a folder that can be written): %w", err)
	}
	f := &folder{path: path}
	f.lock, err = os.OpenFile(filepath.Join(path, ownerLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		_, err = tryFlock(f.lock)
	}
	if err == nil && runAs != nil {
		err = os.Chmod(path, 0o711)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare the temporary folder %s: %w", path, err), f.remove())
	}
	return f, nil
}

// join is the path of a name in the folder.
func (f *folder) join(name string) string { return filepath.Join(f.path, name) }

// remove deletes the folder with all that is in it. It tries again for two seconds, since a process on its last
// breath may still add a file.
func (f *folder) remove() error {
	if f.lock != nil {
		defer f.lock.Close()
	}
	var err error
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if err = os.RemoveAll(f.path); err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("remove the temporary folder (delete it by hand): %w", err)
		}
	}
}

// folderBase is where temporary folders go: TMPDIR, or a usual place when the user to run as cannot reach that.
func folderBase(runAs *syscall.Credential) (string, error) {
	bases := []string{os.TempDir()}
	if runAs != nil {
		bases = append(bases, "/tmp", "/var/tmp")
	}
	var refusals []string
	for _, base := range bases {
		real, err := filepath.EvalSymlinks(base)
		if err != nil {
			refusals = append(refusals, err.Error())
			continue
		}
		if closed := firstClosed(real, runAs); closed != "" {
			refusals = append(refusals, fmt.Sprintf("%s lets user %d not pass", closed, runAs.Uid))
			continue
		}
		return real, nil
	}
	return "", fmt.Errorf("no usable temporary folder: %s; set TMPDIR to one that exists and that every user can pass through",
		strings.Join(refusals, "; "))
}

// firstClosed is the first folder on the way to path that the user cannot pass through, or "" when there is none.
func firstClosed(path string, user *syscall.Credential) string {
	if user == nil {
		return ""
	}
	var way []string
	for p := filepath.Clean(path); ; p = filepath.Dir(p) {
		way = append(way, p)
		if p == filepath.Dir(p) {
			break
		}
	}
	for i := len(way) - 1; i >= 0; i-- {
		info, err := os.Stat(way[i])
		if err != nil || !passable(info, user) {
			return way[i]
		}
	}
	return ""
}

// passable reports whether the user may search a folder, by its owner, group and mode.
func passable(info os.FileInfo, user *syscall.Credential) bool {
	mode := info.Mode().Perm()
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		switch {
		case stat.Uid == user.Uid:
			return mode&0o100 != 0
		case stat.Gid == user.Gid:
			return mode&0o010 != 0
		}
	}
	return mode&0o001 != 0
}

// sweep removes the folders in base that belong to this user and whose owner is dead. What cannot be looked at or
// removed is left: it is somebody else's, or the next sweep's.
func sweep(base string) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return
	}
	for _, entry := range entries {
		match := folderName.FindStringSubmatch(entry.Name())
		if match == nil || !entry.IsDir() {
			continue
		}
		pid, err := strconv.Atoi(match[1])
		if err != nil {
			continue
		}
		sweepFolder(filepath.Join(base, entry.Name()), pid)
	}
}

func sweepFolder(path string, owner int) {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() {
		return
	}
	lock, err := os.OpenFile(filepath.Join(path, ownerLock), os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, os.ErrNotExist):
		// No lock: either its owner is about to take one, or died before it did.
		if processAlive(owner) || time.Since(info.ModTime()) < time.Minute {
			return
		}
	case err != nil:
		return
	default:
		defer lock.Close()
		// The lock decides, and not the pid: a pid is used again, and means nothing in another container that
		// shares the folder.
		if got, err := tryFlock(lock); err != nil || !got {
			return
		}
	}
	if postmaster, ok := postmasterPID(filepath.Join(path, dataDirName)); ok && processAlive(postmaster) {
		return // it is still shutting down
	}
	_ = os.RemoveAll(path)
}

// processAlive reports whether a process with this id exists, whoever owns it.
func processAlive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
