package lockview

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// subscriptions fills the mirror with n rows, sub_1 to sub_n, in no order of their keys.
const subscriptions = `INSERT INTO stripe.subscriptions (id, version, reconciled_at) SELECT 'sub_' || i, 1, now() FROM generate_series(1, $1::int) i`

// TestNamesComeFromIndexes counts what the lookups read: one entry of an index each, and no table from end to end.
func TestNamesComeFromIndexes(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	conn := d.Conn(t)
	exec(t, conn, subscriptions, 20000)
	exec(t, conn, `INSERT INTO core.products (slug, name) SELECT 'p' || i, 'P' FROM generate_series(1, 20000) i`)
	exec(t, conn, `ANALYZE stripe.subscriptions, core.products`)
	var product string
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT id::text FROM core.products WHERE slug = 'p777'`).Scan(&product))
	reads := func() (scans, rows map[string]int64) {
		exec(t, conn, `SELECT pg_stat_force_next_flush()`)
		exec(t, conn, `SELECT pg_stat_clear_snapshot()`)
		scans, rows = map[string]int64{}, map[string]int64{}
		list, err := conn.Query(t.Context(), `SELECT relname::text, seq_scan, 0 FROM pg_stat_user_tables WHERE relname IN ('subscriptions', 'products')
			UNION ALL SELECT indexrelname::text, idx_scan, idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname LIKE '%_by_lock_key'`)
		require.NoError(t, err)
		var name string
		var n, read int64
		_, err = pgx.ForEachRow(list, []any{&name, &n, &read}, func() error { scans[name], rows[name] = n, read; return nil })
		require.NoError(t, err)
		require.Len(t, scans, 4)
		return scans, rows
	}
	scans, rows := reads()
	const times = 10 // more than five: the plan of a function's statement is then the general one
	for range times {
		key := lockorder.SubscriptionKey("sub_777").Key()
		other := lockorder.ProductKey(uuid.MustParse(product)).Key()
		names := identities(t, conn, key, other, 12345)
		require.Equal(t, map[int64]string{key: "subscription {sub_777}", other: "product {" + product + "}"}, names)
	}
	scansAfter, rowsAfter := reads()
	for _, table := range []string{"subscriptions", "products"} {
		require.Equal(t, scans[table], scansAfter[table], "%s was read from end to end", table)
		index := table + "_by_lock_key"
		require.Greater(t, scansAfter[index], scans[index], index)
		require.EqualValues(t, times, rowsAfter[index]-rows[index], "entries read in %s", index)
	}
}

func identities(t *testing.T, conn *pgx.Conn, keys ...int64) map[int64]string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `SELECT key, family || ' ' || parts::text FROM core.lock_identities($1)`, keys)
	require.NoError(t, err)
	names := map[int64]string{}
	var key int64
	var name string
	_, err = pgx.ForEachRow(rows, []any{&key, &name}, func() error { names[key] = name; return nil })
	require.NoError(t, err)
	return names
}

func exec(t testing.TB, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// opened opens a database to look at it.
func opened(t testing.TB, url string) lockorder.Querier {
	t.Helper()
	db, err := lockorder.Open(t.Context(), url, lockorder.Options{MaxConns: 1})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return db.Reader()
}

// as is a connection to hold locks with, under an application's name.
func as(t testing.TB, d *pgtest.DB, application string) *pgx.Conn {
	t.Helper()
	conn := d.Conn(t)
	exec(t, conn, `SELECT set_config('application_name', $1, false)`, application)
	return conn
}

// TestKeysWithoutARow tells what nothing stored names: by the comment of who waits, by the workflow that holds, as Bursar's
// that cannot be named, or as another application's.
func TestKeysWithoutARow(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	q := opened(t, d.URL())
	product := lockorder.ProductKey(uuid.New())
	first := lockorder.SubscriptionKey("sub_first")
	holds := as(t, d, "subscription/sub_first#subscription-reconcile")
	exec(t, holds, `SELECT pg_advisory_lock($1), pg_advisory_lock($2)`, first.Key(), product.Key())
	exec(t, as(t, d, "invoicer"), `SELECT pg_advisory_lock(-5), pg_advisory_lock_shared(-1, 7)`)
	exec(t, as(t, d, "worker#migrate"), `SELECT pg_advisory_lock($1)`, lockorder.MigrationKey("bursar").Key())

	snapshot, err := Look(t.Context(), q)
	require.NoError(t, err)
	require.Empty(t, snapshot.Notes)
	require.Empty(t, snapshot.Chains)
	var texts []string
	for _, s := range snapshot.Sessions {
		for _, l := range s.Holds {
			texts = append(texts, s.Name()+": "+l.String())
		}
	}
	classid, objid := Halves(product.Key())
	require.ElementsMatch(t, []string{
		"subscription/sub_first · subscription-reconcile: subscription sub_first",
		fmt.Sprintf("subscription/sub_first · subscription-reconcile: a key of Bursar's that cannot be named: %d (%d/%d)", product.Key(), classid, objid),
		"another application: invoicer: key -5 (4294967295/4294967291) of another application, exclusive",
		"another application: invoicer: key pair (-1, 7) of another application, shared",
		"worker · migrate: migration bursar",
	}, texts)

	for key, want := range map[int64]Lock{
		first.Key():   {Owner: OwnerBursar, Class: "subscription", Identity: []string{"sub_first"}, Text: "bursar:subscription:sub_first"},
		product.Key(): {Owner: OwnerUnnamed},
		-5:            {Owner: OwnerOther},
		4711:          {},
	} {
		e, err := Explain(t.Context(), q, key)
		require.NoError(t, err)
		require.Equal(t, key, e.Lock.Key.Number)
		e.Lock.Key = nil
		require.Equal(t, want, e.Lock)
		require.Equal(t, want.Owner != "", len(e.Holders) == 1)
	}
}

// TestANameIsNotBelieved gives a holder's name and a waiter's comment that do not hash to the key: it stays a number.
func TestANameIsNotBelieved(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	q := opened(t, d.URL())
	key := lockorder.SubscriptionKey("sub_true").Key()
	exec(t, as(t, d, "subscription/sub_false#subscription-reconcile"), `SELECT pg_advisory_lock($1)`, key)
	waiter := as(t, d, "subscription/sub_other#subscription-reconcile")
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = waiter.Exec(t.Context(), fmt.Sprintf(`/* lockorder: subscription:sub_false path=subscription-reconcile */ SET lock_timeout = '10s'; SELECT pg_advisory_lock(%d)`, key))
	}()
	defer func() { _ = waiter.PgConn().CancelRequest(t.Context()); <-done }()
	snapshot := lookUntil(t, q, func(s Snapshot) bool { n, _ := s.Waiting(); return n == 1 })
	require.Equal(t, OwnerUnnamed, snapshot.Chains[0].Behind[0].Waits.For.Owner)

	// The same comment with the right name is believed.
	require.NoError(t, waiter.PgConn().CancelRequest(t.Context()))
	<-done
	done = make(chan struct{})
	go func() {
		defer close(done)
		_, _ = waiter.Exec(t.Context(), fmt.Sprintf(`/* lockorder: subscription:sub_true path=subscription-reconcile */ SET lock_timeout = '10s'; SELECT pg_advisory_lock(%d)`, key))
	}()
	snapshot = lookUntil(t, q, func(s Snapshot) bool { n, _ := s.Waiting(); return n == 1 })
	require.Equal(t, []string{"sub_true"}, snapshot.Chains[0].Behind[0].Waits.For.Identity)
	require.Equal(t, []string{"sub_true"}, snapshot.Chains[0].Holds[0].Identity)
}

// TestWhatARoleMaySee looks with less and less.
func TestWhatARoleMaySee(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	exec(t, as(t, d, "subscription/sub_1#subscription-reconcile"), `SELECT pg_advisory_lock($1), pg_advisory_lock(9)`, lockorder.SubscriptionKey("sub_5").Key())
	exec(t, d.Conn(t), subscriptions, 10)
	plain := role(t, d, "")
	snapshot, err := Look(t.Context(), opened(t, plain))
	require.NoError(t, err)
	require.Len(t, snapshot.Notes, 2)
	require.Contains(t, snapshot.Notes[0], "What 1 session does, of other roles, is hidden from the role ")
	require.Contains(t, snapshot.Notes[1], "may not ask which identity a key is of")
	for _, note := range snapshot.Notes {
		require.Regexp(t, `Mend: GRANT pg_read_all_stats TO "watcher_\w+";$`, note)
	}
	require.Equal(t, "subscription/sub_1 · subscription-reconcile", snapshot.Sessions[0].Name(), "the name is not hidden")
	require.Equal(t, OwnerUnnamed, snapshot.Sessions[0].Holds[0].Owner)
	_, _, err = LookAt(t.Context(), opened(t, plain), "acme")
	require.ErrorContains(t, err, "the organisation cannot be looked up. The role ")

	snapshot, err = Look(t.Context(), opened(t, role(t, d, "pg_read_all_stats")))
	require.NoError(t, err)
	require.Empty(t, snapshot.Notes)
	require.Equal(t, []string{"sub_5"}, snapshot.Sessions[0].Holds[1].Identity)
	require.NotNil(t, snapshot.Sessions[0].Still)
}

// role makes a role that may log in, of another one, and returns the URL of the database for it.
func role(t testing.TB, d *pgtest.DB, of string) string {
	t.Helper()
	admin, err := pgx.Connect(t.Context(), d.AdminURL())
	require.NoError(t, err)
	name := "watcher_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	exec(t, admin, fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD 'watch'`, name))
	if of != "" {
		exec(t, admin, fmt.Sprintf(`GRANT %s TO %s`, of, name))
	}
	t.Cleanup(func() {
		_, err := admin.Exec(context.Background(), "DROP ROLE "+name)
		require.NoError(t, err)
		require.NoError(t, admin.Close(context.Background()))
	})
	u, err := url.Parse(d.URL())
	require.NoError(t, err)
	u.User = url.UserPassword(name, "watch")
	return u.String()
}

