package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// abandonAfter is how long a cancelled start waits for the library to be through, so that its folder is gone when the
// process ends.
const abandonAfter = 3 * time.Second

// serverDownload says which server to download, and whence.
type serverDownload struct {
	version    embeddedpostgres.PostgresVersion
	repository string // "" means the library's own
}

func defaultDownload() serverDownload {
	return serverDownload{version: embeddedpostgres.V17}
}

// downloadServer returns a server that was downloaded, now or by an earlier start.
func downloadServer(ctx context.Context, from serverDownload, runAs *syscall.Credential, p *progress) (serverBinaries, error) {
	cache, err := cacheDir()
	if err != nil {
		return serverBinaries{}, err
	}
	binaries, err := binariesBase(cache, runAs)
	if err != nil {
		return serverBinaries{}, err
	}
	target := filepath.Join(binaries, "postgres-"+string(from.version))
	bin := filepath.Join(target, "bin")
	if server, err := probeServer(ctx, bin, runAs); err == nil {
		return server, nil
	}
	release, err := lockFile(ctx, filepath.Join(cache, "postgres.lock"), "waiting for another process that downloads PostgreSQL", p)
	if err != nil {
		return serverBinaries{}, err
	}
	defer release()
	if server, err := probeServer(ctx, bin, runAs); err == nil {
		return server, nil // the other one did it
	}

	defer p.during(fmt.Sprintf("downloading PostgreSQL %s", from.version), "first time only")()
	removeAll(filepath.Join(binaries, "postgres-staging-*")) // of processes that were killed: the lock is ours
	staging, err := os.MkdirTemp(binaries, "postgres-staging-")
	if err != nil {
		return serverBinaries{}, fmt.Errorf("make a folder for the download: %w", err)
	}
	// The library's download cannot be cancelled: when ctx ends first it goes on in its staging folder, which is
	// removed when it is through.
	fetched := make(chan error, 1)
	go func() {
		fetched <- fetchServer(from, cache, staging)
	}()
	select {
	case err = <-fetched:
	case <-ctx.Done():
		tidied := make(chan struct{})
		go func() {
			defer close(tidied)
			<-fetched
			os.RemoveAll(staging)
		}()
		select {
		case <-tidied:
		case <-time.After(abandonAfter): // the next start sweeps what is left
		}
		return serverBinaries{}, fmt.Errorf("download PostgreSQL: %w", ctx.Err())
	}
	defer os.RemoveAll(staging)
	if err != nil {
		return serverBinaries{}, err
	}
	if err := os.RemoveAll(target); err != nil {
		return serverBinaries{}, fmt.Errorf("replace the earlier download: %w", err)
	}
	if err := os.Rename(filepath.Join(staging, "server"), target); err != nil {
		return serverBinaries{}, fmt.Errorf("put the download in its place: %w", err)
	}
	return probeServer(ctx, bin, runAs)
}

// fetchServer downloads and unpacks a server into staging/server. The library does that on the way to starting a
// server, and has no call for it alone: so a server is started and stopped at once. Where it cannot start, as for
// root, the unpacked files are what counts.
func fetchServer(from serverDownload, cache, staging string) (err error) {
	defer func() {
		// The library panics when it cannot tidy up after itself.
		if r := recover(); r != nil {
			err = fmt.Errorf("download PostgreSQL: %v", r)
		}
	}()
	port, err := freePort()
	if err != nil {
		return err
	}
	server := filepath.Join(staging, "server")
	config := embeddedpostgres.DefaultConfig().
		Version(from.version).
		Port(uint32(port)).
		CachePath(cache).
		BinariesPath(server).
		RuntimePath(filepath.Join(staging, "run")).
		Logger(io.Discard)
	if from.repository != "" {
		config = config.BinaryRepositoryURL(from.repository)
	}
	db := embeddedpostgres.NewDatabase(config)
	startErr := db.Start()
	if startErr == nil {
		if err := db.Stop(); err != nil {
			return fmt.Errorf("stop the downloaded PostgreSQL after its trial run: %w", err)
		}
	}
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := os.Stat(filepath.Join(server, "bin", name)); err != nil {
			return errors.Join(startErr, err)
		}
	}
	return os.Chmod(server, 0o755)
}

// cacheDir is where downloads and builds are kept: bursar in the user's cache folder. It is made when missing.
func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder for downloads and builds (set HOME or XDG_CACHE_HOME): %w", err)
	}
	dir := filepath.Join(base, "bursar")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder (set XDG_CACHE_HOME to one that can be written): %w", err)
	}
	return dir, nil
}

// binariesBase is where downloaded servers are unpacked: the cache folder, or for root a place that the user whom
// the server runs as can reach (root's own cache folder is closed to others as a rule).
func binariesBase(cache string, runAs *syscall.Credential) (string, error) {
	if runAs == nil {
		return cache, nil
	}
	var refused []error
	for _, dir := range []string{cache, "/var/cache/bursar", "/usr/local/lib/bursar"} {
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			if closed := firstClosed(dir, runAs); closed != "" {
				err = fmt.Errorf("%s lets user %d not pass", closed, runAs.Uid)
			}
		}
		if err == nil {
			return dir, nil
		}
		refused = append(refused, err)
	}
	return "", fmt.Errorf("no folder for a downloaded PostgreSQL that the unprivileged user can reach: %w", errors.Join(refused...))
}
