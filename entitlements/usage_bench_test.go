package entitlements_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/lockorder"
)

// BenchmarkSpend spends one of an allowance, turn by turn with two ways by hand in raw pgx: the same statements, and the least
// that counts at all (a lock, the limit as it is materialized, an update, a remembered id). It reports the time of each, and how much
// faster Spend is than each (1.0 is as fast), on one counter that everybody wants and on one for each worker.
func BenchmarkSpend(b *testing.B) {
	for _, hot := range []bool{true, false} {
		for _, workers := range []int{1, 8, 16} {
			name := "one counter"
			if !hot {
				name = "a counter each"
			}
			b.Run(fmt.Sprintf("%s/workers=%d", name, workers), func(b *testing.B) { benchmarkSpend(b, hot, workers) })
		}
	}
}

func benchmarkSpend(b *testing.B, hot bool, workers int) {
	h, first := newPlan(b)
	pools := []uuid.UUID{first}
	for i := 1; i < workers; i++ {
		pools = append(pools, h.org(fmt.Sprint("org-", i), "planned").DefaultPool)
	}
	if _, err := h.pool.Exec(b.Context(), `UPDATE core.set_rules SET numeric_value = 1000000000 WHERE resource_key = 'seats'; UPDATE core.pool_entitlements SET numeric_value = 1000000000 WHERE resource_key = 'seats'`); err != nil {
		b.Fatal(err)
	}
	db := h.opened(func(o *lockorder.Options) {
		o.MaxConns, o.LaneShare, o.Observe, o.Ended = int32(workers)+1, 1, nil, nil
	})
	config := h.pool.Config()
	config.MaxConns = int32(workers)
	raw, err := pgxpool.NewWithConfig(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	defer raw.Close()
	pool := func(worker int) uuid.UUID {
		if hot {
			return first
		}
		return pools[worker]
	}
	var ids atomic.Int64
	ours := func(worker int) error {
		_, err := entitlements.Spend(b.Context(), db, entitlements.Spending{ID: fmt.Sprint("s", ids.Add(1)), Pool: pool(worker), Key: "seats", N: 1})
		return err
	}
	byHand := func(do func(tx pgx.Tx, pool uuid.UUID, id string) error) func(int) error {
		return func(worker int) error {
			return pgx.BeginFunc(b.Context(), raw, func(tx pgx.Tx) error { return do(tx, pool(worker), fmt.Sprint("r", ids.Add(1))) })
		}
	}
	ways := []func(int) error{
		ours,
		byHand(func(tx pgx.Tx, pool uuid.UUID, id string) error { return sameByHand(b.Context(), tx, pool, id) }),
		byHand(func(tx pgx.Tx, pool uuid.UUID, id string) error { return leastByHand(b.Context(), tx, pool, id) }),
	}
	for range 2 { // counters are made, and every connection prepares its statements
		for _, way := range ways {
			together(b, workers, way)
		}
	}
	took := make([]time.Duration, len(ways))
	rounds := 0
	for b.Loop() {
		for i, way := range ways {
			took[i] += together(b, workers, way)
		}
		rounds++
	}
	n := float64(rounds * workers * spendsInARound)
	b.ReportMetric(float64(took[0].Microseconds())/n, "µs/spend")
	b.ReportMetric(float64(took[1])/float64(took[0]), "×same")
	b.ReportMetric(float64(took[2])/float64(took[0]), "×least")
	b.ReportMetric(0, "ns/op")
}

const spendsInARound = 20

// together lets each worker do so many, and answers how long all took.
func together(b *testing.B, workers int, do func(int) error) time.Duration {
	begun := time.Now()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for range spendsInARound {
				if err := do(w); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(begun)
}

const (
	lockSeats = `SELECT FROM core.usage WHERE pool_id = $1 AND resource_key = 'seats' AND window_start = '1970-01-01Z' FOR NO KEY UPDATE`
	takeSeats = `UPDATE core.usage SET used = used + 1 WHERE pool_id = $1 AND resource_key = 'seats' AND window_start = '1970-01-01Z' AND used + 1 <= $2 RETURNING used`
	keepSeats = `INSERT INTO core.spends (pool_id, resource_key, id, window_start, n, used_after, limit_then, at) VALUES ($1, 'seats', $2, '1970-01-01Z', 1, $3, $4, clock_timestamp())`
)

// sameByHand runs the statements of a spend, without what lockorder adds.
func sameByHand(ctx context.Context, tx pgx.Tx, pool uuid.UUID, id string) error {
	if err := entitlements.CheckCounter(ctx, tx, entitlements.Counter{Pool: pool, Key: "seats"}); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, lockSeats, pool); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `SELECT * FROM core.take_allowance($1, 'seats', '1970-01-01Z', $2, 1)`, pool, id)
	return err
}

// leastByHand is a spend without bounds, windows, reasons or repeats.
func leastByHand(ctx context.Context, tx pgx.Tx, pool uuid.UUID, id string) error {
	if _, err := tx.Exec(ctx, lockSeats, pool); err != nil {
		return err
	}
	var limit, used int64
	if err := tx.QueryRow(ctx, `SELECT numeric_value FROM core.pool_entitlements WHERE pool_id = $1 AND resource_key = 'seats'`, pool).Scan(&limit); err != nil {
		return err
	}
	if err := tx.QueryRow(ctx, takeSeats, pool, limit).Scan(&used); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, keepSeats, pool, id, used, limit)
	return err
}