// TestNotBursarsDatabase looks at a database without the schema, and at one whose keys are derived otherwise.
func TestNotBursarsDatabase(t *testing.T) {
	t.Parallel()
	d := pgtest.NewEmpty(t)
	exec(t, d.Conn(t), `SELECT 1`)
	conn := as(t, d, "some tool")
	exec(t, conn, `SELECT pg_advisory_lock(42)`)
	snapshot, err := Look(t.Context(), opened(t, d.URL()))
	require.NoError(t, err)
	require.Len(t, snapshot.Notes, 1)
	require.Contains(t, snapshot.Notes[0], "bursar migrate")

	d = pgtest.New(t)
	exec(t, d.Conn(t), `UPDATE core.deployment SET lock_derivation = 'sha256-v2'`)
	exec(t, as(t, d, "some tool"), `SELECT pg_advisory_lock(42)`)
	snapshot, err = Look(t.Context(), opened(t, d.URL()))
	require.NoError(t, err)
	require.Len(t, snapshot.Notes, 1)
	require.Contains(t, snapshot.Notes[0], `derived by "sha256-v2"`)
}

// lookUntil looks until a snapshot is as wanted.
func lookUntil(t *testing.T, q lockorder.Querier, wanted func(Snapshot) bool) Snapshot {
	t.Helper()
	var snapshot Snapshot
	require.Eventually(t, func() bool {
		var err error
		snapshot, err = Look(t.Context(), q)
		require.NoError(t, err)
		return wanted(snapshot)
	}, 15*secondsOf(1), secondsOf(0.02))
	return snapshot
}
