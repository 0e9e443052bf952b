package entitlements_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/locktest"
	"github.com/bursarhq/bursar/lockorder"
)

// forgetful loses the answer to every so-and-so-many-th COMMIT: the server has done it, and nobody hears of it.
type forgetful struct {
	commits, lost atomic.Int64
	every         int64
}

func (f *forgetful) configure(c *pgxpool.Config) {
	dial := c.ConnConfig.DialFunc
	c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &forgetfulConn{Conn: conn, f: f}, err
	}
}

type forgetfulConn struct {
	net.Conn
	f    *forgetful
	lose atomic.Bool
}

func (c *forgetfulConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("COMMIT")) && c.f.commits.Add(1)%c.f.every == 0 {
		c.lose.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *forgetfulConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.lose.CompareAndSwap(true, false) {
		c.f.lost.Add(1)
		_ = c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// insist spends until it is granted or exhausted, under one id, as who has to know does.
func insist(ctx context.Context, db *lockorder.DB, s entitlements.Spending) (entitlements.Spent, error) {
	for try := 0; ; try++ {
		spent, err := entitlements.Spend(ctx, db, s)
		if err == nil || errors.Is(err, entitlements.ErrExhausted) || try == 500 {
			return spent, err
		}
		switch lockorder.VerdictOf(err) {
		case lockorder.VerdictBusy, lockorder.VerdictLockTimeout, lockorder.VerdictCommitUnknown, lockorder.VerdictConnection:
			// What a retry waits, so that those who collided do not meet again.
			time.Sleep(time.Duration(5+rand.IntN(20*min(try+1, 10))) * time.Millisecond)
		default:
			return spent, err
		}
	}
}

// spendMeanwhile spends while the test goes on; what it returns waits for the answer.
func (h *house) spendMeanwhile(db *lockorder.DB, id string, pool uuid.UUID, key string, n int64) func() entitlements.Spent {
	answer := make(chan spender, 1)
	go func() {
		spent, err := entitlements.Spend(h.t.Context(), db, entitlements.Spending{ID: id, Pool: pool, Key: key, N: n})
		answer <- spender{id, spent, err}
	}()
	return func() entitlements.Spent {
		h.t.Helper()
		a := <-answer
		require.NoError(h.t, a.err)
		return a.spent
	}
}

// spender is one who wants one of an allowance.
type spender struct {
	id    string
	spent entitlements.Spent
	err   error
}

// crowd lets so many spend one each at once, every one of them from two places under one id, and answers who was granted.
func crowd(t *testing.T, db *lockorder.DB, pool uuid.UUID, key string, n int, granted func(id string)) (winners []spender) {
	t.Helper()
	results := make(chan spender, 2*n)
	for i := range n {
		id := fmt.Sprintf("spender-%d", i)
		for range 2 {
			go func() {
				spent, err := insist(t.Context(), db, entitlements.Spending{ID: id, Pool: pool, Key: key, N: 1})
				if err == nil && granted != nil {
					granted(id)
				}
				results <- spender{id, spent, err}
			}()
		}
	}
	first, refused := map[string]spender{}, map[string]bool{}
	for range 2 * n {
		r := <-results
		if r.err != nil {
			require.ErrorIs(t, r.err, entitlements.ErrExhausted, r.id)
			refused[r.id] = true
			continue
		}
		if other, twice := first[r.id]; twice {
			r.spent.Repeated = other.spent.Repeated // one at most was told that it came first
			require.Equal(t, other.spent, r.spent, "both places of %s get one answer", r.id)
			continue
		}
		first[r.id] = r
		winners = append(winners, r)
	}
	if key == "seats" { // nothing renews it, so who was refused once is refused for good
		for id := range first {
			require.False(t, refused[id], "%s was granted in one place and refused in the other", id)
		}
	}
	return winners
}

// An allowance of 100, 200 spenders at once, answers lost and spends repeated: exactly 100 succeed.
func TestAllowanceOfAHundredForTwoHundred(t *testing.T) {
	t.Parallel()
	h, pool := newPlan(t)
	f := &forgetful{every: 7}
	db := h.opened(func(o *lockorder.Options) { o.MaxConns, o.Configure = 12, f.configure })
	winners := crowd(t, db, pool, "seats", 200, nil)
	require.Len(t, winners, 100)
	require.Equal(t, "1970-01-01 100", h.used("seats"))
	require.Equal(t, "100 100", h.one(`SELECT count(*) || ' ' || sum(n) FROM core.spends`))
	require.Equal(t, "100", h.one(`SELECT count(DISTINCT used_after)::text FROM core.spends WHERE used_after BETWEEN 1 AND 100`), "each took a place of its own")
	require.Positive(t, f.lost.Load(), "no answer was lost")
	for _, w := range winners {
		require.True(t, h.spend(h.db, w.id, pool, "seats", 1).Repeated, "%s was told that it succeeded", w.id)
	}
}

// With the limit lowered meanwhile, nothing is granted beyond what is legal at its moment.
func TestALimitLoweredWhileItIsSpent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ at, to int64 }{"before it is reached": {20, 50}, "after it was passed": {60, 50}, "to nothing": {30, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, pool := newPlan(t)
			f := &forgetful{every: 11}
			db := h.opened(func(o *lockorder.Options) { o.MaxConns, o.Configure = 12, f.configure })
			var granted atomic.Int64
			var seen sync.Map
			lower := make(chan struct{})
			var once sync.Once
			lowered := make(chan time.Time, 1)
			go func() {
				<-lower
				// Written under the rule's own lock, as a rule change does; it takes none that a spend waits for.
				_, err := h.pool.Exec(t.Context(), `UPDATE core.set_rules SET numeric_value = $1 WHERE resource_key = 'seats'`, c.to)
				var at time.Time
				err = errors.Join(err, h.pool.QueryRow(t.Context(), `SELECT core.clock()`).Scan(&at))
				if err != nil {
					t.Error(err)
				}
				lowered <- at
			}()
			crowd(t, db, pool, "seats", 200, func(id string) {
				if _, twice := seen.LoadOrStore(id, true); !twice && granted.Add(1) >= c.at {
					once.Do(func() { close(lower) })
				}
			})
			var at time.Time
			select {
			case at = <-lowered:
			case <-time.After(time.Minute):
				t.Fatal("the limit was never lowered")
			}
			require.Equal(t, "0", h.one(`SELECT count(*)::text FROM core.spends WHERE at > $1 AND (used_after > $2 OR limit_then <> $2)`, at, c.to),
				"after the lowering nothing is granted above the new limit")
			require.Equal(t, "0", h.one(`SELECT count(*)::text FROM core.spends WHERE used_after > limit_then OR limit_then NOT IN (100, $1)`, c.to))
			require.Equal(t, "true", h.one(`SELECT (u.used = (SELECT count(*) FROM core.spends) AND u.used BETWEEN $1 AND 100)::text FROM core.usage u`, max(c.at, c.to)))
			require.Zero(t, h.exhausted(h.db, "late", pool, "seats", 1).Left)
		})
	}
}

