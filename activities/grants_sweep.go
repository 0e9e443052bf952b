package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.temporal.io/sdk/activity"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/lockpath"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows/contract"
)

// Grants are the activities about grants that nobody asks for.
type Grants struct {
	DB *lockorder.DB
}

const (
	// grantPage is how many due grants are read at once.
	grantPage = 500
	// sweepFor is how long one activity works before it hands over to the next, well within its own time.
	sweepFor = 2 * time.Minute
)

// SweepGrants expires the grants whose end has come, then settles the pools of those that have begun, from where the cursor
// says, a page after another and each grant in its own transaction. One that fails does not stop the others: its reason is
// kept with it and the next sweep tries it again. After some minutes the activity stops and says that there is more.
//
// Running it twice is safe: a grant that is expired, or has begun, is due no more. After a crash it goes on from the last
// heartbeat, and counts again what came after.
func (g *Grants) SweepGrants(ctx context.Context, from contract.GrantCursor) (contract.GrantSweep, error) {
	done := contract.GrantSweep{From: from}
	if activity.HasHeartbeatDetails(ctx) {
		if err := activity.GetHeartbeatDetails(ctx, &done); err != nil {
			done = contract.GrantSweep{From: from} // written in another form by another version: begin where this one was told to
		}
	}
	err := g.sweep(ctx, &done, time.Now().Add(sweepFor))
	return done, translate(ctx, err)
}

// sweep works until it is through, or until the time given, and leaves what it did in done.
func (g *Grants) sweep(ctx context.Context, done *contract.GrantSweep, until time.Time) error {
	for {
		list := entitlements.EndingGrants
		if done.From.Beginning {
			list = entitlements.BeginningGrants
		}
		page, err := reading(ctx, func(ctx context.Context) ([]entitlements.DueGrant, error) {
			return list(ctx, g.DB.Reader(), entitlements.DueGrant{At: done.From.At, ID: done.From.ID}, grantPage)
		})
		if err != nil {
			return err
		}
		for _, due := range page {
			if err := g.one(ctx, due, done); err != nil {
				return err
			}
			done.From.At, done.From.ID = due.At, due.ID
			activity.RecordHeartbeat(ctx, *done)
		}
		switch {
		case len(page) == grantPage && time.Now().After(until):
			done.More = true
			return nil
		case len(page) == grantPage:
		case done.From.Beginning:
			done.More, done.From = false, contract.GrantCursor{}
			return nil
		default:
			done.From = contract.GrantCursor{Beginning: true}
		}
	}
}

// one does what is due of one grant, and counts it. An error says that no other grant could be done either.
func (g *Grants) one(ctx context.Context, due entitlements.DueGrant, done *contract.GrantSweep) error {
	did := entitlements.SweptNothing
	err := g.DB.Run(ctx, lockpath.GrantExpire.Spec(), func(ctx context.Context, tx *lockorder.Tx) (err error) {
		did, err = entitlements.SweepGrant(ctx, tx, entitlements.Act{Name: lockpath.GrantExpire.Name, Workflow: workflowID(ctx)}, due)
		return err
	})
	outcome := did
	switch {
	case err == nil && did == entitlements.SweptExpired:
		done.Expired++
	case err == nil && did == entitlements.SweptBegun:
		done.Begun++
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("stopped after %d grants: %w", done.Expired+done.Begun, context.Cause(ctx))
	case goneWith(err):
		return err
	case entitlements.Transient(err):
		done.Deferred++
		outcome = "deferred"
	default:
		done.Failed++
		outcome = "failed"
		activity.GetLogger(ctx).Error("a grant that is due could not be swept; the next sweep tries it again", "grant", due.ID, "pool", due.Pool, "error", err)
		if err := g.fail(ctx, due, err); err != nil {
			return err
		}
	}
	countSwept(ctx, outcome)
	return nil
}

// fail keeps why a grant could not be swept.
func (g *Grants) fail(ctx context.Context, due entitlements.DueGrant, cause error) error {
	err := g.DB.Run(ctx, lockpath.GrantFailure.Spec(), func(ctx context.Context, tx *lockorder.Tx) error {
		return entitlements.FailGrant(ctx, tx, due.ID, textOf(cause))
	})
	if err != nil && !goneWith(err) && entitlements.Transient(err) {
		return nil // somebody acts on the grant right now; the reason is in the log
	}
	return err
}

// goneWith tells the failures that the next grant would meet too.
func goneWith(err error) bool {
	switch lockorder.VerdictOf(err) {
	case lockorder.VerdictConnection, lockorder.VerdictCommitUnknown, lockorder.VerdictLockTableFull:
		return true
	}
	return errors.Is(err, errReading)
}

func countSwept(ctx context.Context, outcome string) {
	counter, err := otel.Meter("github.com/bursarhq/bursar/activities").Int64Counter("bursar.grants.swept",
		metric.WithDescription("Grants that the sweep came by, by outcome: expired, begun, deferred (its locks were busy), failed."))
	if err == nil {
		counter.Add(ctx, 1, metric.WithAttributes(attribute.String("outcome", outcome)))
	}
}
