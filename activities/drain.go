package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/activity"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/lockpath"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows/contract"
)

// DrainStarter starts the drain of a change where none runs.
type DrainStarter interface {
	StartDrain(ctx context.Context, change string) error
}

// Drain are the activities that settle what changes owe pools.
type Drain struct {
	DB      *lockorder.DB
	Starter DrainStarter
}

const (
	// drainPage is how many pools are read at once: that many ids are all that a drain holds in memory.
	drainPage = 500
	// drainTurn is after how long a turn ends, so that its workflow can tell how far it is. Nothing depends on it.
	drainTurn = time.Minute
	// drainPatience is from which pass on a pool that is always busy counts as one that cannot be settled.
	drainPatience = 4
	// mostBusy is how many pools one after another may be busy until the turn is given up: then it is the database that is.
	mostBusy = 20
)

// drainProgress is what DrainChange heartbeats: what it has done, and the pool that it did last.
type drainProgress struct {
	After                 uuid.UUID
	Settled, Failed, Busy int
}

// DrainChange settles pools that a change owes, in the order of their ids, one short transaction after another, for a minute or
// until the pass is through. A pool that cannot be settled rolls back; why is noted in a transaction of its own, after
// entitlements.MaxAttempts tries it is parked, and the others go on. A pool that somebody holds is left to the next pass.
//
// Running it twice is safe: a pool that owes nothing any more is not listed, and one that is settled meanwhile has nothing to be
// settled. A try whose failure was noted and not heartbeated is made, and noted, once more.
func (d *Drain) DrainChange(ctx context.Context, request contract.DrainRequest) (contract.DrainTurn, error) {
	turn, err := d.drain(ctx, request)
	return turn, translate(ctx, err)
}

func (d *Drain) drain(ctx context.Context, request contract.DrainRequest) (contract.DrainTurn, error) {
	change, err := uuid.Parse(request.ChangeID)
	if err != nil {
		return contract.DrainTurn{}, fmt.Errorf("%w: change %q: %w", entitlements.ErrInvalid, request.ChangeID, err)
	}
	var at drainProgress
	if request.After != "" {
		if at.After, err = uuid.Parse(request.After); err != nil {
			return contract.DrainTurn{}, fmt.Errorf("%w: pool %q: %w", entitlements.ErrInvalid, request.After, err)
		}
	}
	if activity.HasHeartbeatDetails(ctx) {
		var resumed drainProgress
		if activity.GetHeartbeatDetails(ctx, &resumed) == nil { // written in another form by another version: begin the turn anew
			at = resumed
		}
	}
	through, err := d.turn(ctx, change, request.Pass, &at)
	if err != nil {
		return contract.DrainTurn{}, err
	}
	turn := contract.DrainTurn{Settled: at.Settled, Failed: at.Failed, Busy: at.Busy}
	if !through {
		turn.After = at.After.String()
	}
	left, err := reading(ctx, func(ctx context.Context) (left [2]int, err error) {
		left[0], left[1], err = entitlements.CountObligations(ctx, d.DB.Reader(), change)
		return left, err
	})
	turn.Open, turn.Parked = left[0], left[1]
	return turn, err
}

// turn goes on from at until the pass is through or the turn's time is over.
func (d *Drain) turn(ctx context.Context, change uuid.UUID, pass int, at *drainProgress) (through bool, err error) {
	begun, busy := time.Now(), 0
	for {
		page, err := reading(ctx, func(ctx context.Context) ([]uuid.UUID, error) {
			return entitlements.OpenObligations(ctx, d.DB.Reader(), change, at.After, drainPage)
		})
		if err != nil {
			return false, err
		}
		for _, pool := range page {
			switch err := d.settle(ctx, pool); outcomeOf(ctx, err) {
			case poolSettled:
				at.Settled++
				busy = 0
			case poolBusy:
				if busy++; busy >= mostBusy {
					return false, err
				}
				if pass < drainPatience {
					at.Busy++
					break
				}
				fallthrough
			case poolFailed:
				if err := d.fail(ctx, change, pool, err); err != nil {
					return false, err
				}
				at.Failed++
			default:
				return false, err
			}
			at.After = pool
			activity.RecordHeartbeat(ctx, *at)
			if time.Since(begun) >= drainTurn {
				return false, nil
			}
		}
		if len(page) < drainPage {
			return true, nil
		}
	}
}

// settle settles what one pool is owed: that is all that locking it does.
func (d *Drain) settle(ctx context.Context, pool uuid.UUID) error {
	return d.DB.Run(ctx, lockpath.RuleChangeDrain.Spec(), func(ctx context.Context, tx *lockorder.Tx) error {
		return entitlements.LockPools(ctx, tx, pool)
	})
}

func (d *Drain) fail(ctx context.Context, change, pool uuid.UUID, why error) error {
	return d.DB.Run(ctx, lockpath.RuleChangeFailure.Spec(), func(ctx context.Context, tx *lockorder.Tx) error {
		_, err := entitlements.FailObligation(ctx, tx, change, pool, storable(textOf(why)))
		return err
	})
}

// poolOutcome is what became of one pool of a drain.
type poolOutcome int

const (
	poolSettled poolOutcome = iota + 1
	poolFailed              // it cannot be settled
	poolBusy                // somebody holds it, or the database has too much to do
	drainBroken             // the failure is not the pool's: no other would fare better
)

func outcomeOf(ctx context.Context, err error) poolOutcome {
	if err == nil {
		return poolSettled
	}
	if ctx.Err() != nil {
		return drainBroken
	}
	switch lockorder.VerdictOf(err) {
	case lockorder.VerdictOther, lockorder.VerdictConflict:
		return poolFailed
	case lockorder.VerdictBusy, lockorder.VerdictLockTimeout, lockorder.VerdictDeadlock, lockorder.VerdictSerialization:
		return poolBusy
	}
	return drainBroken
}

// StartDrains starts the drain of every change that owes pools and has none running, and returns how many changes owe. One that
// cannot be started does not stop the others.
//
// Running it twice is safe: a drain has one id for its change, and where one runs, it is enough.
func (d *Drain) StartDrains(ctx context.Context) (contract.DrainStartResult, error) {
	result, err := d.start(ctx)
	return result, translate(ctx, err)
}

func (d *Drain) start(ctx context.Context) (contract.DrainStartResult, error) {
	owing, err := reading(ctx, func(ctx context.Context) ([]uuid.UUID, error) {
		return entitlements.OpenChanges(ctx, d.DB.Reader())
	})
	if err != nil {
		return contract.DrainStartResult{}, err
	}
	var errs []error
	for _, change := range owing {
		if err := d.Starter.StartDrain(ctx, change.String()); err != nil {
			errs = append(errs, err)
		}
		activity.RecordHeartbeat(ctx)
	}
	if n := len(errs); n > 0 {
		return contract.DrainStartResult{}, fmt.Errorf("%d of %d drains could not be started, among them: %w", n, len(owing), errors.Join(errs[:min(n, shownFailures)]...))
	}
	return contract.DrainStartResult{Owing: len(owing)}, nil
}
