package devstack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func startPostgresForTest(t *testing.T, options PostgresOptions) *Postgres {
	t.Helper()
	pg, err := StartPostgres(testContext(t), options)
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

func queryText(t *testing.T, url, query string) string {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	var text string
	if err := conn.QueryRow(ctx, query).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

func TestPostgresStartsAnswersAndLeavesNothing(t *testing.T) {
	var mu sync.Mutex
	var told []string
	pg := startPostgresForTest(t, PostgresOptions{
		Settings: map[string]string{"fsync": "off", "deadlock_timeout": "234ms", "log_lock_waits": "on", "application_name": `it's a \ test`},
		Progress: func(line string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, line)
		},
	})
	ctx := testContext(t)
	if err := pg.CreateDatabase(ctx, "mine and yours"); err != nil {
		t.Fatal(err)
	}
	if err := pg.CreateDatabase(ctx, "mine and yours"); err == nil {
		t.Error("a database was made twice without an error")
	}
	for query, want := range map[string]string{
		"SELECT 1::text":                  "1",
		"SELECT current_user::text":       PostgresUser,
		"SELECT current_database()":       "mine and yours",
		"SHOW deadlock_timeout":           "234ms",
		"SHOW log_lock_waits":             "on",
		"SHOW fsync":                      "off",
		"SHOW max_connections":            "200",
		"SHOW listen_addresses":           "127.0.0.1",
		"SHOW timezone":                   "UTC",
		"SHOW server_encoding":            "UTF8",
		"SHOW application_name":           `it's a \ test`,
		"SELECT host(inet_server_addr())": "127.0.0.1",
		"SHOW unix_socket_directories":    "",
	} {
		if got := queryText(t, pg.URL("mine and yours"), query); got != want {
			t.Errorf("%s = %q, want %q", query, got, want)
		}
	}
	// What a start sets can be changed while it runs.
	conn, err := pgx.Connect(ctx, pg.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(ctx, "ALTER SYSTEM SET deadlock_timeout = '345ms'"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, "SELECT pg_reload_conf()"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "ALTER SYSTEM takes effect", func() bool {
		return queryText(t, pg.URL(""), "SHOW deadlock_timeout") == "345ms"
	})
	// The log can be read while it runs.
	if _, err := conn.Exec(ctx, "DO $$ BEGIN RAISE LOG 'a word for the log'; END $$"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the log has the line", func() bool {
		log, err := os.ReadFile(pg.LogPath())
		return err == nil && strings.Contains(string(log), "bursar@postgres LOG:  a word for the log")
	})
	assertOwnGroup(t, pg.PID())
	if os.Geteuid() == 0 {
		info, err := os.Stat("/proc/" + strconv.Itoa(pg.PID()))
		if err == nil && info.Sys().(*syscall.Stat_t).Uid == 0 {
			t.Error("the server runs as root")
		}
	}
	if pids := processesIn(t, pg.Folder()); len(pids) < 2 {
		t.Errorf("processes in the folder: %v; the check for left-over ones would see nothing", pids)
	}

	// A connection is open: a fast shutdown does not wait for it.
	begun := time.Now()
	if err := pg.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 9*time.Second {
		t.Errorf("the stop took %v", took)
	}
	assertGone(t, pg.PID(), pg.Folder())
	if err := pg.Stop(ctx); err != nil {
		t.Errorf("second stop: %v", err)
	}
	select {
	case <-pg.Done():
	default:
		t.Error("Done is open after the stop")
	}
	mu.Lock()
	defer mu.Unlock()
	if text := strings.Join(told, "\n"); !strings.Contains(text, "creating a database cluster") || !strings.Contains(text, "starting PostgreSQL") {
		t.Errorf("progress: %q", told)
	}
}

func TestPostgresStopsWithoutPatience(t *testing.T) {
	pg := startPostgresForTest(t, PostgresOptions{Settings: quick})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := pg.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	assertGone(t, pg.PID(), pg.Folder())
}

func TestPostgresDoneWhenItDies(t *testing.T) {
	pg := startPostgresForTest(t, PostgresOptions{Settings: quick})
	if err := syscall.Kill(pg.PID(), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-pg.Done():
	case <-time.After(15 * time.Second):
		t.Fatal("Done stays open although the server has ended")
	}
	if err := pg.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	assertGone(t, pg.PID(), pg.Folder())
}

func TestTwoPostgresAtOnce(t *testing.T) {
	const n = 3
	var servers [n]*Postgres
	var errs [n]error
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { servers[i], errs[i] = StartPostgres(testContext(t), PostgresOptions{Settings: quick}) })
	}
	group.Wait()
	seen := map[string]bool{}
	for i, pg := range servers {
		if errs[i] != nil {
			t.Error(errs[i])
			continue
		}
		data := queryText(t, pg.URL(""), "SHOW data_directory")
		if seen[data] || filepath.Dir(data) != pg.Folder() {
			t.Errorf("server %d answers from %s, its folder is %s", i, data, pg.Folder())
		}
		seen[data] = true
		if err := pg.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		assertGone(t, pg.PID(), pg.Folder())
	}
}

