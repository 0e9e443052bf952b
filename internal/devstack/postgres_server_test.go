package devstack

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// writeServer makes a folder with an initdb and a postgres that only know a version.
func writeServer(t *testing.T, dir, version string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"initdb", "postgres", "pg_ctl"} {
		script := "#!/bin/sh\n[ \"$1\" = --version ] && echo '" + name + " (PostgreSQL) " + version + "' && exit\nexit 1\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestProbeServer(t *testing.T) {
	base := openTempDir(t)
	for version, want := range map[string]int{"15.16 (Debian 15.16-0+deb12u1)": 15, "17.5": 17, "18beta1": 18} {
		server, err := probeServer(t.Context(), writeServer(t, filepath.Join(base, version[:2]), version), nil)
		if err != nil || server.major != want {
			t.Errorf("%s: %d, %v", version, server.major, err)
		}
	}
	if _, err := probeServer(t.Context(), writeServer(t, filepath.Join(base, "old"), "14.9"), nil); err == nil || !strings.Contains(err.Error(), "15 or newer") {
		t.Errorf("an old server: %v", err)
	}
	if _, err := probeServer(t.Context(), writeServer(t, filepath.Join(base, "odd"), ""), nil); err == nil {
		t.Error("a server without a version was accepted")
	}
	if _, err := probeServer(t.Context(), filepath.Join(base, "missing"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing server: %v", err)
	}
	if os.Geteuid() != 0 {
		return // nobody else to run it as
	}
	closed := filepath.Join(base, "closed")
	writeServer(t, filepath.Join(closed, "bin"), "17.5")
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := probeServer(t.Context(), filepath.Join(closed, "bin"), &syscall.Credential{Uid: 4242, Gid: 4242}); err == nil {
		t.Error("a server that its user cannot reach was accepted")
	}
}

func TestFindServer(t *testing.T) {
	base := openTempDir(t)
	good := writeServer(t, filepath.Join(base, "good"), "16.9")
	bin := filepath.Join(base, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	// A link to postgres alone leads to the folder with the rest.
	if err := os.Symlink(filepath.Join(good, "postgres"), filepath.Join(bin, "postgres")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	t.Setenv(envPostgresBin, "")
	server, err := findServer(t.Context(), nil, newProgress(nil))
	if real, _ := filepath.EvalSymlinks(good); err != nil || server.dir != real {
		t.Errorf("found %+v, %v; want %s", server, err, good)
	}
	named := writeServer(t, filepath.Join(base, "named"), "17.5")
	t.Setenv(envPostgresBin, named)
	if server, err := findServer(t.Context(), nil, newProgress(nil)); err != nil || server.dir != named {
		t.Errorf("found %+v, %v; want %s", server, err, named)
	}
	t.Setenv(envPostgresBin, writeServer(t, filepath.Join(base, "old"), "13.1"))
	if server, err := findServer(t.Context(), nil, newProgress(nil)); err == nil || !strings.Contains(err.Error(), envPostgresBin) {
		t.Errorf("a named server that is too old: %+v, %v", server, err)
	}
}

func TestNewestServerFirst(t *testing.T) {
	for path, want := range map[string]int{"/usr/lib/postgresql/15/bin": 15, "/usr/pgsql-17/bin": 17, "/usr/bin": 0, "/x/postgresql@16/bin": 16} {
		if got := numberIn(path); got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
}

// repository serves a downloadable server whose binaries only know their version, as the library expects it: a
// zip file with a compressed tar file in it, and its checksum.
//
// Answers wait until the gate, when there is one, is closed.
func repository(t *testing.T, version string, gate <-chan struct{}) (url string, downloads *atomic.Int32) {
	t.Helper()
	// What writeServer makes for version 17.5, in a folder bin: tar -cJf server.txz bin. Go's standard library does
	// not write xz.
	txz, err := os.ReadFile("testdata/server.txz")
	if err != nil {
		t.Fatal(err)
	}
	var jar bytes.Buffer
	archive := zip.NewWriter(&jar)
	entry, err := archive.Create("postgres.txz")
	if err == nil {
		_, err = entry.Write(txz)
	}
	if err := errors.Join(err, archive.Close()); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(jar.Bytes())
	downloads = new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if gate != nil {
			<-gate
		}
		switch {
		case !strings.Contains(r.URL.Path, version):
			http.NotFound(w, r)
		case strings.HasSuffix(r.URL.Path, ".sha256"):
			_, _ = w.Write([]byte(hex.EncodeToString(sum[:])))
		default:
			downloads.Add(1)
			_, _ = w.Write(jar.Bytes())
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, downloads
}

func TestDownloadServerOnce(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", openTempDir(t))
	t.Setenv("TMPDIR", openTempDir(t)) // the library leaves a log in it
	t.Setenv("HOME", openTempDir(t))   // macOS keeps caches under it
	runAs, err := unprivilegedUser()
	if err != nil {
		t.Fatal(err)
	}
	url, downloads := repository(t, "17.5.0", nil)
	from := serverDownload{version: embeddedpostgres.V17, repository: url}
	const n = 3
	var servers [n]serverBinaries
	var errs [n]error
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { servers[i], errs[i] = downloadServer(t.Context(), from, runAs, newProgress(nil)) })
	}
	group.Wait()
	for i := range n {
		if errs[i] != nil || servers[i].major != 17 || servers[i] != servers[0] {
			t.Fatalf("%+v, %v", servers[i], errs[i])
		}
	}
	if got := downloads.Load(); got != 1 {
		t.Errorf("%d downloads, want 1", got)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(servers[0].dir)), "postgres-staging-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left in the cache: %v %v", left, err)
	}
}

func TestDownloadServerFails(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", openTempDir(t))
	t.Setenv("TMPDIR", openTempDir(t))
	t.Setenv("HOME", openTempDir(t))
	url, _ := repository(t, "17.5.0", nil)
	_, err := downloadServer(t.Context(), serverDownload{version: embeddedpostgres.V16, repository: url}, nil, newProgress(nil))
	if err == nil || !strings.Contains(err.Error(), "16.9.0") {
		t.Errorf("a version that is not there: %v", err)
	}
}

func TestDownloadServerCancelled(t *testing.T) {
	cache := openTempDir(t)
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("TMPDIR", openTempDir(t))
	t.Setenv("HOME", cache)
	gate := make(chan struct{})
	url, _ := repository(t, "17.5.0", gate)
	ctx, cancel := context.WithCancel(t.Context())
	p := newProgress(func(line string) {
		if strings.HasPrefix(line, "downloading") {
			cancel()
		}
	})
	_, err := downloadServer(ctx, serverDownload{version: embeddedpostgres.V17, repository: url}, nil, p)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	staging := func() []string {
		var found []string
		for _, pattern := range []string{"bursar", "Library/Caches/bursar"} {
			paths, err := filepath.Glob(filepath.Join(cache, pattern, "postgres-staging-*"))
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, paths...)
		}
		return found
	}
	if len(staging()) != 1 {
		t.Errorf("staging folders while the download hangs: %v", staging())
	}
	close(gate)
	eventually(t, 10*time.Second, "the abandoned download has tidied up", func() bool { return len(staging()) == 0 })
}
