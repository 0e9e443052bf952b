package pgtest

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/bursarhq/bursar/internal/devstack"
)

func TestExternalServer(t *testing.T) {
	own, err := devstack.StartPostgres(t.Context(), devstack.PostgresOptions{Settings: map[string]string{"fsync": "off"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	conn, err := pgx.Connect(t.Context(), own.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), `CREATE ROLE plain LOGIN; CREATE ROLE "odd @/:user" LOGIN SUPERUSER`); err != nil {
		t.Fatal(err)
	}
	as := func(user *url.Userinfo) string {
		u, err := url.Parse(own.URL(""))
		if err != nil {
			t.Fatal(err)
		}
		u.User = user
		return u.String()
	}

	toStop := started.Load()
	external, err := openExternal(t.Context(), as(url.UserPassword("odd @/:user", "odd @/: password")))
	if err != nil {
		t.Fatal(err)
	}
	if config := external.templateConfig(); config.URL() != external.admin.String() {
		t.Errorf("pgtestdb would connect to %s", config.URL())
	}
	for text, want := range map[string]string{
		"host=127.0.0.1 user=me password=hidden": "must be a URL",
		"postgres://127.0.0.1/x?password=hidden": "must be a URL",
		"postgres://me:hid%zzden@127.0.0.1/x":    "must be a URL",
		as(url.User("plain")):                    "no superuser",
		"postgres://me:hidden@127.0.0.1:1/x":     "the server of DATABASE_URL",
	} {
		_, err := openExternal(t.Context(), text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "hid%zzden") {
			t.Errorf("%s: %v", text, err)
		}
	}

	if started.Load() != toStop {
		t.Error("Main would stop another server than the one that it started")
	}

	// A whole test process on that server, in which a database gets the settings that the server lacks.
	if os.Getenv(envURL) != "" {
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^(TestNewHasTheSchema.*|TestDroppedAtTheEnd.*|TestSetting)$", "-test.v")
	cmd.Env = append(os.Environ(), envURL+"="+own.URL(""))
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "--- PASS") != 3 {
		t.Errorf("tests on an external server: %v\n%s", err, out)
	}
	if n := scan[int](t, conn, `SELECT count(*)::int FROM pg_database WHERE datname LIKE '%\_inst\_%'`); n != 0 {
		t.Errorf("%d databases were left on the external server", n)
	}
	if n := scan[int](t, conn, `SELECT count(*)::int FROM pg_database WHERE datistemplate AND datname LIKE 'testdb%'`); n != 1 {
		t.Errorf("%d templates on the external server, want the one of the schema", n)
	}
}

func TestMainStopsItsServerAndLeavesNothing(t *testing.T) {
	// A folder that the user whom the server runs as can reach, which t.TempDir is not.
	dir, err := os.MkdirTemp("", "pgtest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// One run that passes, and one of a test that fails.
	for name, want := range map[string]int{"TestNewHasTheSchemaAndEachTestItsOwn": 0, "TestThatFailsWhenAsked": 1} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+name+"$", "-test.v")
		cmd.Env = append(os.Environ(), "TMPDIR="+dir, envURL+"=", envFail+"=1")
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != want || !strings.Contains(string(out), name) {
			t.Errorf("%s exits %d, want %d (%v)\n%s", name, code, want, err, out)
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) > 0 {
			t.Errorf("%s left %v (%v)", name, left, err)
		}
	}
}

// envFail makes TestThatFailsWhenAsked fail.
const envFail = "PGTEST_FAIL"

func TestThatFailsWhenAsked(t *testing.T) {
	d := New(t)
	if os.Getenv(envFail) != "" {
		t.Error("asked to fail")
	}
	if d.Name() == "" {
		t.Error("a database without a name")
	}
}

func TestWithoutMain(t *testing.T) {
	mainCalled.Store(false)
	defer mainCalled.Store(true)
	r := &recorder{TB: t}
	if got := r.run(func(t testing.TB) { New(t) }); !strings.Contains(got, "func TestMain") {
		t.Errorf("reported: %q", got)
	}
}
