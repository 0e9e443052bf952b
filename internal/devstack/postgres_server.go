package devstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// minPostgres is the oldest major version that Bursar supports.
const minPostgres = 15

// envPostgresBin names the folder of the server's binaries; when it is set nothing else is looked at.
const envPostgresBin = "BURSAR_POSTGRES_BIN"

// serverBinaries is a folder with initdb and postgres that were seen to run.
type serverBinaries struct {
	dir   string
	major int
}

func (s serverBinaries) initdb() string   { return filepath.Join(s.dir, "initdb") }
func (s serverBinaries) postgres() string { return filepath.Join(s.dir, "postgres") }

// findServer returns the first usable server of this machine, or downloads one.
func findServer(ctx context.Context, runAs *syscall.Credential, p *progress) (serverBinaries, error) {
	if dir := os.Getenv(envPostgresBin); dir != "" {
		server, err := probeServer(ctx, dir, runAs)
		if err != nil {
			return serverBinaries{}, fmt.Errorf("%s=%s: %w", envPostgresBin, dir, err)
		}
		return server, nil
	}
	var refused []error
	for _, dir := range serverDirs(ctx) {
		server, err := probeServer(ctx, dir, runAs)
		if err == nil {
			return server, nil
		}
		refused = append(refused, err)
	}
	server, err := downloadServer(ctx, defaultDownload(), runAs, p)
	if err == nil {
		return server, nil
	}
	text := fmt.Sprintf("no PostgreSQL server of version %d or newer was found", minPostgres)
	if len(refused) > 0 {
		text += fmt.Sprintf(" (refused: %v)", errors.Join(refused...))
	}
	return serverBinaries{}, fmt.Errorf("%s, and none could be downloaded: %w; install PostgreSQL with your system's package manager, "+
		"or set %s to the folder that holds initdb and postgres", text, err, envPostgresBin)
}

// serverDirs lists the folders that may hold a server, best first, without repetition.
func serverDirs(ctx context.Context) []string {
	var dirs []string
	add := func(dir string) {
		// Links are resolved: a link to postgres alone, say in /usr/local/bin, leads to the folder with the rest.
		if real, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres")); err == nil {
			if dir = filepath.Dir(real); !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		add(filepath.Dir(path))
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		add(strings.TrimSpace(string(out)))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", // Debian, Alpine
		"/usr/pgsql-*/bin",          // the PostgreSQL project's RPMs
		"/usr/local/pgsql/bin",      // built from source
		"/opt/homebrew/opt/postgresql@*/bin",
		"/opt/homebrew/opt/postgresql/bin",
		"/usr/local/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		"/usr/bin", // Arch, Fedora
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			continue // only a malformed pattern fails
		}
		slices.SortFunc(found, func(a, b string) int { return numberIn(b) - numberIn(a) })
		for _, dir := range found {
			add(dir)
		}
	}
	return dirs
}

var number = regexp.MustCompile(`\d+`)

// numberIn is the first number in a path, 0 when there is none: the version in the folders looked at.
func numberIn(path string) int {
	n, err := strconv.Atoi(number.FindString(path))
	if err != nil {
		return 0
	}
	return n
}

var versionOutput = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// probeServer runs both binaries as the user that will run them and checks the version.
func probeServer(ctx context.Context, dir string, runAs *syscall.Credential) (serverBinaries, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return serverBinaries{}, err
	}
	server := serverBinaries{dir: dir}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for _, binary := range []string{server.initdb(), server.postgres()} {
		cmd := exec.CommandContext(ctx, binary, "--version")
		cmd.Env = postgresEnv()
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: runAs}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			who := ""
			if runAs != nil {
				who = fmt.Sprintf(" as user %d", runAs.Uid)
			}
			return serverBinaries{}, fmt.Errorf("%s does not run%s: %w %s", binary, who, err, strings.TrimSpace(stderr.String()))
		}
		match := versionOutput.FindSubmatch(out)
		if match == nil {
			return serverBinaries{}, fmt.Errorf("%s --version says %q, which names no PostgreSQL version", binary, out)
		}
		major, err := strconv.Atoi(string(match[1]))
		if err != nil || major < minPostgres {
			return serverBinaries{}, fmt.Errorf("%s is version %s; %d or newer is needed", binary, match[1], minPostgres)
		}
		server.major = major
	}
	return server, nil
}

// unprivilegedUser is whom initdb, postgres and pgbouncer run as when the caller is root, since they refuse root. It is nil
// for any other caller.
func unprivilegedUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr != nil || gidErr != nil || uid == 0 {
			continue
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL and PgBouncer refuse to run as root, and there is neither a user postgres nor a user nobody to run it as: " +
		"make one of them, or run as another user than root")
}
