package devstack

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// upstream starts a server to put a PgBouncer in front of.
func upstream(t *testing.T) *Postgres {
	t.Helper()
	pg, err := StartPostgres(testContext(t), PostgresOptions{Settings: quick})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return pg
}

func TestPgBouncerPoolsTransactions(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	pg := upstream(t)
	b, err := StartPgBouncer(ctx, PgBouncerOptions{Upstream: pg.URL(""), PoolSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop(ctx)
	assertOwnGroup(t, b.PID())
	if info, err := os.Stat(filepath.Join(b.Folder(), bouncerConfig)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the configuration, which holds a password: %v, %v", info, err)
	}
	if err := pg.CreateDatabase(ctx, "made later"); err != nil {
		t.Fatal(err)
	}
	// Two clients, and one connection behind them: they share it, transaction by transaction.
	var backends []int
	for range 2 {
		conn, err := pgx.Connect(ctx, b.URL("made later"))
		if err != nil {
			t.Fatalf("%v\n%s", err, logTail(b.LogPath()))
		}
		defer conn.Close(ctx)
		var pid int
		var database, user string
		if err := conn.QueryRow(ctx, "SELECT pg_backend_pid(), current_database(), current_user", pgx.QueryExecModeExec).Scan(&pid, &database, &user); err != nil {
			t.Fatal(err)
		}
		if database != "made later" || user != PostgresUser {
			t.Errorf("connected to %q as %q", database, user)
		}
		backends = append(backends, pid)
	}
	if backends[0] != backends[1] {
		t.Errorf("the clients had the backends %v: transactions are not pooled", backends)
	}

	folder := b.Folder()
	for range 2 {
		if err := b.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
	<-b.Done()
	assertGone(t, b.PID(), folder)
}

func TestPgBouncerEndsWithItsOwner(t *testing.T) {
	pg := upstream(t)
	t.Setenv(envUpstream, pg.URL(""))
	owner, owned := startOwner(t, "pgbouncer")
	if !processAlive(owned.PID) {
		t.Fatal("it does not run")
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait()
	eventually(t, 15*time.Second, "PgBouncer has ended with its owner", func() bool { return ended(owned.PID) })
	sweep(filepath.Dir(owned.Folder))
	if _, err := os.Stat(owned.Folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of a dead owner stays: %v", err)
	}
}

func TestPgBouncerCannotStart(t *testing.T) {
	for _, upstream := range []string{"", "postgres://u:geheim@[::1", "http://u:geheim@host/", "postgres://host/x", "postgres://u:geheim%0A@host/x"} {
		_, err := StartPgBouncer(t.Context(), PgBouncerOptions{Upstream: upstream})
		if err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q: %v", upstream, err)
		}
	}
	t.Setenv(envPgBouncer, "/no/such/pgbouncer")
	if _, err := StartPgBouncer(t.Context(), PgBouncerOptions{Upstream: "postgres://u@127.0.0.1/x"}); err == nil || !strings.Contains(err.Error(), envPgBouncer) {
		t.Errorf("a program that is not there: %v", err)
	}
	t.Setenv(envPgBouncer, "")
	t.Setenv("PATH", t.TempDir())
	places := bouncerPlaces
	t.Cleanup(func() { bouncerPlaces = places })
	bouncerPlaces = nil
	if _, err := StartPgBouncer(t.Context(), PgBouncerOptions{Upstream: "postgres://u@127.0.0.1/x"}); err == nil || !strings.Contains(err.Error(), "install the package pgbouncer") {
		t.Errorf("no program anywhere: %v", err)
	}
	bouncerPlaces = places

	// A server that does not answer: the error says so, and shows the log.
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	nobody := (&url.URL{Scheme: "postgres", User: url.UserPassword("u", "geheim"), Host: loopback + ":" + strconv.Itoa(port), Path: "/x"}).String()
	_, err = StartPgBouncer(ctx, PgBouncerOptions{Upstream: nobody})
	if err == nil || !strings.Contains(err.Error(), "the end of its log") || !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "geheim") {
		t.Errorf("nobody behind it: %v", err)
	}
}
