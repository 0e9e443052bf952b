package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bursarhq/bursar/db"
)

func TestMain(m *testing.M) { Main(m) }

// recorder stands in for a test whose failure is looked at.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (r *recorder) Helper() {}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

// run plays a test and its clean-ups, and returns what it reported.
func (r *recorder) run(test func(testing.TB)) string {
	call := func(f func()) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			f()
		}()
		<-done
	}
	call(func() { test(r) })
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		call(r.cleanups[i])
	}
	return strings.Join(r.failures, "\n")
}

func scan[T any](t *testing.T, q interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, query string, args ...any) T {
	t.Helper()
	var value T
	if err := q.QueryRow(t.Context(), query, args...).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

func databaseExists(t *testing.T, name string) bool {
	t.Helper()
	s := useServer(t)
	conn, err := pgx.Connect(t.Context(), s.admin.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	return scan[bool](t, conn, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, name)
}

func TestNewHasTheSchemaAndEachTestItsOwn(t *testing.T) {
	one, two := New(t), New(t)
	if one.Name() == two.Name() {
		t.Fatalf("two tests share %s", one.Name())
	}
	for _, d := range []*DB{one, two} {
		conn := d.Conn(t)
		if err := db.Check(t.Context(), conn); err != nil {
			t.Errorf("the schema: %v", err)
		}
		if got := scan[string](t, conn, `SELECT current_database()`); got != d.Name() {
			t.Errorf("connected to %s, want %s", got, d.Name())
		}
		if scan[bool](t, conn, `SELECT rolsuper FROM pg_roles WHERE rolname = current_user`) {
			t.Error("tests run as a superuser")
		}
		if got := scan[string](t, conn, `SHOW deadlock_timeout`); got != "1s" {
			t.Errorf("deadlock_timeout %s", got)
		}
		if got := scan[string](t, conn, `SHOW log_lock_waits`); got != "on" {
			t.Errorf("log_lock_waits %s", got)
		}
		if _, err := conn.Exec(t.Context(), `CREATE TABLE only_here (id int)`); err != nil {
			t.Error(err)
		}
	}
	admin, err := pgx.Connect(t.Context(), one.AdminURL())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	if !scan[bool](t, admin, `SELECT rolsuper FROM pg_roles WHERE rolname = current_user`) {
		t.Error("AdminURL is no superuser's")
	}
}

func TestNewEmptyHasNoSchema(t *testing.T) {
	d := NewEmpty(t)
	conn := d.Conn(t)
	if n := scan[int](t, conn, `SELECT count(*)::int FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE nspname NOT IN ('pg_catalog', 'information_schema') AND nspname NOT LIKE 'pg_toast%'`); n != 0 {
		t.Errorf("%d relations in an empty database", n)
	}
	applied, err := db.Migrate(t.Context(), d.URL())
	if err != nil || len(applied) == 0 {
		t.Errorf("the migrations do not apply to it: %v, %v", applied, err)
	}
}

func TestSetting(t *testing.T) {
	d := New(t, Setting("deadlock_timeout", "123ms"), Setting("application_name", `it's "me"`))
	conn := d.Conn(t)
	if got := scan[string](t, conn, `SHOW deadlock_timeout`); got != "123ms" {
		t.Errorf("deadlock_timeout %s", got)
	}
	if got := scan[string](t, conn, `SHOW application_name`); got != `it's "me"` {
		t.Errorf("application_name %s", got)
	}
	r := &recorder{TB: t}
	if got := r.run(func(t testing.TB) { New(t, Setting("no_such", "1")) }); !strings.Contains(got, "no_such") {
		t.Errorf("an unknown setting: %q", got)
	}
}

func TestDroppedAtTheEndAlsoWithConnectionsLeft(t *testing.T) {
	r := &recorder{TB: t}
	var name string
	var left *pgx.Conn
	failures := r.run(func(tb testing.TB) {
		d := New(tb)
		name = d.Name()
		if _, err := d.Pool(tb).Exec(t.Context(), "SELECT 1"); err != nil {
			tb.Errorf("%v", err)
		}
		var err error
		if left, err = pgx.Connect(t.Context(), d.URL()); err != nil {
			tb.Fatalf("%v", err)
		}
	})
	if failures != "" {
		t.Errorf("an idle connection is no failure: %s", failures)
	}
	if databaseExists(t, name) {
		t.Errorf("%s was not dropped", name)
	}
	if err := left.Ping(t.Context()); err == nil {
		t.Error("the connection outlives its database")
	}
}

// A deadlock fails the test that it happens in, also where nobody gets an error, unless the test says that it provokes one.
func TestDeadlockFailsTheTest(t *testing.T) {
	if os.Getenv(envURL) != "" {
		t.Log("the log of a server that the tests did not start is not looked at")
		return
	}
	deadlock := func(opts ...Option) func(testing.TB) {
		return func(tb testing.TB) {
			d := New(tb, append(opts, Setting("deadlock_timeout", "50ms"))...)
			one, other := d.Conn(tb), d.Conn(tb)
			for conn, key := range map[*pgx.Conn]int{one: 1, other: 2} {
				if _, err := conn.Exec(t.Context(), "BEGIN; SELECT pg_advisory_xact_lock("+strconv.Itoa(key)+")"); err != nil {
					tb.Fatalf("%v", err)
				}
			}
			waited := make(chan error, 1)
			go func() {
				_, err := one.Exec(t.Context(), "SELECT pg_advisory_xact_lock(2)")
				waited <- err
			}()
			_, err := other.Exec(t.Context(), "SELECT pg_advisory_xact_lock(1)")
			if first := <-waited; (err == nil) == (first == nil) {
				tb.Errorf("one of the two ends with an error: %v, %v", first, err)
			}
			for _, conn := range []*pgx.Conn{one, other} {
				if _, err := conn.Exec(t.Context(), "ROLLBACK"); err != nil {
					tb.Errorf("%v", err)
				}
			}
		}
	}
	if failures := (&recorder{TB: t}).run(deadlock()); !strings.Contains(failures, "deadlock detected") {
		t.Errorf("reported: %q", failures)
	}
	if failures := (&recorder{TB: t}).run(deadlock(Deadlocks())); failures != "" {
		t.Errorf("reported: %q", failures)
	}
}

func TestOpenTransactionFailsTheTest(t *testing.T) {
	r := &recorder{TB: t}
	var name string
	var conn *pgx.Conn
	failures := r.run(func(tb testing.TB) {
		d := New(tb)
		name = d.Name()
		var err error
		if conn, err = pgx.Connect(t.Context(), d.URL()); err != nil {
			tb.Fatalf("%v", err)
		}
		if _, err := conn.Exec(t.Context(), "BEGIN; SELECT 'the forgotten one'"); err != nil {
			tb.Fatalf("%v", err)
		}
	})
	if !strings.Contains(failures, "left a transaction open") || !strings.Contains(failures, "the forgotten one") {
		t.Errorf("reported: %q", failures)
	}
	if databaseExists(t, name) {
		t.Errorf("%s was not dropped", name)
	}
	runtime.KeepAlive(conn) // a collected connection is a closed one
}

func TestTransactionThatEndsSoonIsNoFailure(t *testing.T) {
	r := &recorder{TB: t}
	done := make(chan error, 1)
	failures := r.run(func(tb testing.TB) {
		d := New(tb)
		conn, err := pgx.Connect(t.Context(), d.URL())
		if err != nil {
			tb.Fatalf("%v", err)
		}
		if _, err := conn.Exec(t.Context(), "BEGIN"); err != nil {
			tb.Fatalf("%v", err)
		}
		go func() {
			_, err := conn.Exec(context.Background(), "SELECT pg_sleep(0.3); COMMIT")
			done <- err
		}()
	})
	if err := <-done; err != nil || failures != "" {
		t.Errorf("err %v, reported %q", err, failures)
	}
}

func TestPoolWhoseConnectionIsKeptFailsTheTest(t *testing.T) {
	r := &recorder{TB: t}
	var kept *pgxpool.Conn
	failures := r.run(func(tb testing.TB) {
		d := New(tb)
		var err error
		if kept, err = d.Pool(tb, func(c *pgxpool.Config) { c.MaxConns = 2 }).Acquire(t.Context()); err != nil {
			tb.Fatalf("%v", err)
		}
		if got := kept.Conn().Config().Database; got != d.Name() {
			tb.Errorf("pool of %s", got)
		}
	})
	if !strings.HasPrefix(failures, "pgtest: 1 connections were taken") {
		t.Errorf("reported: %q", failures)
	}
	kept.Release()
}

func TestServerLogIsOfThisDatabase(t *testing.T) {
	d, other := New(t), New(t)
	for _, each := range []*DB{d, other} {
		_, err := each.Conn(t).Exec(t.Context(), fmt.Sprintf("SELECT '%s',\n\tno_such_column", each.Name()))
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) {
			t.Fatal(err)
		}
	}
	log := d.ServerLog(t)
	if !strings.Contains(log, `ERROR:  column "no_such_column" does not exist`) || !strings.Contains(log, "\t\tno_such_column") {
		t.Errorf("log: %s", log)
	}
	if strings.Contains(log, other.Name()) {
		t.Errorf("another database's lines: %s", log)
	}
}

func TestHashFollowsNamesAndContents(t *testing.T) {
	hash := func(files map[string]string) string {
		fsys := fstest.MapFS{}
		for name, text := range files {
			fsys[name] = &fstest.MapFile{Data: []byte(text)}
		}
		sum, err := schema{files: fsys}.Hash()
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	seen := map[string]bool{}
	for _, files := range []map[string]string{
		{"1.sql": "a", "2.sql": "b"}, {"1.sql": "ab"}, {"1.sql": "a", "3.sql": "b"}, {"1.sql": "b", "2.sql": "a"}, {},
	} {
		sum := hash(files)
		if seen[sum] {
			t.Errorf("%v has the hash of another set", files)
		}
		seen[sum] = true
		if again := hash(files); again != sum {
			t.Errorf("%v has two hashes", files)
		}
	}
}

func TestFailedMigrationFailsTheTest(t *testing.T) {
	broken := schema{
		files:   fstest.MapFS{"1.sql": {Data: []byte("no SQL")}},
		migrate: func(context.Context, string) error { return errors.New("line 1 is no SQL") },
	}
	r := &recorder{TB: t}
	if got := r.run(func(t testing.TB) { newDB(t, broken, nil) }); !strings.Contains(got, "line 1 is no SQL") {
		t.Errorf("reported: %q", got)
	}
}

func TestParallelTests(t *testing.T) {
	New(t) // the template
	begun := time.Now()
	t.Run("group", func(t *testing.T) {
		for i := range 12 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				d := New(t)
				pool := d.Pool(t)
				if _, err := pool.Exec(t.Context(), `CREATE TABLE mine AS SELECT $1::int AS id`, i); err != nil {
					t.Fatal(err)
				}
				if got := scan[int](t, pool, `SELECT id FROM mine`); got != i {
					t.Errorf("got %d, want %d", got, i)
				}
			})
		}
	})
	t.Logf("12 databases made, used and dropped in %v", time.Since(begun))
}

func BenchmarkNew(b *testing.B) {
	New(b)
	for b.Loop() {
		New(b)
	}
}
