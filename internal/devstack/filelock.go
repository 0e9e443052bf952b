package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// tryFlock takes an exclusive lock on an open file without waiting. The lock ends with the descriptor, hence with
// the process at the latest.
func tryFlock(f *os.File) (bool, error) {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		default:
			return false, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
}

// lockFile takes the exclusive lock of the file at path, which is made when missing, and returns what releases it.
// While another process holds it, p says what is being waited for.
func lockFile(ctx context.Context, path, waitingFor string, p *progress) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the lock file: %w", err)
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	got, err := tryFlock(f)
	if err != nil {
		return nil, err
	}
	if !got {
		end := p.during(waitingFor, "")
		defer end()
		// Polled and not waited for: a blocked flock cannot be cancelled.
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for !got {
			select {
			case <-ctx.Done():
				return nil, fmt.Errorf("%s: %w", waitingFor, ctx.Err())
			case <-ticker.C:
			}
			if got, err = tryFlock(f); err != nil {
				return nil, err
			}
		}
	}
	return func() { f.Close() }, nil
}

// removeAll removes what matches the pattern, as far as it can be removed.
func removeAll(pattern string) {
	matches, err := filepath.Glob(pattern)
	if err != nil {
		return // only a malformed pattern fails
	}
	for _, path := range matches {
		_ = os.RemoveAll(path)
	}
}
