package lockorder_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/bursarhq/bursar/internal/locktest"
	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(childMode); mode != "" {
		child(mode) // this binary runs again as a client that is stopped or killed
	}
	locktest.Main(m)
}

// open opens the test's database through lockorder.
func open(t testing.TB, d *pgtest.DB, change ...func(*lockorder.Options)) *lockorder.DB {
	t.Helper()
	opts := lockorder.Options{NowSQL: "SELECT core.clock()", Pooled: throughPooler()}
	for _, c := range change {
		c(&opts)
	}
	if opts.MaxConns == 0 && onPoolOfOne() {
		opts.MaxConns = 1
	}
	if _, timed := t.(*testing.B); !timed { // what is measured goes unseen
		locktest.Watch(&opts)
	}
	db, err := lockorder.Open(t.Context(), urlOf(t, d), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// oneConn keeps every transaction on one connection.
func oneConn(o *lockorder.Options) { o.MaxConns = 1 }

// twoConns is for a test that has two transactions open at once.
func twoConns(o *lockorder.Options) { o.MaxConns = 2 }

func plain(keys ...lockorder.Lock) lockorder.Spec {
	return lockorder.Spec{Path: "test", Kind: lockorder.Plain, Keys: keys}
}

func materializing(keys ...lockorder.Lock) lockorder.Spec {
	return lockorder.Spec{Path: "test", Kind: lockorder.Materializing, Keys: keys}
}

func ruleChange(keys ...lockorder.Lock) lockorder.Spec {
	return lockorder.Spec{Path: "test", Kind: lockorder.RuleChange, Keys: keys}
}

// run runs a transaction that must succeed.
func run(t testing.TB, db *lockorder.DB, spec lockorder.Spec, fn func(ctx context.Context, tx *lockorder.Tx) error) {
	t.Helper()
	if err := db.Run(t.Context(), spec, fn); err != nil {
		t.Fatal(err)
	}
}

func nothing(context.Context, *lockorder.Tx) error { return nil }

// start runs fn on a goroutine and returns where its error will arrive.
func start(fn func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	return done
}

// receive waits for a value, or fails the test when there is none within ten seconds.
func receive[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(10 * time.Second):
		t.Fatalf("waited ten seconds for %s", what)
	}
	panic("unreachable")
}

// until polls until the condition holds, or fails the test after ten seconds.
func until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited ten seconds until %s", what)
		}
	}
}

func exec(t testing.TB, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func query[T any](t testing.TB, conn *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := conn.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// lockState tells how the other backends of this database stand to an advisory key: "granted", "waiting" or ""; of one
// backend or, with 0, of any.
func lockState(t testing.TB, conn *pgx.Conn, pid uint32, l lockorder.Lock) string {
	t.Helper()
	return query[string](t, conn, `
		SELECT coalesce(min(CASE WHEN granted THEN 'granted' ELSE 'waiting' END), '')
		FROM pg_locks JOIN pg_database d ON d.oid = database AND d.datname = current_database()
		WHERE locktype = 'advisory' AND objsubid = 1 AND (classid::bigint << 32 | objid::bigint) = $1
		  AND ($2 = 0 OR pid = $2) AND pid <> pg_backend_pid()`, l.Key(), int64(pid))
}

// waits tells whether a backend waits for a lock of any kind.
func waits(t testing.TB, conn *pgx.Conn, pid uint32) bool {
	t.Helper()
	return query[bool](t, conn, `SELECT coalesce((SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $1), false)`, int64(pid))
}

// anyWaits tells whether any backend of this database waits for a lock.
func anyWaits(t testing.TB, conn *pgx.Conn) bool {
	t.Helper()
	return query[bool](t, conn, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
}

// rendezvous is the lock of the rendezvous, to look for in pg_locks.
func rendezvous() lockorder.Lock { return lockorder.New(lockorder.Materialization) }

// subscriptions returns n subscription keys in the order in which transactions take them.
func subscriptions(n int) []lockorder.Lock {
	keys := make([]lockorder.Lock, n)
	for i := range keys {
		keys[i] = lockorder.SubscriptionKey(fmt.Sprintf("sub_%03d", i))
	}
	sortLocks(keys)
	return keys
}

// pools inserts an organisation with n pools and returns their locks, in order.
func pools(t testing.TB, conn *pgx.Conn, n int) []lockorder.Lock {
	t.Helper()
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = uuid.New()
	}
	slug := "o-" + uuid.NewString()
	ctx := context.Background()
	batch := &pgx.Batch{}
	batch.Queue(`INSERT INTO core.organization_types (slug, name) VALUES ($1, 'type')`, slug)
	batch.Queue(`INSERT INTO core.organizations (slug, name, type_id) SELECT slug, 'organisation', id FROM core.organization_types WHERE slug = $1`, slug)
	batch.Queue(`INSERT INTO core.pools (id, organization_id, name, is_default)
		SELECT p.id, o.id, 'pool ' || p.n, p.n = 1
		FROM core.organizations o, unnest($2::uuid[]) WITH ORDINALITY p(id, n) WHERE o.slug = $1`, slug, ids)
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		t.Fatal(err)
	}
	locks := make([]lockorder.Lock, n)
	for i, id := range ids {
		locks[i] = lockorder.PoolRow(id)
	}
	sortLocks(locks)
	return locks
}

// identity is the one part of a lock's identity.
func identity(l lockorder.Lock) string { return l.Identity()[0] }

// wantVerdict fails the test unless the error has the verdict, and is an *Error.
func wantVerdict(t testing.TB, err error, want lockorder.Verdict) {
	t.Helper()
	var e *lockorder.Error
	if got := lockorder.VerdictOf(err); got != want || !errors.As(err, &e) {
		t.Fatalf("the verdict is %q, want %q; the error is %v", got, want, err)
	}
}

// wantText fails the test unless the error says all of the parts.
func wantText(t testing.TB, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
}

func containsText(err error, text string) bool { return strings.Contains(err.Error(), text) }
