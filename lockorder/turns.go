package lockorder

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// A rule change waits for the exclusive rendezvous in turns, since one that waits keeps every new shared taker
// behind it. Turns grow from the first to the longest; the pause after a turn is at least as long as it was, and at
// least the leastPause: the first back-off of a transaction that was refused with ErrBusy, which so gets through.
const (
	firstTurn   = 250 * time.Millisecond
	longestTurn = 2 * time.Second
	leastPause  = 500 * time.Millisecond
)

// turn is one try of a rule change: a transaction of its own.
type turn struct {
	began  time.Time     // when Run began
	number int           // counted from one
	length time.Duration // how long it may wait for the rendezvous
	over   bool          // something was busy; another turn may find it free
}

// no is the turn's number, 0 where there are no turns.
func (t *turn) no() int {
	if t == nil {
		return 0
	}
	return t.number
}

// turnLength is the length of a turn, up to a fifth less than the full one: two rule changes do not keep step.
func turnLength(number int) time.Duration {
	full := longestTurn
	if n := number - 1; n < 3 {
		full = firstTurn << n
	}
	return full - rand.N(full/5)
}

// pauseAfter is the pause after a turn, up to a quarter more than the least.
func pauseAfter(turn time.Duration) time.Duration {
	least := max(turn, leastPause)
	return least + rand.N(least/4)
}

// runInTurns runs a rule change, turn by turn, until one commits, fails for another reason than a busy lock, or no
// further one fits into the budget. It has no connection between two turns.
func (db *DB) runInTurns(ctx context.Context, spec Spec, keys []Lock, deadline time.Time, fn func(ctx context.Context, tx *Tx) error) error {
	t := turn{began: time.Now()}
	var refused error // how the last turn ended
	for {
		t.number++
		t.over, t.length = false, min(turnLength(t.number), max(time.Until(deadline), time.Millisecond))
		err := db.runOnce(ctx, spec, keys, deadline, &t, fn)
		switch {
		case err == nil:
			return nil
		case VerdictOf(err) == VerdictHeldTooLong:
			return err
		case t.over, refused != nil && errors.Is(err, errBudget):
			refused = err
		default:
			return err
		}
		pause := pauseAfter(t.length)
		if time.Until(deadline) <= pause {
			return changeInProgress(ctx, spec, &t, refused)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fail(ctx, spec, failedStep("between two turns", fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx))))
		}
	}
}

// changeInProgress is the answer of a rule change whose budget ended while something was busy.
func changeInProgress(ctx context.Context, spec Spec, t *turn, last error) error {
	return fail(ctx, spec, fmt.Errorf("%w; it took %d turns in %s, and the last ended so: %w",
		ErrChangeInProgress, t.number, time.Since(t.began).Round(time.Millisecond), last))
}

// granted notes that the exclusive rendezvous was granted: from here to COMMIT the hold is budgeted.
func (tx *Tx) granted() {
	if until := time.Now().Add(tx.db.opts.ExclusiveHold); until.Before(tx.deadline) {
		tx.deadline, tx.overdue = until, ErrHeldTooLong
	}
}
