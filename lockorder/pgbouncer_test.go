package lockorder_test

import (
	"context"
	"errors"
	"os"
	osexec "os/exec"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// poolerVariable, set to "pgbouncer", makes the package's tests open their databases through PgBouncer. Connections that
// only look on, or hold a lock against what is tested, stay direct.
const poolerVariable = "LOCKORDER_TEST_POOLER"

func throughPooler() bool { return os.Getenv(poolerVariable) == "pgbouncer" }

// urlOf is where the tests open a database.
func urlOf(t testing.TB, d *pgtest.DB) string {
	t.Helper()
	if throughPooler() {
		return d.PoolerURL(t)
	}
	return d.URL()
}

// TestSuiteThroughPgBouncer runs the tests of this package again, in a process of its own, through PgBouncer in
// transaction mode. It runs beside no other test, since many of them measure time.
func TestSuiteThroughPgBouncer(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	suite := osexec.Command(self, "-test.skip=^(TestSuite|TestMutants$)", "-test.timeout=10m", "-test.v")
	suite.Env = append(os.Environ(), poolerVariable+"=pgbouncer")
	out, err := suite.CombinedOutput()
	if err != nil {
		t.Fatalf("through PgBouncer: %v\n%s", err, out)
	}
	if n := strings.Count(string(out), "\n--- PASS: "); n < 20 {
		t.Errorf("only %d tests ran through PgBouncer:\n%s", n, out)
	}
}

// TestPooledMovesBetweenBackends runs transactions through PgBouncer, one connection of which serves every
// transaction from whatever backend is free.
func TestPooledMovesBetweenBackends(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	rows := pools(t, d.Conn(t), 3)
	key := subscriptions(1)[0]
	names := func(db *lockorder.DB) error {
		return db.Run(t.Context(), materializing(key), func(ctx context.Context, tx *lockorder.Tx) error {
			if err := tx.Lock(ctx, rows...); err != nil {
				return err
			}
			var n int
			return tx.QueryRow(ctx, "SELECT count(*) FROM core.pools WHERE id = any($1) AND name <> $2", idsOf(rows), "").Scan(&n)
		})
	}
	holding := func(db *lockorder.DB, during func()) uint32 {
		var pid uint32
		run(t, db, plain(), func(_ context.Context, tx *lockorder.Tx) error {
			pid = tx.PID()
			during()
			return nil
		})
		return pid
	}
	through := func(pooled bool) (*lockorder.DB, error) {
		db, err := lockorder.Open(t.Context(), d.PoolerURL(t), lockorder.Options{MaxConns: 1, Pooled: pooled})
		if err == nil {
			t.Cleanup(db.Close)
		}
		return db, err
	}

	a, errA := through(true)
	b, errB := through(true)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	if err := names(a); err != nil {
		t.Fatal(err)
	}
	first := holding(a, func() {})
	busy := holding(b, func() { // a's transactions have another backend while b holds this one
		for range 3 {
			if err := names(a); err != nil {
				t.Errorf("on another backend: %v", err)
			}
		}
		if pid := holding(a, func() {}); pid == first {
			t.Errorf("the transactions stayed on the backend %d: nothing moved", pid)
		}
	})
	if busy != first {
		t.Errorf("the other connection had the backend %d, not the %d that was free", busy, first)
	}
	if err := names(a); err != nil {
		t.Error(err)
	}

	// The control: the second connection finds the first one's statement under the name that it wants itself.
	_, errA = through(false)
	_, errB = through(false)
	if state := lockorder.SQLState(errB); errA != nil || state != "42P05" {
		t.Errorf("the control is wrong: with prepared statements, the one connection: %v, the other: %v", errA, errB)
	}
}

// idsOf are the UUIDs of rows.
func idsOf(rows []lockorder.Lock) []uuid.UUID {
	ids := make([]uuid.UUID, len(rows))
	for i, row := range rows {
		ids[i] = uuid.MustParse(identity(row))
	}
	return ids
}

// TestPooledConnections looks at how connections for a pooler are configured.
func TestPooledConnections(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	after := 0
	db, err := lockorder.Open(t.Context(), d.URL()+"&application_name=here", lockorder.Options{MaxConns: 1, Pooled: true, Configure: func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
		c.AfterConnect = func(context.Context, *pgx.Conn) error { after++; return nil }
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	id := uuid.New()
	run(t, db, plain(), func(ctx context.Context, tx *lockorder.Tx) error {
		var got, none uuid.UUID
		var many []uuid.UUID
		var absent *uuid.UUID
		if err := tx.QueryRow(ctx, "SELECT $1::uuid, ($2::uuid[])[1], $2::uuid[], $3::uuid", id, []uuid.UUID{none, id}, absent).Scan(&got, &none, &many, &absent); err != nil {
			return err
		}
		if got != id || none != uuid.Nil || len(many) != 2 || many[1] != id || absent != nil {
			t.Errorf("UUIDs came back as %s, %s, %s, %v", got, none, many, absent)
		}
		var prepared int
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM pg_prepared_statements").Scan(&prepared); err != nil || prepared != 0 {
			t.Errorf("%d statements are prepared (%v)", prepared, err)
		}
		return nil
	})
	if after != 1 {
		t.Errorf("the configured AfterConnect ran %d times", after)
	}
	_, err = lockorder.Open(t.Context(), d.URL()+"&search_path=core", lockorder.Options{Pooled: true})
	wantText(t, err, "search_path", "pooler")
}
