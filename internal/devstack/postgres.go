package devstack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresUser is the superuser of every server that [StartPostgres] starts. It needs no password; the server
// listens on the loopback address alone.
const PostgresUser = "bursar"

const (
	dataDirName    = "data"
	postgresLog    = "postgres.log"
	startTimeout   = time.Minute
	postgresPrefix = "%m [%p] %q%u@%d "
)

// PostgresOptions says how to start a private PostgreSQL. The zero value will do.
type PostgresOptions struct {
	// Settings are server parameters (as in postgresql.conf, for instance "fsync": "off") on top of the defaults:
	// max_connections 200, UTC. ALTER SYSTEM and ALTER DATABASE override them. The port, the addresses and the
	// socket folder are not for the caller to set.
	Settings map[string]string
	// Progress, when set, is told what is going on, one line a call; slow steps call it every few seconds. Calls
	// do not overlap but may come from other goroutines.
	Progress func(string)
}

// Postgres is a running private PostgreSQL server. Its methods may be called from any goroutine.
type Postgres struct {
	child  *child
	folder *folder
	port   int

	stopOnce sync.Once
	stopErr  error
}

// StartPostgres starts a PostgreSQL (version 15 or newer) with a new, empty cluster on a free loopback port and
// returns once it answers. The cluster's text sorts by ICU's rules where the server has ICU, so that a query which
// means byte order has to say COLLATE "C". ctx bounds the start alone; a start takes at most a minute once the
// binaries are there. On an error nothing is left running and no file is left.
func StartPostgres(ctx context.Context, options PostgresOptions) (*Postgres, error) {
	if err := checkSettings(options.Settings); err != nil {
		return nil, err
	}
	p := newProgress(options.Progress)
	runAs, err := unprivilegedUser()
	if err != nil {
		return nil, err
	}
	server, err := findServer(ctx, runAs, p)
	if err != nil {
		return nil, err
	}
	home, err := newFolder("postgres", runAs)
	if err != nil {
		return nil, err
	}
	pg, err := startCluster(ctx, server, home, runAs, options.Settings, p)
	if err != nil {
		return nil, errors.Join(err, home.remove())
	}
	return pg, nil
}

func startCluster(ctx context.Context, server serverBinaries, home *folder, runAs *syscall.Credential,
	settings map[string]string, p *progress,
) (*Postgres, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	end := p.during(fmt.Sprintf("creating a database cluster with PostgreSQL %d of %s", server.major, server.dir), "")
	err := initCluster(ctx, server, home, runAs)
	end()
	if err != nil {
		return nil, err
	}
	if err := writeSettings(filepath.Join(home.join(dataDirName), "postgresql.conf"), settings); err != nil {
		return nil, err
	}
	defer p.during("starting PostgreSQL", "")()
	return onFreePort(ctx, func() (*Postgres, error) { return startPostmaster(ctx, server, home, runAs) })
}

// initCluster runs initdb, with ICU's collation first and the C locale where the build has no ICU.
func initCluster(ctx context.Context, server serverBinaries, home *folder, runAs *syscall.Credential) error {
	data := home.join(dataDirName)
	icu := []string{"--locale-provider=icu", "--icu-locale=en-US"}
	for _, collation := range [][]string{icu, nil} {
		if err := emptyDataDir(data, runAs); err != nil {
			return err
		}
		logPath := home.join("initdb.log")
		err := runChild(ctx, childSpec{
			name: "initdb",
			path: server.initdb(),
			args: append([]string{
				"-D", data, "-U", PostgresUser, "--auth=trust", "--encoding=UTF8", "--locale=C",
				"--no-sync", "--no-instructions",
			}, collation...),
			env:         postgresEnv(),
			dir:         home.path,
			logPath:     logPath,
			credential:  runAs,
			deathSignal: syscall.SIGKILL,
		})
		if err == nil {
			return nil
		}
		log, _ := os.ReadFile(logPath)
		if collation != nil && ctx.Err() == nil && strings.Contains(string(log), "ICU") {
			continue
		}
		return fmt.Errorf("cannot create a database cluster in %s (is there room and may files be made there? TMPDIR "+
			"moves it, %s names another server): %w", home.path, envPostgresBin, err)
	}
	panic("unreachable: the last collation returns")
}

// emptyDataDir makes the data directory anew, owned by the user that the server runs as.
func emptyDataDir(data string, runAs *syscall.Credential) error {
	err := os.RemoveAll(data)
	if err == nil {
		err = os.Mkdir(data, 0o700)
	}
	if err == nil && runAs != nil {
		err = os.Chown(data, int(runAs.Uid), int(runAs.Gid))
	}
	if err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	return nil
}

// startPostmaster starts the server on a free port and waits until it answers.
func startPostmaster(ctx context.Context, server serverBinaries, home *folder, runAs *syscall.Credential) (*Postgres, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	data := home.join(dataDirName)
	if err := os.Truncate(home.join(postgresLog), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("begin a new server log: %w", err)
	}
	c, err := startChild(childSpec{
		name: "PostgreSQL",
		path: server.postgres(),
		args: []string{
			"-D", data, "-p", strconv.Itoa(port),
			"-c", "listen_addresses=" + loopback, "-c", "unix_socket_directories=",
		},
		env:        postgresEnv(),
		dir:        home.path,
		logPath:    home.join(postgresLog),
		credential: runAs,
		// An immediate shutdown: every backend ends and shared memory is given back. The files are of no use
		// without their owner.
		deathSignal: syscall.SIGQUIT,
	})
	if err != nil {
		return nil, err
	}
	pg := &Postgres{child: c, folder: home, port: port}
	if err := pg.awaitReady(ctx); err != nil {
		err = markPortTaken(fmt.Errorf("%w\n%s", err, logTail(pg.LogPath())), pg.LogPath())
		return nil, errors.Join(err, pg.shutdown(context.WithoutCancel(ctx)))
	}
	return pg, nil
}

