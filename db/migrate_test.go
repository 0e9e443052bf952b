package db_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bursarhq/bursar/db"
	"github.com/bursarhq/bursar/internal/locktest"
	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(childMode); mode != "" {
		child(mode) // this binary runs again as a process that migrates
	}
	locktest.Main(m)
}

func wantText(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
}

func exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func names(applied []db.Applied) []string {
	names := []string{}
	for _, a := range applied {
		names = append(names, a.Name)
	}
	return names
}

// migrationKey is the advisory key of the migration lock.
var migrationKey = lockorder.MigrationKey("bursar").Key()

// locksLeft counts the advisory locks on this database.
func locksLeft(t *testing.T, conn *pgx.Conn) (n int) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestMigrateTwice(t *testing.T) {
	t.Parallel()
	d := pgtest.NewEmpty(t)
	files, err := fs.Glob(db.FS(), "*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	applied, err := db.Migrate(t.Context(), d.URL())
	if err != nil || fmt.Sprint(names(applied)) != fmt.Sprint(files) {
		t.Fatalf("applied %v, want %v (%v)", names(applied), files, err)
	}
	for _, a := range applied {
		if a.Took <= 0 {
			t.Errorf("%s took %s", a.Name, a.Took)
		}
	}
	if applied, err = db.Migrate(t.Context(), d.URL()); err != nil || len(applied) != 0 {
		t.Errorf("the second time, applied %v (%v)", names(applied), err)
	}
	if n := locksLeft(t, d.Conn(t)); n != 0 {
		t.Errorf("%d advisory locks remain", n)
	}
	if _, err := db.Migrate(t.Context(), "postgres://u:geheim@[::1"); err == nil || strings.Contains(err.Error(), "geheim") {
		t.Errorf("a bad URL: %v", err)
	}
}

func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	d := pgtest.NewEmpty(t)
	type result struct {
		applied []db.Applied
		err     error
	}
	const processes = 4
	results := make(chan result, processes)
	for range processes {
		go func() {
			applied, err := db.Migrate(context.Background(), d.URL())
			results <- result{applied, err}
		}()
	}
	all := 0
	for range processes {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
		}
		all += len(r.applied)
	}
	files, _ := fs.Glob(db.FS(), "*.sql")
	if all != len(files) {
		t.Errorf("%d migrations were applied, want each of %d once", all, len(files))
	}
}

func TestMigrationLockIsHeld(t *testing.T) {
	t.Parallel()
	d := pgtest.NewEmpty(t)
	holder := d.Conn(t)
	exec(t, holder, "SELECT pg_advisory_lock($1)", migrationKey)
	_, err := db.MigrateFiles(t.Context(), d.URL(), db.FS(), 300*time.Millisecond, time.Second, 1)
	wantText(t, err, fmt.Sprint(migrationKey), "bursar:migration:bursar", "for 0.", "seconds", fmt.Sprintf("process %d", holder.PgConn().PID()))

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := db.Migrate(ctx, d.URL()); err == nil || time.Since(began) > 5*time.Second {
		t.Errorf("cancelled while it waits: %v after %s", err, time.Since(began))
	}

	done := make(chan error, 1)
	go func() {
		_, err := db.Migrate(context.Background(), d.URL())
		done <- err
	}()
	exec(t, holder, "SELECT pg_advisory_unlock($1)", migrationKey)
	if err := <-done; err != nil {
		t.Errorf("after the lock was free: %v", err)
	}
}

// migration is a file that runs some SQL.
func migration(sql string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte("-- +goose Up\n" + sql + "\n")}
}

// TestTableInUse migrates a table that another transaction uses.
func TestTableInUse(t *testing.T) {
	t.Parallel()
	d := pgtest.NewEmpty(t)
	user, look := d.Conn(t), d.Conn(t)
	exec(t, user, "CREATE TABLE used (n int)")
	files := fstest.MapFS{"00001_a.sql": migration("CREATE TABLE first (n int);"), "00002_b.sql": migration("ALTER TABLE used ADD COLUMN m int;")}

	exec(t, user, "BEGIN")
	exec(t, user, "SELECT FROM used")
	applied, err := db.MigrateFiles(t.Context(), d.URL(), files, time.Second, 50*time.Millisecond, 2)
	wantText(t, err, "stayed in use through 2 attempts of 50ms", "55P03", "00002_b.sql",
		fmt.Sprintf("process %d (user bursar_test", user.PgConn().PID()), "idle in transaction", "SELECT FROM used")
	if fmt.Sprint(names(applied)) != "[00001_a.sql]" {
		t.Errorf("applied %v before the error", names(applied))
	}
	if n := locksLeft(t, look); n != 0 {
		t.Errorf("%d advisory locks remain", n)
	}

	done := make(chan error, 1)
	go func() {
		applied, err := db.MigrateFiles(context.Background(), d.URL(), files, time.Second, 50*time.Millisecond, 100)
		if err == nil && fmt.Sprint(names(applied)) != "[00002_b.sql]" {
			err = fmt.Errorf("applied %v", names(applied))
		}
		done <- err
	}()
	deadline := time.Now().Add(20 * time.Second)
	for blocked := false; !blocked; {
		if time.Now().After(deadline) {
			t.Fatal("the migration does not wait for the table")
		}
		if err := look.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&blocked); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, user, "COMMIT")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestFailingMigration stops at a migration that cannot be applied, and says which it is.
func TestFailingMigration(t *testing.T) {
	t.Parallel()
	d := pgtest.NewEmpty(t)
	look := d.Conn(t)
	files := fstest.MapFS{"00001_a.sql": migration("CREATE TABLE first (n int);"), "00002_b.sql": migration("SELECT 1/0;")}
	applied, err := db.MigrateFiles(t.Context(), d.URL(), files, time.Second, time.Second, 3)
	wantText(t, err, "00002_b.sql", "division by zero")
	if len(applied) != 1 || locksLeft(t, look) != 0 {
		t.Errorf("applied %v; %d locks remain", names(applied), locksLeft(t, look))
	}

	// A migration that loses the session's lock is found out when it is released.
	unlock := fstest.MapFS{"00003_c.sql": migration("SELECT pg_advisory_unlock_all();")}
	for name, file := range files {
		unlock[name] = file
	}
	unlock["00002_b.sql"] = migration("SELECT 1;")
	_, err = db.MigrateFiles(t.Context(), d.URL(), unlock, time.Second, time.Second, 3)
	wantText(t, err, "no longer held", fmt.Sprint(migrationKey))
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change string
		says   []string
	}{
		"good":                {"SELECT 1", nil},
		"a newer schema":      {"INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)", nil},
		"another derivation":  {"UPDATE core.deployment SET lock_derivation = 'hashtext'", []string{`"hashtext"`, `"sha256-v1"`, "do not exclude"}},
		"an older schema":     {"DELETE FROM goose_db_version WHERE version_id > 1", []string{"at version 1", "run bursar migrate"}},
		"no record of schema": {"DROP TABLE goose_db_version", []string{"schema's version"}},
	} {
		d := pgtest.New(t)
		conn := d.Conn(t)
		exec(t, conn, test.change)
		err := db.Check(t.Context(), conn)
		if test.says == nil && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		wantText(t, err, test.says...)
	}
	wantText(t, db.Check(t.Context(), pgtest.NewEmpty(t).Conn(t)), "no schema yet", "run bursar migrate")
	gone := pgtest.NewEmpty(t).Conn(t)
	_ = gone.Close(t.Context())
	wantText(t, db.Check(t.Context(), gone), "reading core.deployment")
}
