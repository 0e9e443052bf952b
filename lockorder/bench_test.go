package lockorder_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

var sink lockorder.Lock

// BenchmarkKey derives keys: of a text and of a UUID.
func BenchmarkKey(b *testing.B) {
	b.Run("text", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			sink = lockorder.SubscriptionKey("sub_1PqRsT2eZvKYlo2C")
		}
	})
	b.Run("uuid", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			sink = lockorder.WorkspaceKey(workspaceA)
		}
	})
}

// way is one way to run the transaction of the benchmark.
type way struct {
	name string
	run  func(worker int) error
}

// BenchmarkTransaction runs a materializing transaction with one key and one update in several ways, turn by turn in one
// run, on loopback and with a millisecond added to each round trip:
//
//   - three: lockorder, the update in a flight of its own: opening, update, COMMIT
//   - handed: lockorder, the update handed to the opening: opening, COMMIT
//   - same-three, same-handed: raw pgx, byte for byte the statements of those two, in the same flights
//   - raw-three, raw-two: raw pgx, what one would pipeline by hand in the same flights: tries that do not stop at a busy key,
//     and no guard
//   - raw-six: raw pgx, statement by statement, in six round trips
//
// All send on the same connections, and another way begins each time. It reports the time of each, and ratios (1.0 is as fast, more is faster). three-x-same and handed-x-same are what the
// package itself costs, in Go; same-three-x-pipelined and same-handed-x-pipelined are what the safety of its statements
// costs the server, which no implementation avoids; three-x-pipelined and handed-x-pipelined are both together. The other
// two are the gain over six round trips, and best-x-six-trips is the most that two flights can gain.
func BenchmarkTransaction(b *testing.B) {
	for _, delay := range []time.Duration{0, time.Millisecond} {
		for _, workers := range []int{1, 8, 16} {
			b.Run(fmt.Sprintf("delay=%s/workers=%d", delay, workers), func(b *testing.B) { benchmarkTransaction(b, delay, workers) })
		}
	}
}

func benchmarkTransaction(b *testing.B, delay time.Duration, workers int) {
	d := pgtest.New(b)
	f := flights{delay: delay}
	configure := func(c *pgxpool.Config) {
		c.ConnConfig.DialFunc = f.dial
		c.MaxConns = int32(workers)
	}
	db := open(b, d, func(o *lockorder.Options) { o.Configure = configure })
	raw := db.Pool() // another backend would have other caches
	targets := benchTargets(b, d, workers)
	ways := []way{
		{"three", func(worker int) error { return viaLockorder(db, targets[worker]) }},
		{"same-three", func(worker int) error { return viaSameStatements(raw, targets[worker], false) }},
		{"raw-three", func(worker int) error { return viaPipeline(raw, targets[worker]) }},
		{"handed", func(worker int) error { return viaHanded(db, targets[worker]) }},
		{"same-handed", func(worker int) error { return viaSameStatements(raw, targets[worker], true) }},
		{"raw-two", func(worker int) error { return viaTwoFlights(raw, targets[worker]) }},
		{"raw-six", func(worker int) error { return viaSixTrips(raw, targets[worker]) }},
	}
	const rounds = 40
	took := make(map[string][]time.Duration, len(ways)) // of each way, one transaction's share of each turn
	for _, w := range ways {                            // prepares the statements on every connection
		if _, err := oneTurn(w.run, workers, 5); err != nil {
			b.Fatal(err)
		}
	}
	for n := 0; b.Loop(); n++ {
		for i := range ways { // another way begins each time
			w := ways[(i+n)%len(ways)]
			t, err := oneTurn(w.run, workers, max(rounds/workers, 5))
			if err != nil {
				b.Fatal(err)
			}
			took[w.name] = append(took[w.name], t)
		}
	}
	b.ReportMetric(0, "ns/op") // a turn of all ways says nothing
	for _, w := range ways {
		b.ReportMetric(median(took[w.name], nil)/1000, w.name+"-µs/tx")
	}
	// Ratios within each turn: what else the machine does in it slows all ways alike.
	b.ReportMetric(median(took["same-three"], took["three"]), "three-x-same")
	b.ReportMetric(median(took["same-handed"], took["handed"]), "handed-x-same")
	b.ReportMetric(median(took["raw-three"], took["same-three"]), "same-three-x-pipelined")
	b.ReportMetric(median(took["raw-two"], took["same-handed"]), "same-handed-x-pipelined")
	b.ReportMetric(median(took["raw-six"], took["raw-two"]), "best-x-six-trips")
	b.ReportMetric(median(took["raw-three"], took["three"]), "three-x-pipelined")
	b.ReportMetric(median(took["raw-six"], took["three"]), "three-x-six-trips")
	b.ReportMetric(median(took["raw-two"], took["handed"]), "handed-x-pipelined")
	b.ReportMetric(median(took["raw-six"], took["handed"]), "handed-x-six-trips")
}

