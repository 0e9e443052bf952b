package activities_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/db"
	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

const dueGrants = 10_000

// dueSQL makes 10,000 organisations that hold gold by a grant each, whose end has come.
const dueSQL = `
SELECT set_config('lockorder.rendezvous', 'shared', false);
INSERT INTO core.organizations (slug, name, type_id) SELECT 'grantee-' || n, 'Grantee', t.id FROM core.organization_types t, generate_series(1, 10000) n WHERE t.slug = 'member';
INSERT INTO core.pools (organization_id, name, is_default) SELECT id, 'default', true FROM core.organizations;
INSERT INTO core.grants (id, pool_id, product_id, state, starts_at, ends_at, line, origin, issued_at, issued_act)
	SELECT p.grant_id, p.id, pr.id, 'waiting', core.clock() - interval '1 day', core.clock() + interval '1 day', p.grant_id, 'operator', core.clock(), 'bench'
	FROM (SELECT p.id, gen_random_uuid() AS grant_id FROM core.pools p) p JOIN core.products pr ON pr.slug = 'gold';
SELECT core.confer_grant(id, pool_id, product_id, quantity, starts_at, ends_at, 'bench') FROM core.grants;
SELECT core.settle_pool(id, 'bench', '', core.clock()) FROM core.pools;
UPDATE core.grants SET ends_at = core.clock();
UPDATE core.positions p SET ends_at = g.ends_at FROM core.grants g WHERE g.id = p.grant_id;
ANALYZE;`

func newDue(b *testing.B) (*pgtest.DB, *pgxpool.Pool) {
	b.Helper()
	database := pgtest.New(b)
	pool := database.Pool(b)
	for _, sql := range []string{catalogue, dueSQL} {
		_, err := pool.Exec(b.Context(), sql)
		require.NoError(b, err)
	}
	return database, pool
}

// BenchmarkGrantExpiry expires 10,000 due grants by the sweep, and by a loop of the same transactions written by hand, in the same
// run: x-raw is how many times as long the sweep takes.
func BenchmarkGrantExpiry(b *testing.B) {
	var swept, byHand time.Duration
	for b.Loop() {
		database, _ := newDue(b)
		opened, err := lockorder.Open(b.Context(), database.URL(), db.LockOptions())
		require.NoError(b, err)
		begun := time.Now()
		done, err := sweep(opened)
		swept += time.Since(begun)
		require.NoError(b, err)
		require.Equal(b, dueGrants, done.Expired)
		opened.Close()

		_, pool := newDue(b)
		conn, err := pool.Acquire(b.Context())
		require.NoError(b, err)
		begun = time.Now()
		expireByHand(b, conn.Conn())
		byHand += time.Since(begun)
		conn.Release()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(dueGrants*float64(b.N)/swept.Seconds(), "grants/s")
	b.ReportMetric(dueGrants*float64(b.N)/byHand.Seconds(), "raw-grants/s")
	b.ReportMetric(swept.Seconds()/byHand.Seconds(), "x-raw")
}

// expireByHand does what the sweep does to each grant: opens a transaction with the rendezvous, locks the pool, looks for what it is
// owed, locks the grant and reads it, reads the time, ends the position, closes the grant, settles the pool.
func expireByHand(b *testing.B, conn *pgx.Conn) {
	ctx := context.Background()
	rendezvous := lockorder.New(lockorder.Materialization).Key()
	rows, err := conn.Query(ctx, `SELECT id, pool_id FROM core.grants WHERE state = 'active' AND ends_at <= core.clock() ORDER BY ends_at, id`)
	require.NoError(b, err)
	type due struct{ ID, PoolID uuid.UUID }
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[due])
	require.NoError(b, err)
	require.Len(b, all, dueGrants)
	for _, g := range all {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			var line uuid.UUID
			var now time.Time
			for _, step := range []struct {
				sql  string
				args []any
				into []any
			}{
				{`SELECT set_config('lockorder.rendezvous', 'shared', true) FROM pg_advisory_xact_lock_shared($1)`, []any{rendezvous}, nil},
				{`SELECT FROM core.pools WHERE id = $1 FOR NO KEY UPDATE`, []any{g.PoolID}, nil},
				{`SELECT pool_id FROM core.change_obligations WHERE pool_id = $1 AND state <> 'settled'`, []any{g.PoolID}, nil},
				{`SELECT FROM core.grants WHERE id = $1 FOR NO KEY UPDATE`, []any{g.ID}, nil},
				{`SELECT g.line FROM core.grants g WHERE g.id = $1 AND g.closed_at IS NULL`, []any{g.ID}, []any{&line}},
				{`SELECT core.clock()`, nil, []any{&now}},
				{`UPDATE core.positions SET status = 'ended', ended_at = ends_at, ended_act = 'bench', end_reason = 'expired' WHERE grant_id = $1 AND status <> 'ended'`, []any{g.ID}, nil},
				{`UPDATE core.grants SET state = 'expired', closed_at = core.clock(), closed_act = 'bench', closed_workflow = '' WHERE id = $1`, []any{g.ID}, nil},
				{`SELECT core.settle_pool($1, 'bench', '', core.clock())`, []any{g.PoolID}, nil},
			} {
				var err error
				if step.into != nil {
					err = tx.QueryRow(ctx, step.sql, step.args...).Scan(step.into...)
				} else {
					_, err = tx.Exec(ctx, step.sql, step.args...)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		require.NoError(b, err)
	}
}