func TestPostgresStartFailsWithItsLogAndLeavesNothing(t *testing.T) {
	base := openTempDir(t)
	t.Setenv("TMPDIR", base)
	_, err := StartPostgres(testContext(t), PostgresOptions{Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil {
		t.Fatal("a server with an unknown setting started")
	}
	if !strings.Contains(err.Error(), `unrecognized configuration parameter "no_such_setting"`) {
		t.Errorf("the error has not the server's own words: %v", err)
	}
	if entries, err := os.ReadDir(base); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v (%v)", entries, err)
	}
}

func TestPostgresRefusesSettings(t *testing.T) {
	for name, value := range map[string]string{
		"port": "5432", "Listen_Addresses": "*", "data_directory": "/", "a b": "1", "": "1", "work_mem": "1\nfsync=off",
	} {
		if _, err := StartPostgres(t.Context(), PostgresOptions{Settings: map[string]string{name: value}}); err == nil {
			t.Errorf("setting %q=%q was accepted", name, value)
		}
	}
}

func TestPostgresStartIsCancelled(t *testing.T) {
	base := openTempDir(t)
	t.Setenv("TMPDIR", base)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	_, err := StartPostgres(ctx, PostgresOptions{Progress: func(line string) {
		if strings.HasPrefix(line, "creating a database cluster") {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want context.Canceled", err)
	}
	if entries, err := os.ReadDir(base); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v (%v)", entries, err)
	}
}

func TestPostgresOfKilledOwnerEndsAndIsSweptAway(t *testing.T) {
	base := openTempDir(t)
	t.Setenv("TMPDIR", base)
	owner, owned := startOwner(t, "postgres")
	if !processAlive(owned.PID) || len(processesIn(t, owned.Folder)) == 0 {
		t.Fatalf("no server to watch: %+v", owned)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait()
	eventually(t, 10*time.Second, "all processes of the killed owner's server are gone", func() bool {
		return !processAlive(owned.PID) && len(processesIn(t, owned.Folder)) == 0
	})
	if _, err := os.Stat(owned.Folder); err != nil {
		t.Fatalf("the folder should have stayed for the sweep to find: %v", err)
	}

	pg := startPostgresForTest(t, PostgresOptions{Settings: quick})
	if _, err := os.Stat(owned.Folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the next start did not sweep %s (%v)", owned.Folder, err)
	}
	// A live owner's folder is not swept.
	sweep(base)
	if got := queryText(t, pg.URL(""), "SELECT 'still here'"); got != "still here" {
		t.Error(got)
	}
	if _, err := os.Stat(filepath.Join(pg.Folder(), ownerLock)); err != nil {
		t.Errorf("a live server's folder was swept: %v", err)
	}
}