// median is the median of the times, or of their ratios to those of the same turns.
func median(times, per []time.Duration) float64 {
	values := make([]float64, len(times))
	for i, t := range times {
		values[i] = float64(t)
		if per != nil {
			values[i] /= float64(per[i])
		}
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// benchTarget is what one worker's transactions lock and write.
type benchTarget struct {
	key lockorder.Lock
	row string
}

func benchTargets(b *testing.B, d *pgtest.DB, n int) []benchTarget {
	conn := d.Conn(b)
	targets := make([]benchTarget, n)
	for i, row := range pools(b, conn, n) {
		targets[i] = benchTarget{lockorder.SubscriptionKey("sub_" + uuid.NewString()), identity(row)}
	}
	return targets
}

// oneTurn runs one way on all workers, each so many times, and returns the time of one transaction.
func oneTurn(way func(worker int) error, workers, times int) (time.Duration, error) {
	var group sync.WaitGroup
	var failed atomic.Pointer[error]
	began := time.Now()
	for worker := range workers {
		group.Go(func() {
			for range times {
				if err := way(worker); err != nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	group.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return time.Since(began) / time.Duration(workers*times), nil
}

const updateSQL = "UPDATE core.pools SET name = name WHERE id = $1"

func viaLockorder(db *lockorder.DB, target benchTarget) error {
	return db.Run(context.Background(), materializing(target.key), func(ctx context.Context, tx *lockorder.Tx) error {
		_, err := tx.Exec(ctx, updateSQL, target.row)
		return err
	})
}

// viaHanded hands the update to the opening: the declared key covers it.
func viaHanded(db *lockorder.DB, target benchTarget) error {
	spec := materializing(target.key)
	spec.Handed = func(h *lockorder.Handed) { h.Queue(updateSQL, target.row) }
	return db.Run(context.Background(), spec, nil)
}

// rawSettings are the bounds of a transaction, as one statement.
const rawSettings = `SELECT set_config('lock_timeout', '5000', true), set_config('idle_in_transaction_session_timeout', '10000', true),
	set_config('client_connection_check_interval', '1000', true), set_config('lockorder.rendezvous', 'shared', true)`

func viaPipeline(pool *pgxpool.Pool, target benchTarget) error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second) // a baseline without any bound would be no use
	defer cancel()
	return pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		if err := c.SendBatch(ctx, rawOpening(target)).Close(); err != nil {
			return err
		}
		if _, err := c.Exec(ctx, updateSQL, target.row); err != nil {
			return err
		}
		_, err := c.Exec(ctx, "COMMIT")
		return err
	})
}

func rawOpening(target benchTarget) *pgx.Batch {
	opening := &pgx.Batch{}
	opening.Queue("BEGIN")
	opening.Queue(rawSettings)
	opening.Queue("SELECT pg_try_advisory_xact_lock_shared($1)", rendezvous().Key())
	opening.Queue("SELECT pg_try_advisory_xact_lock($1)", target.key.Key())
	return opening
}

// viaTwoFlights sends the update with the opening, unguarded: it is the bound of what a guard can cost.
func viaTwoFlights(pool *pgxpool.Pool, target benchTarget) error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second) // a baseline without any bound would be no use
	defer cancel()
	return pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		opening := rawOpening(target)
		opening.Queue(updateSQL, target.row)
		if err := c.SendBatch(ctx, opening).Close(); err != nil {
			return err
		}
		_, err := c.Exec(ctx, "COMMIT")
		return err
	})
}

// viaSameStatements sends what lockorder sends, in the same flights.
func viaSameStatements(pool *pgxpool.Pool, target benchTarget, handed bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second) // a baseline without any bound would be no use
	defer cancel()
	return pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		opening := &pgx.Batch{}
		opening.Queue("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
		guard := ""
		if handed {
			guard = lockorder.DefaultGuard
		}
		opening.Queue(lockorder.OpenSQL(true, 2, guard, false), "5000", "10000", "1000", "shared", rendezvous().Key(), target.key.Key())
		if handed {
			opening.Queue(updateSQL, target.row)
		}
		if err := c.SendBatch(ctx, opening).Close(); err != nil {
			return err
		}
		if !handed {
			if _, err := c.Exec(ctx, updateSQL, target.row); err != nil {
				return err
			}
		}
		_, err := c.Exec(ctx, "COMMIT")
		return err
	})
}

func viaSixTrips(pool *pgxpool.Pool, target benchTarget) error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second) // a baseline without any bound would be no use
	defer cancel()
	return pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		for _, s := range []struct {
			sql  string
			args []any
		}{
			{"BEGIN", nil},
			{rawSettings, nil},
			{"SELECT pg_advisory_xact_lock_shared($1)", []any{rendezvous().Key()}},
			{"SELECT pg_advisory_xact_lock($1)", []any{target.key.Key()}},
			{updateSQL, []any{target.row}},
			{"COMMIT", nil},
		} {
			if _, err := c.Exec(ctx, s.sql, s.args...); err != nil {
				return err
			}
		}
		return nil
	})
}