// What a position gave is not spent from its last instant on, although nothing has settled the pool since.
func TestSpendDeniesAtTheInstant(t *testing.T) {
	t.Parallel()
	h, _ := newPlan(t)
	pool := h.org("bare", "bare").DefaultPool
	h.converge("sub_1", pool, item{"it_1", "plan", 1})
	ends := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	_, err := h.pool.Exec(t.Context(), `UPDATE core.positions SET ends_at = $1 WHERE item_id = 'it_1'`, ends)
	require.NoError(t, err)
	h.spend(h.at(ends.Add(-time.Minute)), "a", pool, "seats", 1)
	refused := h.exhausted(h.at(ends.Add(time.Millisecond)), "b", pool, "seats", 1)
	require.Zero(t, refused.Limit)
	require.Equal(t, int64(1), refused.Used)
	require.True(t, h.spend(h.at(ends.Add(time.Minute)), "a", pool, "seats", 1).Repeated, "what was granted stays so")
	require.Contains(t, h.has(pool), "seats=100", "nothing has settled the pool")
}

// A floor that is due and not restored gives its allowance.
func TestSpendOfAFloorThatIsDue(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	pool := h.org("acme", "club").DefaultPool
	h.converge("sub_1", pool, item{"it_1", "gold", 1})
	ends := time.Now().Add(time.Hour)
	_, err := h.pool.Exec(t.Context(), `UPDATE core.positions SET ends_at = $1 WHERE item_id = 'it_1'`, ends)
	require.NoError(t, err)
	require.Equal(t, int64(100), h.spend(h.db, "a", pool, "storage", 1).Limit)
	require.Equal(t, "gold it_1 active", h.holds(pool))
	after := h.at(ends.Add(time.Second))
	require.Equal(t, int64(1), h.exhausted(after, "b", pool, "storage", 1).Limit)
	require.Equal(t, int64(1), h.spend(after, "b", pool, "speed", 1).Limit)
}

