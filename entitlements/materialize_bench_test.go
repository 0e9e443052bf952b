package entitlements_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/lockorder"
)

// BenchmarkMaterialize settles a pool with 1,000 positions, one of which has another quantity each time, and does the same by
// hand with raw pgx, in turns in the same run: x-raw is how many times as long the transaction through lockorder takes.
func BenchmarkMaterialize(b *testing.B) {
	h := newHouse(b)
	pool := h.org("acme", "club").DefaultPool
	_, err := h.pool.Exec(b.Context(), `
		INSERT INTO core.positions (pool_id, product_id, source, subscription_id, item_id, status, starts_at, created_act)
		SELECT $1, $2, 'subscription', 'sub_' || i / 10, 'si_' || i, 'active', core.clock(), 'bench' FROM generate_series(1, 1000) i`, pool, h.ids["disk"])
	require.NoError(b, err)
	_, err = h.pool.Exec(b.Context(), `ANALYZE`)
	require.NoError(b, err)
	const change = `UPDATE core.positions SET quantity = 1 + quantity % 7 WHERE item_id = 'si_500' AND status <> 'ended'`

	ours := func() error {
		return h.db.Run(b.Context(), lockorder.Spec{Path: "test-materialize", Kind: lockorder.Materializing}, func(ctx context.Context, tx *lockorder.Tx) error {
			if err := entitlements.LockPools(ctx, tx, pool); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, change); err != nil {
				return err
			}
			_, err := entitlements.Settle(ctx, tx, act, pool)
			return err
		})
	}
	rendezvous := lockorder.New(lockorder.Materialization).Key()
	raw := func() error {
		return pgx.BeginFunc(b.Context(), h.pool, func(tx pgx.Tx) error {
			for _, step := range []struct {
				sql  string
				args []any
			}{
				{`SELECT set_config('lockorder.rendezvous', 'shared', true) FROM pg_advisory_xact_lock_shared($1)`, []any{rendezvous}},
				{`SELECT FROM core.pools WHERE id = $1 FOR NO KEY UPDATE`, []any{pool}},
				{change, nil},
				{`SELECT core.settle_pool($1, 'bench', '', core.clock())`, []any{pool}},
			} {
				if _, err := tx.Exec(b.Context(), step.sql, step.args...); err != nil {
					return err
				}
			}
			return nil
		})
	}
	var through, byHand time.Duration
	for b.Loop() {
		for _, way := range []struct {
			run  func() error
			took *time.Duration
		}{{ours, &through}, {raw, &byHand}} {
			begun := time.Now()
			require.NoError(b, way.run())
			*way.took += time.Since(begun)
		}
	}
	b.ReportMetric(float64(through.Microseconds())/1000/float64(b.N), "ms/settled")
	b.ReportMetric(float64(byHand.Microseconds())/1000/float64(b.N), "raw-ms/settled")
	b.ReportMetric(through.Seconds()/byHand.Seconds(), "x-raw")
	b.ReportMetric(0, "ns/op")
}
