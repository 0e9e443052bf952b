package db_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	osexec "os/exec"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bursarhq/bursar/db"
	"github.com/bursarhq/bursar/internal/pgtest"
)

// The environment of a child: which migrations it applies, and where.
const (
	childMode = "DB_TEST_CHILD"
	childURL  = "DB_TEST_URL"
)

// slowFiles are a migration that is quick and one that takes longer than any test.
var slowFiles = fstest.MapFS{
	"00001_a.sql": migration("CREATE TABLE first (n int);"),
	"00002_b.sql": migration("CREATE TABLE second (n int);\nSELECT pg_sleep(600);"),
}

// child is this test binary as a process that migrates. It prints a line for each migration that it applied.
func child(mode string) {
	var applied []db.Applied
	var err error
	switch mode {
	case "project":
		applied, err = db.Migrate(context.Background(), os.Getenv(childURL))
	case "slow":
		applied, err = db.MigrateFiles(context.Background(), os.Getenv(childURL), slowFiles, time.Minute, time.Second, 1)
	}
	for _, name := range names(applied) {
		fmt.Println(name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// startChild starts such a process. It is killed when the test ends, if it still runs.
func startChild(t *testing.T, mode, url string) (process *osexec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	process = osexec.Command(self)
	process.Env = append(os.Environ(), childMode+"="+mode, childURL+"="+url)
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	process.Stdout, process.Stderr = stdout, stderr
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if process.ProcessState == nil {
			_ = process.Process.Kill()
			_ = process.Wait()
		}
	})
	return process, stdout, stderr
}

// until polls until the condition holds, or fails the test.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited twenty seconds until %s", what)
		}
	}
}

func answers(t *testing.T, conn *pgx.Conn, sql string, args ...any) (yes bool) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&yes); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return yes
}

// TestProcessesMigrateAtOnce has three processes migrate one database: what one applies, no other does.
func TestProcessesMigrateAtOnce(t *testing.T) {
	t.Parallel()
	d := pgtest.NewEmpty(t)
	holder := d.Conn(t)
	exec(t, holder, "SELECT pg_advisory_lock($1)", migrationKey) // so that all of them meet at the lock
	const n = 3
	var processes [n]*osexec.Cmd
	var stdout, stderr [n]*bytes.Buffer
	for i := range n {
		processes[i], stdout[i], stderr[i] = startChild(t, "project", d.URL())
	}
	until(t, "all try the lock", func() bool {
		return answers(t, holder, `SELECT count(DISTINCT pid) = $1 FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE '%pg_try_advisory_lock%' AND pid <> pg_backend_pid()`, n)
	})
	exec(t, holder, "SELECT pg_advisory_unlock($1)", migrationKey)
	var applied []string
	for i := range n {
		if err := processes[i].Wait(); err != nil {
			t.Errorf("process %d: %v\n%s", i, err, stderr[i])
		}
		applied = append(applied, strings.Fields(stdout[i].String())...)
	}
	want, err := fs.Glob(db.FS(), "*.sql")
	if err != nil || fmt.Sprint(applied) != fmt.Sprint(want) {
		t.Errorf("together they applied %v, want each of %v once (%v)", applied, want, err)
	}
	if n := locksLeft(t, holder); n != 0 {
		t.Errorf("%d advisory locks remain", n)
	}
}

// TestKilledWhileItMigrates kills a process whose statement still runs on the server: its lock and its transaction go
// soon, and the next one applies what is missing.
func TestKilledWhileItMigrates(t *testing.T) {
	t.Parallel()
	d := pgtest.NewEmpty(t)
	look := d.Conn(t)
	process, _, stderr := startChild(t, "slow", d.URL())
	until(t, "the second migration runs", func() bool {
		return answers(t, look, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep')`)
	})
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	if err := process.Wait(); err == nil {
		t.Fatalf("the process was not killed: %s", stderr)
	}
	files := fstest.MapFS{"00001_a.sql": slowFiles["00001_a.sql"], "00002_b.sql": migration("CREATE TABLE second (n int);")}
	applied, err := db.MigrateFiles(t.Context(), d.URL(), files, 10*time.Second, time.Second, 3)
	if err != nil || fmt.Sprint(names(applied)) != "[00002_b.sql]" {
		t.Errorf("the next process applied %v (%v)", names(applied), err)
	}
	// A second until the server looks for its client, and as much until the next process tries again.
	if took := time.Since(killed); took > 5*time.Second {
		t.Errorf("the next process was through after %s", took)
	}
	if n := locksLeft(t, look); n != 0 {
		t.Errorf("%d advisory locks remain", n)
	}
}

// TestOthersPassAMigration has a long reader keep a migration from its table. Whoever comes after the migration waits no
// longer than one attempt of it.
func TestOthersPassAMigration(t *testing.T) {
	t.Parallel()
	d := pgtest.NewEmpty(t)
	reader, other, look := d.Conn(t), d.Conn(t), d.Conn(t)
	exec(t, reader, "CREATE TABLE used (n int)")
	exec(t, reader, "BEGIN")
	exec(t, reader, "SELECT FROM used")
	const ddlWait = 400 * time.Millisecond
	files := fstest.MapFS{"00001_a.sql": migration("ALTER TABLE used ADD COLUMN m int;")}
	type result struct {
		applied []db.Applied
		err     error
	}
	done := make(chan result, 1)
	go func() {
		applied, err := db.MigrateFiles(context.Background(), d.URL(), files, time.Second, ddlWait, 100)
		done <- result{applied, err}
	}()
	const waiting = `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'relation' AND relation = 'used'::regclass AND NOT granted AND mode = 'AccessExclusiveLock')`
	delayed := 0
	for range 3 {
		until(t, "the migration waits", func() bool { return answers(t, look, waiting) })
		began := time.Now()
		exec(t, other, "SELECT FROM used")
		took := time.Since(began)
		if took > ddlWait+time.Second {
			t.Errorf("a read that came behind the migration took %s", took)
		}
		if took > ddlWait/20 {
			delayed++
		}
		until(t, "the migration has given up for now", func() bool { return !answers(t, look, waiting) })
	}
	if delayed == 0 {
		t.Error("no read stood behind the migration: the test shows nothing")
	}
	select {
	case r := <-done:
		t.Fatalf("it ended while the table was in use: %v, %v", names(r.applied), r.err)
	default:
	}
	exec(t, reader, "COMMIT")
	if r := <-done; r.err != nil || len(r.applied) != 1 {
		t.Errorf("applied %v (%v)", names(r.applied), r.err)
	}
}