// awaitReady polls until the server says in its lock file that it is ready, and a query confirms it. The lock file
// is the proof that the one who answers on the port is this server.
func (pg *Postgres) awaitReady(ctx context.Context) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	lastErr := errors.New("it has not said that it is ready")
	for {
		if pg.ready() {
			if lastErr = pg.ping(ctx); lastErr == nil {
				return nil
			}
		}
		select {
		case <-pg.child.done:
			return fmt.Errorf("PostgreSQL ended while it started (%v)", pg.child.err)
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL did not get ready: %w (last: %v)", ctx.Err(), lastErr)
		case <-ticker.C:
		}
	}
}

func (pg *Postgres) ready() bool {
	lines, err := readLines(filepath.Join(pg.folder.join(dataDirName), "postmaster.pid"))
	// The eighth line is the status, the first the pid of the postmaster.
	return err == nil && len(lines) >= 8 && strings.TrimSpace(lines[7]) == "ready" &&
		lines[0] == strconv.Itoa(pg.child.pid())
}

func (pg *Postgres) ping(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, pg.URL(""))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return conn.Ping(ctx)
}

// URL is the connection URL of a database of this server, as its superuser. The name "" means the database
// "postgres", which always exists.
func (pg *Postgres) URL(database string) string {
	if database == "" {
		database = "postgres"
	}
	u := url.URL{
		Scheme:   "postgres",
		User:     url.User(PostgresUser),
		Host:     loopback + ":" + strconv.Itoa(pg.port),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// CreateDatabase makes an empty database. It fails when there is one of that name.
func (pg *Postgres) CreateDatabase(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, pg.URL(""))
	if err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

// LogPath is the file that the server logs to. It is gone after Stop.
func (pg *Postgres) LogPath() string { return pg.folder.join(postgresLog) }

// Folder is the temporary folder that holds all files of the server. It is gone after Stop.
func (pg *Postgres) Folder() string { return pg.folder.path }

// PID is the process id of the postmaster.
func (pg *Postgres) PID() int { return pg.child.pid() }

// Done is closed when the server has ended, be it by Stop or by itself.
func (pg *Postgres) Done() <-chan struct{} { return pg.child.done }

// Stop shuts the server down (fast: open transactions are rolled back and clients disconnected) and removes its
// files. It returns within twenty-five seconds; the end of ctx makes it go over to an
// immediate shutdown at once. Later calls wait for the first and return what it returned.
func (pg *Postgres) Stop(ctx context.Context) error {
	pg.stopOnce.Do(func() {
		pg.stopErr = errors.Join(pg.shutdown(ctx), pg.folder.remove())
	})
	return pg.stopErr
}

// shutdown ends the process and leaves the files.
func (pg *Postgres) shutdown(ctx context.Context) error {
	return pg.child.stop(ctx,
		stopStep{syscall.SIGINT, 10 * time.Second}, // fast
		stopStep{syscall.SIGQUIT, 8 * time.Second}, // immediate: the postmaster kills stragglers after five
		stopStep{syscall.SIGKILL, 5 * time.Second},
	)
}

var settingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)

// checkSettings refuses what would break the configuration file, and what the package decides itself.
func checkSettings(settings map[string]string) error {
	for name, value := range settings {
		switch {
		case !settingName.MatchString(name):
			return fmt.Errorf("%q is no name of a PostgreSQL setting", name)
		case strings.ContainsAny(value, "\n\r\x00"):
			return fmt.Errorf("PostgreSQL setting %s: its value must be one line", name)
		}
		switch strings.ToLower(name) {
		case "port", "listen_addresses", "unix_socket_directories", "data_directory", "logging_collector", "log_destination":
			return fmt.Errorf("PostgreSQL setting %s is not the caller's to choose here", name)
		}
	}
	return nil
}

// writeSettings appends the defaults and the caller's settings to the configuration file; the last one counts.
func writeSettings(path string, settings map[string]string) error {
	all := map[string]string{
		"max_connections": "200",
		"timezone":        "UTC",
		"log_timezone":    "UTC",
		"log_line_prefix": postgresPrefix,
	}
	for name, value := range settings {
		all[strings.ToLower(name)] = value
	}
	var text strings.Builder
	text.WriteString("\n")
	quote := strings.NewReplacer(`\`, `\\`, `'`, `''`)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&text, "%s = '%s'\n", name, quote.Replace(all[name]))
	}
	conf, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("write the server's settings: %w", err)
	}
	_, err = conf.WriteString(text.String())
	if err := errors.Join(err, conf.Close()); err != nil {
		return fmt.Errorf("write the server's settings: %w", err)
	}
	return nil
}

// postgresEnv is the environment of initdb and the server: no PG* variable of the caller reaches them, and
// messages come in English, whatever the caller's locale.
func postgresEnv() []string {
	return environWithout([]string{"PG", "LC_", "LANG=", "LANGUAGE="}, "LC_ALL=C")
}

// postmasterPID is the process id in a data directory's lock file.
func postmasterPID(data string) (int, bool) {
	lines, err := readLines(filepath.Join(data, "postmaster.pid"))
	if err != nil || len(lines) == 0 {
		return 0, false
	}
	pid, err := strconv.Atoi(lines[0])
	return pid, err == nil && pid > 0
}

func readLines(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return strings.Split(string(text), "\n"), nil
}
