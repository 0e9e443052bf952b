package entitlements

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bursarhq/bursar/lockorder"
)

// inWindow locks the counter of the present window and does what do does to it. Only the clock knows which window that is,
// and it goes on while a lock is waited for: do tells by a clock read after the lock which window it should have been, and that
// one is locked then. The zero time means that it was done.
func inWindow(ctx context.Context, tx *lockorder.Tx, c Counter, seen seenUsage, do func(window time.Time) (moved time.Time, err error)) error {
	windows := []time.Time{seen.window}
	if seen.before != nil {
		// One that began before the edge may still be open with a spend of the same id. Whoever comes after the edge waits for it here, in
		// order, and not at the unique key.
		windows = []time.Time{*seen.before, seen.window}
	}
	for try := range windowTries {
		if err := lockCounter(ctx, tx, c, windows); err != nil {
			if try > 0 && errors.Is(err, lockorder.ErrOrder) {
				return fmt.Errorf("%s: %w", c, ErrWindowMoved)
			}
			return err
		}
		moved, err := do(windows[len(windows)-1])
		if err != nil || moved.IsZero() {
			return err
		}
		windows = []time.Time{moved}
	}
	return fmt.Errorf("%s: %w", c, ErrWindowMoved)
}

// makeCounter makes a counter that nothing has used.
const makeCounter = `INSERT INTO core.usage (pool_id, resource_key, window_start) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`

// lockCounter locks a counter in windows, ascending, and makes that of the last.
func lockCounter(ctx context.Context, tx *lockorder.Tx, c Counter, windows []time.Time) error {
	last := windows[len(windows)-1]
	if len(windows) > 1 {
		rows := make([]lockorder.Lock, len(windows))
		for i, w := range windows {
			rows[i] = lockorder.UsageRow(c.Pool, c.Key, w)
		}
		missing, err := tx.LockExisting(ctx, rows...)
		if err != nil || !slices.ContainsFunc(missing, func(l lockorder.Lock) bool { return l.Text() == rows[len(rows)-1].Text() }) {
			return err
		}
	}
	_, err := tx.LockOrMake(ctx, lockorder.UsageRow(c.Pool, c.Key, last), makeCounter, c.Pool, c.Key, last)
	return err
}

// LockCounters locks the counters of the present windows, and makes those that are missing, for a transaction that uses
// several, or that takes further locks or reads its time before it uses one. Counters may be named in any order and
// twice. SpendIn and its like then need no further lock, unless a window ends in between: that answers ErrWindowMoved.
func LockCounters(ctx context.Context, tx *lockorder.Tx, counters ...Counter) error {
	type wanted struct {
		Counter
		window time.Time
	}
	all := make([]wanted, 0, len(counters))
	for _, c := range counters {
		if err := c.check(); err != nil {
			return err
		}
		var seen seenUsage
		if err := seen.read(ctx, tx, c, ""); err != nil {
			return err
		}
		if err := seen.check(ctx, tx, c); err != nil {
			return err
		}
		if seen.before != nil {
			all = append(all, wanted{c, *seen.before})
		}
		all = append(all, wanted{c, seen.window})
	}
	// Rows are made one by one, so here, and nowhere else, the order is the caller's: lockorder refuses another.
	slices.SortFunc(all, func(a, b wanted) int {
		return cmp.Or(cmp.Compare(a.Pool.String(), b.Pool.String()), cmp.Compare(a.Key, b.Key), a.window.Compare(b.window))
	})
	for _, w := range all {
		if _, err := tx.LockOrMake(ctx, lockorder.UsageRow(w.Pool, w.Key, w.window), makeCounter, w.Pool, w.Key, w.window); err != nil {
			return err
		}
	}
	return nil
}
