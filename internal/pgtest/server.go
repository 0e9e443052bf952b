package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bursarhq/bursar/internal/devstack"
)

// envURL names a server to use in place of one started by the tests.
const envURL = "DATABASE_URL"

// serverSettings make a server fast that keeps nothing, and talkative about locks.
var serverSettings = map[string]string{
	"fsync":              "off",
	"synchronous_commit": "off",
	"full_page_writes":   "off",
	"deadlock_timeout":   "1s",
	"log_lock_waits":     "on",
}

// server is the PostgreSQL server that this test process uses.
type server struct {
	admin *url.URL           // a superuser's URL of a database that always exists
	own   *devstack.Postgres // nil when the server is DATABASE_URL's
}

var (
	mainCalled atomic.Bool
	theServer  = sync.OnceValues(openServer)
	// started is the server that Main has to stop, nil when there is none.
	started atomic.Pointer[devstack.Postgres]
)

// Main runs the tests of a package and exits with their result. Call it from TestMain; a package whose tests use
// databases needs it, so that the server they start is stopped. What else has to end after the tests can be given
// in after: it runs before the server stops, in order, also when tests have failed; an error fails the run.
func Main(m *testing.M, after ...func() error) {
	mainCalled.Store(true)
	code := m.Run()
	var failed error
	for _, end := range after {
		failed = errors.Join(failed, end())
	}
	failed = errors.Join(failed, stopPooler())
	if own := started.Load(); own != nil {
		failed = errors.Join(failed, own.Stop(context.Background()))
	}
	if failed != nil {
		fmt.Fprintf(os.Stderr, "after the tests: %v\n", failed)
		code = max(code, 1)
	}
	os.Exit(code)
}

// useServer is the server of this process, started now if it is not yet.
func useServer(t testing.TB) *server {
	t.Helper()
	if !mainCalled.Load() {
		t.Fatal("pgtest: no TestMain of this package calls pgtest.Main, so nothing would stop the server; add: func TestMain(m *testing.M) { pgtest.Main(m) }")
	}
	s, err := theServer()
	if err != nil {
		t.Fatalf("pgtest: no PostgreSQL to test with: %v", err)
	}
	return s
}

func openServer() (*server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // a first start may download
	defer cancel()
	if text := os.Getenv(envURL); text != "" {
		return openExternal(ctx, text)
	}
	own, err := devstack.StartPostgres(ctx, devstack.PostgresOptions{
		Settings: serverSettings,
		Progress: func(line string) {
			// Only steps that take long say so a second time.
			if strings.Contains(line, "so far") || strings.HasPrefix(line, "downloading") {
				fmt.Fprintln(os.Stderr, "pgtest:", line)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	admin, err := url.Parse(own.URL(""))
	if err != nil {
		return nil, errors.Join(err, own.Stop(ctx))
	}
	started.Store(own)
	return &server{admin: admin, own: own}, nil
}

// openExternal checks that a server of the environment can be used.
func openExternal(ctx context.Context, text string) (*server, error) {
	admin, err := url.Parse(text)
	if err != nil || (admin.Scheme != "postgres" && admin.Scheme != "postgresql") || admin.User == nil {
		// The text may hold a password and stays out of the message, as does the parser's error, which quotes it.
		return nil, fmt.Errorf("%s must be a URL such as postgres://user:password@host:5432/postgres?sslmode=disable", envURL)
	}
	if strings.Trim(admin.Path, "/") == "" {
		admin.Path = "/postgres"
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, admin.String())
	if err != nil {
		return nil, fmt.Errorf("the server of %s: %w", envURL, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var version int
	var superuser bool
	err = conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int,
		(SELECT rolsuper FROM pg_roles WHERE rolname = current_user)`).Scan(&version, &superuser)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the server of %s: %w", envURL, err)
	case version < 150000:
		return nil, fmt.Errorf("the server of %s has version number %d; PostgreSQL 15 or newer is needed", envURL, version)
	case !superuser:
		return nil, fmt.Errorf("the user of %s is no superuser: the tests cannot mark templates as such", envURL)
	}
	return &server{admin: admin}, nil
}

// urlOf is the URL of a database of the server, as the superuser, or as the role when one is given.
func (s *server) urlOf(database string, role *url.Userinfo) string {
	u := *s.admin
	u.Path = "/" + database
	if role != nil {
		u.User = role
	}
	return u.String()
}