// Two transactions that spend of several counters in opposite orders end, both of them, and in one order.
func TestSpendInTakesCountersInOneOrder(t *testing.T) {
	t.Parallel()
	h, one := newPlan(t)
	two := h.org("two", "planned").DefaultPool
	db := h.opened(func(o *lockorder.Options) { o.MaxConns = 8 })
	spend := func(id string, counters ...entitlements.Counter) error {
		for try := 0; ; try++ {
			err := db.Run(t.Context(), lockorder.Spec{Path: "test-spend-several", Kind: lockorder.Plain}, func(ctx context.Context, tx *lockorder.Tx) error {
				if err := entitlements.LockCounters(ctx, tx, counters...); err != nil {
					return err
				}
				if _, err := tx.Now(ctx); err != nil { // no lock can be taken after this
					return err
				}
				for _, c := range counters {
					if _, err := entitlements.SpendIn(ctx, tx, entitlements.Spending{ID: id, Pool: c.Pool, Key: c.Key, N: 1}); err != nil {
						return err
					}
				}
				return nil
			})
			if !locktest.Busy(err) || try == 500 {
				return err
			}
			time.Sleep(time.Duration(1+rand.IntN(10)) * time.Millisecond)
		}
	}
	all := []entitlements.Counter{{Pool: one, Key: "seats"}, {Pool: two, Key: "seats"}, {Pool: two, Key: "builds"}, {Pool: one, Key: "calls"}, {Pool: one, Key: "seats"}}
	done := make(chan error)
	for i := range 20 {
		counters := make([]entitlements.Counter, 0, len(all))
		for j := range all[:4] {
			counters = append(counters, all[(i+j)%4])
		}
		go func() { done <- spend(fmt.Sprint("s", i), append(counters, counters[0])...) }()
	}
	for range 20 {
		require.NoError(t, <-done)
	}
	require.Equal(t, "80", h.one(`SELECT sum(used)::text FROM core.usage`))
}

// What is spent in a transaction that fails is not spent.
func TestSpendInGoesWithItsTransaction(t *testing.T) {
	t.Parallel()
	h, pool := newPlan(t)
	failed := errors.New("the rest could not be done")
	in := func(then error) error {
		return h.db.Run(t.Context(), lockorder.Spec{Path: "test-spend-in", Kind: lockorder.Plain}, func(ctx context.Context, tx *lockorder.Tx) error {
			spent, err := entitlements.SpendIn(ctx, tx, entitlements.Spending{ID: "a", Pool: pool, Key: "seats", N: 99})
			if err != nil {
				return err
			}
			require.Equal(t, int64(1), spent.Left)
			// Refused, it does no harm to the transaction.
			if _, err := entitlements.SpendIn(ctx, tx, entitlements.Spending{ID: "b", Pool: pool, Key: "seats", N: 2}); !errors.Is(err, entitlements.ErrExhausted) {
				return fmt.Errorf("2 of 1: %w", err)
			}
			if _, err := entitlements.ReleaseIn(ctx, tx, entitlements.Releasing{ID: "a", Pool: pool, Key: "seats", Keep: 90}); err != nil {
				return err
			}
			seats := entitlements.Counter{Pool: pool, Key: "seats"}
			if _, err := entitlements.BoundIn(ctx, tx, seats, 80); err != nil {
				return err
			}
			if _, err := entitlements.RaiseToIn(ctx, tx, seats, 81); err != nil {
				return err
			}
			return then
		})
	}
	require.ErrorIs(t, in(failed), failed)
	require.Empty(t, h.used("seats"))
	require.NoError(t, in(nil))
	require.Equal(t, "1970-01-01 81", h.used("seats"))

	err := h.db.Run(t.Context(), lockorder.Spec{Path: "test-spend-late", Kind: lockorder.Plain}, func(ctx context.Context, tx *lockorder.Tx) error {
		if _, err := tx.Now(ctx); err != nil {
			return err
		}
		_, err := entitlements.SpendIn(ctx, tx, entitlements.Spending{ID: "c", Pool: pool, Key: "seats", N: 1})
		return err
	})
	require.ErrorIs(t, err, lockorder.ErrOrder, "a lock after the time was read is the caller's mistake")
}

// A repeat that waits for the counter while the first takes all that is left is answered, and not refused.
func TestARepeatThatWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	h, pool := newPlan(t)
	letGo := h.hold(pool, "seats", time.Unix(0, 0).UTC())
	first, second := h.spendMeanwhile(h.db, "a", pool, "seats", 100), h.spendMeanwhile(h.db, "a", pool, "seats", 100)
	h.waitUntil("both wait for the counter", `SELECT count(*) = 2 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	letGo()
	one, other := first(), second()
	require.NotEqual(t, one.Repeated, other.Repeated)
	one.Repeated, other.Repeated = false, false
	require.Equal(t, one, other)
	require.Equal(t, "1970-01-01 100", h.used("seats"))
}
