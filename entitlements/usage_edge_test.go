package entitlements_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/lockorder"
)

// edge is a midnight that all tests of this file live around.
var edge = time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)

// hold locks a counter of a window, which it makes, as an open transaction of somebody else does, until it is let go.
func (h *house) hold(pool uuid.UUID, key string, window time.Time) (letGo func()) {
	h.t.Helper()
	tx, err := h.pool.Begin(h.t.Context())
	require.NoError(h.t, err)
	_, err = tx.Exec(h.t.Context(), `INSERT INTO core.usage (pool_id, resource_key, window_start) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, pool, key, window)
	require.NoError(h.t, err)
	require.NoError(h.t, tx.Commit(h.t.Context()))
	tx, err = h.pool.Begin(h.t.Context())
	require.NoError(h.t, err)
	_, err = tx.Exec(h.t.Context(), `SELECT FROM core.usage WHERE pool_id = $1 AND resource_key = $2 AND window_start = $3 FOR NO KEY UPDATE`, pool, key, window)
	require.NoError(h.t, err)
	return func() {
		require.NoError(h.t, tx.Rollback(h.t.Context()))
	}
}

// waitUntil polls until a query answers true.
func (h *house) waitUntil(what, sql string, args ...any) {
	h.t.Helper()
	require.Eventually(h.t, func() bool {
		var yes bool
		err := h.pool.QueryRow(h.t.Context(), sql, args...).Scan(&yes)
		return err == nil && yes
	}, 20*time.Second, 5*time.Millisecond, what)
}

const somebodyWaits = `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`

// A spend that waits for its counter past the end of the window takes of the next one.
func TestASpendThatWaitsPastTheEdge(t *testing.T) {
	t.Parallel()
	h, pool := newPlan(t)
	h.spend(h.at(edge.Add(-time.Hour)), "before", pool, "calls", 100)
	yesterday := edge.AddDate(0, 0, -1)
	letGo := h.hold(pool, "calls", yesterday)
	crossing := time.Now().Add(1500 * time.Millisecond)
	db := h.shifted(edge.Sub(crossing))
	type answer struct {
		spent    entitlements.Spent
		adjusted entitlements.Adjusted
		err      error
	}
	spent, raised := make(chan answer, 1), make(chan answer, 1)
	go func() {
		var a answer
		a.spent, a.err = entitlements.Spend(t.Context(), db, entitlements.Spending{ID: "waits", Pool: pool, Key: "calls", N: 30})
		spent <- a
	}()
	go func() {
		var a answer
		a.adjusted, a.err = entitlements.RaiseTo(t.Context(), db, entitlements.Counter{Pool: pool, Key: "calls"}, 20)
		raised <- a
	}()
	h.waitUntil("somebody waits for yesterday's counter", somebodyWaits)
	time.Sleep(time.Until(crossing.Add(20 * time.Millisecond))) // the database's own clock has to pass the edge
	letGo()
	s, r := <-spent, <-raised
	require.NoError(t, s.err)
	require.NoError(t, r.err)
	require.Equal(t, edge, s.spent.WindowStart)
	require.Equal(t, int64(100), s.spent.Limit)
	require.Equal(t, edge, r.adjusted.WindowStart)
	require.Contains(t, []string{"2027-02-28 100, 2027-03-01 30", "2027-02-28 100, 2027-03-01 50"}, h.used("calls"), "nothing more of yesterday's, and today's counts")
}

// An answer that was lost before the edge and is asked for again after it is one spend, also while the first is still open.
func TestALostAnswerAtTheEdgeIsOneSpend(t *testing.T) {
	t.Parallel()
	h, pool := newPlan(t)
	before, after := h.at(edge.Add(-5*time.Second)), h.at(edge.Add(5*time.Second))
	h.spend(before, "known", pool, "calls", 1) // so that both counters are there
	h.spend(after, "known too", pool, "calls", 1)

	spentOnce, letGo, answered := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	goOn := sync.OnceFunc(func() { close(letGo) })
	defer goOn()
	go func() {
		answered <- before.Run(t.Context(), lockorder.Spec{Path: "test-spend-slowly", Kind: lockorder.Plain}, func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := entitlements.SpendIn(ctx, tx, entitlements.Spending{ID: "a", Pool: pool, Key: "calls", N: 10})
			close(spentOnce)
			<-letGo
			return err
		})
	}()
	<-spentOnce
	again := h.spendMeanwhile(after, "a", pool, "calls", 10)
	h.waitUntil("the repeat waits for the counter before", somebodyWaits)
	require.Equal(t, "usage", h.one(`SELECT c.relname::text FROM pg_locks l JOIN pg_class c ON c.oid = l.relation WHERE l.locktype = 'tuple' LIMIT 1`),
		"it waits for a row that it has asked for, and not at the unique key")
	goOn()
	require.NoError(t, <-answered)
	spent := again()
	require.True(t, spent.Repeated)
	require.Equal(t, edge.AddDate(0, 0, -1), spent.WindowStart)
	require.Equal(t, "2027-02-28 11, 2027-03-01 1", h.used("calls"))
	require.True(t, h.spend(h.at(edge.AddDate(0, 1, 0)), "a", pool, "calls", 10).Repeated, "a month later too")
}

// The unique key is the last resort: where the counter before does not tell of it, the spend is still one.
func TestTwoWindowsNeverGrantOneID(t *testing.T) {
	t.Parallel()
	h, pool := newPlan(t)
	before, after := h.at(edge.Add(-time.Hour)), h.at(edge.Add(time.Hour)) // no longer near the edge
	spentOnce, letGo, answered := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	goOn := sync.OnceFunc(func() { close(letGo) })
	defer goOn()
	go func() {
		answered <- before.Run(t.Context(), lockorder.Spec{Path: "test-spend-slowly", Kind: lockorder.Plain}, func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := entitlements.SpendIn(ctx, tx, entitlements.Spending{ID: "a", Pool: pool, Key: "calls", N: 10})
			close(spentOnce)
			<-letGo
			return err
		})
	}()
	<-spentOnce
	again := h.spendMeanwhile(after, "a", pool, "calls", 10)
	h.waitUntil("the repeat waits at the unique key", somebodyWaits)
	goOn()
	require.NoError(t, <-answered)
	require.True(t, again().Repeated)
	require.Equal(t, "2027-02-28 10, 2027-03-01 0", h.used("calls"))
}

// 200 spenders while the window ends: no window grants more than its allowance, and no spend is granted in both.
func TestTheEdgeUnderACrowd(t *testing.T) {
	t.Parallel()
	h, pool := newPlan(t)
	_, err := h.pool.Exec(t.Context(), `UPDATE core.set_rules SET numeric_value = 60 WHERE resource_key = 'calls'`)
	require.NoError(t, err)
	h.spend(h.at(edge.Add(-time.Hour)), "before", pool, "calls", 1)
	letGo := h.hold(pool, "calls", edge.AddDate(0, 0, -1))
	f := &forgetful{every: 9}
	crossing := time.Now().Add(2 * time.Second)
	db := h.opened(func(o *lockorder.Options) {
		o.MaxConns = 12
		o.Configure = func(c *pgxpool.Config) {
			f.configure(c)
			c.ConnConfig.RuntimeParams["bursar.clock_offset"] = fmt.Sprintf("%d milliseconds", edge.Sub(crossing).Milliseconds())
		}
	})
	go func() { // the first get through before the edge, the rest wait for it
		time.Sleep(time.Until(crossing) - 600*time.Millisecond)
		letGo()
	}()
	winners := crowd(t, db, pool, "calls", 200, nil)
	require.NotEmpty(t, winners)
	var windows []string
	rows, err := h.pool.Query(t.Context(), `SELECT to_char(u.window_start AT TIME ZONE 'UTC', 'MM-DD') || ' ' || (u.used = count(s.id) AND u.used <= 60 AND bool_and(s.at >= u.window_start AND s.at < s.renews_at))::text
		FROM core.usage u JOIN core.spends s USING (pool_id, resource_key, window_start) GROUP BY u.window_start, u.used ORDER BY u.window_start`)
	require.NoError(t, err)
	windows, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for _, w := range windows {
		require.Contains(t, w, "true", "a window granted more than its allowance, or a spend outside it: %v", windows)
	}
	t.Logf("%d granted, by window: %s; %d answers lost", len(winners), h.used("calls"), f.lost.Load())
}

// Where the counter of the new window may no longer be locked, the transaction is to be tried again: no misuse, and nothing done.
func TestAWindowThatMovesUnderHigherLocks(t *testing.T) {
	t.Parallel()
	h, pool := newPlan(t)
	crossing := time.Now().Add(time.Second)
	db := h.shifted(edge.Sub(crossing))
	err := db.Run(t.Context(), lockorder.Spec{Path: "test-spend-late", Kind: lockorder.Plain}, func(ctx context.Context, tx *lockorder.Tx) error {
		if err := entitlements.LockCounters(ctx, tx, entitlements.Counter{Pool: pool, Key: "calls"}); err != nil {
			return err
		}
		if err := tx.Lock(ctx, lockorder.ResourceKeyRow("calls")); err != nil {
			return err
		}
		var seen entitlements.SeenUsage
		if err := seen.Read(ctx, tx, entitlements.Counter{Pool: pool, Key: "calls"}, "a"); err != nil {
			return err
		}
		time.Sleep(time.Until(crossing.Add(20 * time.Millisecond)))
		_, err := entitlements.SpendSeen(ctx, tx, entitlements.Spending{ID: "a", Pool: pool, Key: "calls", N: 1}, seen)
		return err
	})
	require.ErrorIs(t, err, entitlements.ErrWindowMoved)
	require.Equal(t, lockorder.VerdictBusy, lockorder.VerdictOf(err))
	require.True(t, errors.Is(err, lockorder.ErrBusy))
	require.Empty(t, h.used("calls"))
}
