package activities_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/db"
	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// BenchmarkRuleChange commits a change of rules above the cap and drains it, and then another one in the same database that is
// drained by a loop of the same transactions written by hand: of-raw is how much of the loop's speed the drain has, and
// exclusive-ms how long the commit took, which holds the exclusive rendezvous nearly all the time. The drain is linear where
// pools/s is the same for both sizes.
func BenchmarkRuleChange(b *testing.B) {
	for _, pools := range []int{1_000, 10_000} {
		b.Run(fmt.Sprintf("pools=%d", pools), func(b *testing.B) {
			r := newCrowd(b, pools)
			conn, err := pgx.Connect(b.Context(), r.database.URL())
			require.NoError(b, err)
			defer func() { require.NoError(b, conn.Close(context.WithoutCancel(b.Context()))) }()
			var commit, drained, byHand time.Duration
			commits := 0
			for b.Loop() {
				for _, one := range []struct {
					value int
					drain func(change string)
				}{
					{5, func(change string) {
						begun := time.Now()
						settled, failed, parked := r.drain(change)
						drained += time.Since(begun)
						require.Equal(b, []int{pools, 0, 0}, []int{settled, failed, parked})
					}},
					{2, func(change string) {
						begun := time.Now()
						require.Equal(b, pools, drainByHand(b, conn, change))
						byHand += time.Since(begun)
					}},
				} {
					begun := time.Now()
					change := r.ruleChange(ruleChange("extra", "sites", one.value))
					commit += time.Since(begun)
					commits++
					require.Equal(b, pools, change.Owed)
					one.drain(change.ID)
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(pools*b.N)/drained.Seconds(), "pools/s")
			b.ReportMetric(float64(pools*b.N)/byHand.Seconds(), "raw-pools/s")
			b.ReportMetric(byHand.Seconds()/drained.Seconds(), "of-raw")
			b.ReportMetric(float64(commit.Milliseconds())/float64(commits), "exclusive-ms")
		})
	}
}

// newCrowd is a rig without Stripe, with a crowd.
func newCrowd(b *testing.B, pools int) *rig {
	b.Helper()
	r := &rig{t: b, database: pgtest.New(b)}
	r.pool = r.database.Pool(b)
	_, err := r.pool.Exec(b.Context(), catalogue)
	require.NoError(b, err)
	r.db, err = lockorder.Open(b.Context(), r.database.URL(), db.LockOptions())
	require.NoError(b, err)
	b.Cleanup(r.db.Close)
	r.operator = &activities.Operator{DB: r.db}
	r.crowd(pools, 0)
	return r
}

// drainByHand does what the drain does to each pool: opens a transaction with the rendezvous and bounded waits, locks the pool, looks for what it is
// owed, locks that, and settles it.
func drainByHand(b *testing.B, conn *pgx.Conn, change string) (settled int) {
	ctx := context.Background()
	rendezvous := lockorder.New(lockorder.Materialization).Key()
	rows, err := conn.Query(ctx, `SELECT pool_id FROM core.change_obligations WHERE change_id = $1::uuid AND state = 'open' ORDER BY pool_id`, change)
	require.NoError(b, err)
	pools, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	require.NoError(b, err)
	for _, pool := range pools {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			for _, step := range []struct {
				sql  string
				args []any
			}{
				{`SELECT num_nonnulls(set_config('lock_timeout', '5000', true), set_config('idle_in_transaction_session_timeout', '10000', true),
					set_config('client_connection_check_interval', '1000', true), set_config('lockorder.rendezvous', 'shared', true))
					FROM pg_advisory_xact_lock_shared($1)`, []any{rendezvous}},
				{`SELECT FROM core.pools WHERE id = $1 FOR NO KEY UPDATE`, []any{pool}},
				{`SELECT pool_id, change_id FROM core.change_obligations WHERE pool_id = $1 AND state <> 'settled'`, []any{pool}},
				{`SELECT FROM core.change_obligations WHERE pool_id = $1 AND change_id = $2::uuid FOR NO KEY UPDATE`, []any{pool, change}},
				{`SELECT core.settle_owed($1)`, []any{pool}},
			} {
				if _, err := tx.Exec(ctx, step.sql, step.args...); err != nil {
					return err
				}
			}
			return nil
		})
		require.NoError(b, err)
		settled++
	}
	return settled
}
