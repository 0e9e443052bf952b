package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver that pgtestdb connects with
	"github.com/peterldowns/pgtestdb"
)

const (
	// testRole is the ordinary role that owns the databases; its password is no secret.
	testRole = "bursar_test"
	// closeWithin is how long connections may take to come back at the end of a test.
	closeWithin = 5 * time.Second
	// openGrace is how long a transaction may outlive its test before that counts as a failure: one whose client
	// has gone ends by itself in that time.
	openGrace = 2 * time.Second
)

// DB is a database that belongs to one test.
type DB struct {
	server *server
	name   string
	url    string
	// logFrom is the size of the server's log when the database was made.
	logFrom   int64
	deadlocks bool // are expected
}

// Option changes the database that [New] or [NewEmpty] gives.
type Option func(*options)

type options struct {
	settings  [][2]string
	deadlocks bool
}

// Setting sets a server parameter for all connections to the database, for instance "deadlock_timeout" to "100ms".
// It may be one that only a superuser can set, though not one that is fixed at the server's start.
func Setting(name, value string) Option {
	return func(o *options) { o.settings = append(o.settings, [2]string{name, value}) }
}

// Deadlocks says that the test provokes deadlocks. Any other test fails when the server's log tells of one, also of one
// that the server avoided by another order of its queue, which is no error to anybody.
func Deadlocks() Option { return func(o *options) { o.deadlocks = true } }

// New gives the test a database with the newest schema. It is dropped when the test ends.
func New(t testing.TB, opts ...Option) *DB {
	t.Helper()
	return newDB(t, projectSchema(), opts)
}

// NewEmpty gives the test a database without any schema, for tests of the migrations themselves. It is dropped when
// the test ends.
func NewEmpty(t testing.TB, opts ...Option) *DB {
	t.Helper()
	return newDB(t, pgtestdb.NoopMigrator{}, opts)
}

func newDB(t testing.TB, migrator pgtestdb.Migrator, opts []Option) *DB {
	t.Helper()
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	s := useServer(t)
	db := &DB{server: s, deadlocks: o.deadlocks}
	if s.own != nil {
		info, err := os.Stat(s.own.LogPath())
		if err != nil {
			t.Fatalf("pgtest: the server's log: %v", err)
		}
		db.logFrom = info.Size()
	}
	created := pgtestdb.Custom(quietTB{t}, s.templateConfig(), migrator)
	db.name = created.Database
	db.url = s.urlOf(db.name, url.UserPassword(testRole, testRole))
	// Runs before pgtestdb's own clean-up, which then finds nothing to drop.
	t.Cleanup(func() { db.drop(t) })
	if s.own == nil {
		for _, name := range []string{"deadlock_timeout", "log_lock_waits"} {
			o.settings = append([][2]string{{name, serverSettings[name]}}, o.settings...)
		}
	}
	db.set(t, o.settings)
	return db
}

// templateConfig tells pgtestdb where and as whom to work.
func (s *server) templateConfig() pgtestdb.Config {
	// pgtestdb puts the parts together as they are: they are escaped here.
	host := s.admin.Hostname()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	port := s.admin.Port()
	if port == "" {
		port = "5432"
	}
	password, _ := s.admin.User.Password()
	return pgtestdb.Config{
		DriverName: "pgx",
		Host:       host,
		Port:       port,
		User:       url.User(s.admin.User.Username()).String(),
		Password:   url.User(password).String(),
		Database:   strings.TrimPrefix(s.admin.EscapedPath(), "/"),
		Options:    s.admin.RawQuery,
		TestRole: &pgtestdb.Role{
			Username:     testRole,
			Password:     testRole,
			Capabilities: "NOSUPERUSER NOCREATEDB NOCREATEROLE",
		},
		ForceTerminateConnections: true,
	}
}

// quietTB keeps pgtestdb from logging a line for each database.
type quietTB struct{ testing.TB }

func (quietTB) Logf(string, ...any) {}

// set fixes settings of the database for the connections to come.
func (db *DB) set(t testing.TB, settings [][2]string) {
	t.Helper()
	if len(settings) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	conn, err := pgx.Connect(ctx, db.server.urlOf(db.name, nil))
	if err != nil {
		t.Fatalf("pgtest: set the parameters of %s: %v", db.name, err)
	}
	defer conn.Close(ctx)
	for _, setting := range settings {
		// The statement takes no parameters; the server quotes for it.
		var alter string
		err := conn.QueryRow(ctx, `SELECT format('ALTER DATABASE %I SET %I TO %L', $1::text, $2::text, $3::text)`,
			db.name, setting[0], setting[1]).Scan(&alter)
		if err == nil {
			_, err = conn.Exec(ctx, alter)
		}
		if err != nil {
			t.Fatalf("pgtest: set %s to %q for %s: %v", setting[0], setting[1], db.name, err)
		}
	}
}

// URL is the connection URL of the database, as the ordinary role that owns it.
func (db *DB) URL() string { return db.url }

