package devstack

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	bouncerLog    = "pgbouncer.log"
	bouncerConfig = "pgbouncer.ini"
	// envPgBouncer names the PgBouncer to run; when it is set nothing else is looked at.
	envPgBouncer = "BURSAR_PGBOUNCER"
)

// bouncerPlaces are looked at after PATH, which seldom holds the folders of daemons for an ordinary user.
var bouncerPlaces = []string{"/usr/sbin/pgbouncer", "/usr/local/sbin/pgbouncer", "/opt/homebrew/bin/pgbouncer", "/usr/local/bin/pgbouncer"}

// PgBouncerOptions says what to put a PgBouncer in front of.
type PgBouncerOptions struct {
	// Upstream is the URL of any database of the server behind it. Its user and password are those that PgBouncer
	// uses for every database, whoever connects. Its sslmode is honoured; the other parameters are not.
	Upstream string
	// PoolSize is how many server connections each database may have at once. Default 50.
	PoolSize int
	// Progress, when set, is told what is going on, one line a call.
	Progress func(string)
}

// PgBouncer is a running PgBouncer that pools transactions. Its methods may be called from any goroutine.
type PgBouncer struct {
	child    *child
	folder   *folder
	port     int
	upstream *url.URL

	stopOnce sync.Once
	stopErr  error
}

// StartPgBouncer starts a PgBouncer in transaction mode on a free loopback port, in front of every database of the
// upstream server, and returns once a query through it is answered. It lets anybody in who reaches the loopback
// address: it is for development and tests. ctx bounds the start alone, which takes at most a minute. On an error
// nothing is left running and no file is left.
func StartPgBouncer(ctx context.Context, options PgBouncerOptions) (*PgBouncer, error) {
	upstream, err := parseUpstream(options.Upstream)
	if err != nil {
		return nil, err
	}
	binary, err := findPgBouncer()
	if err != nil {
		return nil, err
	}
	runAs, err := unprivilegedUser()
	if err != nil {
		return nil, err
	}
	home, err := newFolder("pgbouncer", runAs)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	defer newProgress(options.Progress).during("starting PgBouncer", "")()
	size := options.PoolSize
	if size <= 0 {
		size = 50
	}
	b, err := onFreePort(ctx, func() (*PgBouncer, error) { return startBouncer(ctx, binary, home, runAs, upstream, size) })
	if err != nil {
		return nil, errors.Join(err, home.remove())
	}
	return b, nil
}

// parseUpstream reads the URL of the server. What cannot be read is not repeated: it may hold a password.
func parseUpstream(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") || u.User.Username() == "" || u.Hostname() == "" {
		return nil, errors.New("the server behind PgBouncer must be given by a URL such as postgres://user:password@host:5432/postgres?sslmode=disable")
	}
	password, _ := u.User.Password()
	if strings.ContainsAny(u.User.Username()+password, "\r\n\x00") {
		return nil, errors.New("the user and the password of the server behind PgBouncer must each be one line")
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = "/postgres"
	}
	return u, nil
}