// AdminURL is the connection URL of the database as a superuser.
func (db *DB) AdminURL() string { return db.server.urlOf(db.name, nil) }

// Name is the name of the database, unique on its server.
func (db *DB) Name() string { return db.name }

// Pool is a new connection pool on the database, closed when t ends. A connection that has not come back by then
// fails the test. configure, if given, changes the configuration first.
func (db *DB) Pool(t testing.TB, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(db.url)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	for _, change := range configure {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatalf("pgtest: open a pool on %s: %v", db.name, err)
	}
	t.Cleanup(func() {
		t.Helper()
		closed := make(chan struct{})
		go func() {
			pool.Close() // waits for every connection
			close(closed)
		}()
		timer := time.NewTimer(closeWithin)
		defer timer.Stop()
		select {
		case <-closed:
		case <-timer.C:
			t.Errorf("pgtest: %d connections were taken from the pool and not given back; look for a transaction or rows that nobody ends",
				pool.Stat().AcquiredConns())
		}
	})
	return pool
}

// Conn is a new connection to the database outside any pool, closed when t ends, which rolls back what is open on
// it.
func (db *DB) Conn(t testing.TB) *pgx.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, db.url)
	if err != nil {
		t.Fatalf("pgtest: connect to %s: %v", db.name, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
		defer cancel()
		_ = conn.Close(ctx) // it may be broken: that is the test's affair
	})
	return conn
}

var logLine = regexp.MustCompile(`^\S+ \S+ \S+ \[\d+\] \S+@(\S+) `)

// ServerLog is what the server has logged so far about connections to this database, with the lines that continue
// an entry. It fails the test when the server is DATABASE_URL's, whose log cannot be read from here.
func (db *DB) ServerLog(t testing.TB) string {
	t.Helper()
	if db.server.own == nil {
		t.Fatalf("pgtest: this test reads the server's log, which only a server that the tests start gives: unset %s", envURL)
	}
	log, err := os.Open(db.server.own.LogPath())
	if err != nil {
		t.Fatalf("pgtest: the server's log: %v", err)
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		t.Fatalf("pgtest: the server's log: %v", err)
	}
	text := make([]byte, max(info.Size()-db.logFrom, 0))
	n, err := log.ReadAt(text, db.logFrom)
	if n < len(text) {
		t.Fatalf("pgtest: the server's log: %v", err)
	}
	return linesAbout(string(text), db.name)
}

// linesAbout keeps the entries of a server's log that belong to connections to the database.
func linesAbout(log, database string) string {
	var kept strings.Builder
	about := false
	for line := range strings.Lines(log) {
		if !strings.HasPrefix(line, "\t") { // a tab begins what continues an entry
			match := logLine.FindStringSubmatch(line)
			about = match != nil && match[1] == database
		}
		if about {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// noDeadlocks reports what the server's log tells of deadlocks, broken or avoided. The log of a server that the tests did not start
// cannot be read from here; a deadlock that was broken shows there as an error all the same.
func (db *DB) noDeadlocks(t testing.TB) {
	t.Helper()
	if db.server.own == nil || db.deadlocks {
		return
	}
	for line := range strings.Lines(db.ServerLog(t)) {
		if strings.Contains(line, "avoided deadlock") || strings.Contains(line, "deadlock detected") {
			t.Errorf("pgtest: the server's log says: %s", strings.TrimSpace(line))
		}
	}
}

// drop removes the database and reports transactions that the test left open, and deadlocks.
func (db *DB) drop(t testing.TB) {
	t.Helper()
	db.noDeadlocks(t)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, db.server.admin.String())
	if err != nil {
		t.Errorf("pgtest: drop %s: %v", db.name, err)
		return
	}
	defer conn.Close(context.WithoutCancel(ctx))
	open, err := db.openTransactions(ctx, conn)
	if err != nil {
		t.Errorf("pgtest: look for open transactions: %v", err)
	}
	for _, transaction := range open {
		t.Errorf("pgtest: the test has ended and left a transaction open: %s", transaction)
	}
	if _, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{db.name}.Sanitize()+" WITH (FORCE)"); err != nil {
		t.Errorf("pgtest: drop %s: %v", db.name, err)
	}
}

// openTransactions describes the transactions on the database that do not end within the grace.
func (db *DB) openTransactions(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	for deadline := time.Now().Add(openGrace); ; {
		rows, err := conn.Query(ctx, `SELECT format('process %s (%s, %s), begun %s ago: %s', pid, usename, state,
				clock_timestamp() - xact_start, left(query, 200))
			FROM pg_stat_activity
			WHERE datname = $1 AND backend_type = 'client backend' AND xact_start IS NOT NULL
			ORDER BY xact_start`, db.name)
		if err != nil {
			return nil, err
		}
		open, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(open) == 0 || time.Now().After(deadline) {
			return open, err
		}
		select {
		case <-ctx.Done():
			return open, fmt.Errorf("waiting for them to end: %w", ctx.Err())
		case <-time.After(25 * time.Millisecond):
		}
	}
}