// findPgBouncer is the path of the program.
func findPgBouncer() (string, error) {
	if path := os.Getenv(envPgBouncer); path != "" {
		found, err := exec.LookPath(path)
		if err != nil {
			return "", fmt.Errorf("%s=%s: %w", envPgBouncer, path, err)
		}
		return found, nil
	}
	for _, candidate := range append([]string{"pgbouncer"}, bouncerPlaces...) {
		if found, err := exec.LookPath(candidate); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("PgBouncer was not found: install the package pgbouncer with your system's package manager "+
		"(on Debian: apt-get install pgbouncer), or set %s to the program", envPgBouncer)
}

// startBouncer starts it on a free port and waits until it answers.
func startBouncer(ctx context.Context, binary string, home *folder, runAs *syscall.Credential, upstream *url.URL, size int) (*PgBouncer, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	config := home.join(bouncerConfig)
	if err := writeBouncerConfig(config, runAs, upstream, port, size); err != nil {
		return nil, err
	}
	if err := os.Truncate(home.join(bouncerLog), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("begin a new log of PgBouncer: %w", err)
	}
	c, err := startChild(childSpec{
		name:        "PgBouncer",
		path:        binary,
		args:        []string{config},
		env:         postgresEnv(),
		dir:         home.path,
		logPath:     home.join(bouncerLog),
		credential:  runAs,
		deathSignal: syscall.SIGTERM, // an immediate shutdown
	})
	if err != nil {
		return nil, err
	}
	b := &PgBouncer{child: c, folder: home, port: port, upstream: upstream}
	if err := b.awaitReady(ctx); err != nil {
		err = markPortTaken(fmt.Errorf("%w\n%s", err, logTail(b.LogPath())), b.LogPath())
		return nil, errors.Join(err, b.shutdown(context.WithoutCancel(ctx)))
	}
	return b, nil
}

// writeBouncerConfig writes the configuration, readable only for who runs PgBouncer: it holds the password.
func writeBouncerConfig(path string, runAs *syscall.Credential, upstream *url.URL, port, size int) error {
	serverPort := upstream.Port()
	if serverPort == "" {
		serverPort = "5432"
	}
	password, _ := upstream.User.Password()
	sslmode := upstream.Query().Get("sslmode")
	if sslmode == "" {
		sslmode = "prefer"
	}
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	server := fmt.Sprintf("host=%s port=%s user=%s", quote(upstream.Hostname()), serverPort, quote(upstream.User.Username()))
	if password != "" {
		server += " password=" + quote(password)
	}
	text := strings.Join([]string{
		"[databases]",
		"* = " + server,
		"[pgbouncer]",
		"listen_addr = " + loopback,
		"listen_port = " + strconv.Itoa(port),
		"unix_socket_dir =",
		"auth_type = any", // every database logs in as the upstream's user
		"pool_mode = transaction",
		"max_client_conn = 1000",
		"default_pool_size = " + strconv.Itoa(size),
		"server_tls_sslmode = " + sslmode,
		"server_login_retry = 1",
		"log_connections = 0",
		"log_disconnections = 0",
		"",
	}, "\n")
	_ = os.Remove(path) // of an earlier attempt, on another port
	err := os.WriteFile(path, []byte(text), 0o600)
	if err == nil && runAs != nil {
		err = os.Chown(path, int(runAs.Uid), int(runAs.Gid))
	}
	if err != nil {
		return fmt.Errorf("write the configuration of PgBouncer: %w", err)
	}
	return nil
}

// awaitReady polls until the log says that it is up, which proves that the one who answers on the port is this
// process, and a query through it is answered.
func (b *PgBouncer) awaitReady(ctx context.Context) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	lastErr := errors.New("it has not said that it is up")
	for {
		if log, err := os.ReadFile(b.LogPath()); err == nil && strings.Contains(string(log), "process up") {
			if lastErr = b.ping(ctx); lastErr == nil {
				return nil
			}
		}
		select {
		case <-b.child.done:
			return fmt.Errorf("PgBouncer ended while it started (%v)", b.child.err)
		case <-ctx.Done():
			return fmt.Errorf("PgBouncer did not get ready: %w (last: %v)", ctx.Err(), lastErr)
		case <-ticker.C:
		}
	}
}

// ping asks the server behind it.
func (b *PgBouncer) ping(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, b.URL(strings.TrimPrefix(b.upstream.Path, "/")))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return conn.Ping(ctx)
}

// URL is the connection URL of a database of the server, through PgBouncer. The name "" means the database
// "postgres".
func (b *PgBouncer) URL(database string) string {
	if database == "" {
		database = "postgres"
	}
	u := url.URL{
		Scheme:   "postgres",
		User:     url.User(b.upstream.User.Username()),
		Host:     loopback + ":" + strconv.Itoa(b.port),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// LogPath is the file that PgBouncer logs to. It is gone after Stop.
func (b *PgBouncer) LogPath() string { return b.folder.join(bouncerLog) }

// Folder is the temporary folder that holds its files. It is gone after Stop.
func (b *PgBouncer) Folder() string { return b.folder.path }

// PID is its process id.
func (b *PgBouncer) PID() int { return b.child.pid() }

// Done is closed when PgBouncer has ended, be it by Stop or by itself.
func (b *PgBouncer) Done() <-chan struct{} { return b.child.done }

// Stop shuts PgBouncer down, which disconnects its clients, and removes its files. It returns within ten seconds.
// Later calls wait for the first and return what it returned.
func (b *PgBouncer) Stop(ctx context.Context) error {
	b.stopOnce.Do(func() {
		b.stopErr = errors.Join(b.shutdown(ctx), b.folder.remove())
	})
	return b.stopErr
}

// shutdown ends the process and leaves the files.
func (b *PgBouncer) shutdown(ctx context.Context) error {
	return b.child.stop(ctx, stopStep{syscall.SIGTERM, 5 * time.Second}, stopStep{syscall.SIGKILL, 5 * time.Second})
}
