package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.temporal.io/sdk/activity"

	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/internal/lockpath"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows/contract"
)

// Signaler reaches the workflow of a subscription, starting it where none runs. When it returns nil, the signal is not
// forgotten any more.
type Signaler interface {
	SignalReconcile(ctx context.Context, subscriptionID string, sig contract.ReconcileSignal) error
}

// Parked are the activities about parked work.
type Parked struct {
	DB       *lockorder.DB
	Signaler Signaler
}

// CauseParkedRetry is the event type of the signals that RetryParked sends.
const CauseParkedRetry = "parked-retry"

// retryProgress is what RetryParked heartbeats: up to where everything has been signalled.
type retryProgress struct {
	After     billing.ParkedKey
	Due       int
	Signalled int
}

// RetryParked signals the workflow of every parked subscription or checkout that is due, page by page, and clears the
// retries that were asked for once they are handed on. A signal that fails does not stop the others; at the end the activity then
// fails, retryable, and goes on from the first that failed. The counts are of parked rows.
//
// Running it twice is safe: a second signal costs one read of Stripe at most, since a workflow reads once for all the
// signals it has. A row whose signal was sent and whose request was not cleared is signalled again; a request made after the list was
// read is not cleared.
func (p *Parked) RetryParked(ctx context.Context) (contract.ParkedRetryResult, error) {
	result, err := p.retry(ctx)
	return result, translate(ctx, err)
}

func (p *Parked) retry(ctx context.Context) (contract.ParkedRetryResult, error) {
	var resume retryProgress
	if activity.HasHeartbeatDetails(ctx) {
		if err := activity.GetHeartbeatDetails(ctx, &resume); err != nil {
			resume = retryProgress{} // written in another form by another version: begin at the start
		}
	}
	at, failed := resume, 0
	var shown []error
	for {
		page, err := reading(ctx, func(ctx context.Context) ([]billing.Due, error) {
			return billing.ListDue(ctx, p.DB.Reader(), at.After, billing.PageSize)
		})
		if err != nil {
			return contract.ParkedRetryResult{}, err
		}
		handed := make([]billing.Due, 0, len(page))
		for _, due := range page {
			at.After, at.Due = due.ParkedKey, at.Due+1
			if err := p.signal(ctx, due); err == nil {
				at.Signalled++
				handed = append(handed, due)
			} else if ctx.Err() != nil {
				return contract.ParkedRetryResult{}, fmt.Errorf("stopped after %d signals: %w", at.Signalled, context.Cause(ctx))
			} else if failed++; failed <= shownFailures {
				shown = append(shown, err)
			}
			if failed == 0 {
				resume = at
			}
			activity.RecordHeartbeat(ctx, resume)
		}
		if err := p.handOn(ctx, handed); err != nil {
			return contract.ParkedRetryResult{}, err
		}
		if len(page) < billing.PageSize {
			break
		}
	}
	if failed > 0 {
		return contract.ParkedRetryResult{}, fmt.Errorf("%d of %d parked objects that are due could not be signalled, among them: %w", failed, at.Due, errors.Join(shown...))
	}
	return contract.ParkedRetryResult{Due: at.Due, Signalled: at.Signalled}, nil
}

// shownFailures is how many failed signals an error tells of.
const shownFailures = 3

func (p *Parked) signal(ctx context.Context, due billing.Due) error {
	signal := contract.ReconcileSignal{EventType: CauseParkedRetry}
	if due.Kind == billing.ParkedCheckout {
		signal.CheckoutSession = due.ObjectID // so that the link is tried again before the read
	}
	return p.Signaler.SignalReconcile(ctx, due.SubscriptionID, signal)
}

// handOn clears the requests of the rows that were signalled.
func (p *Parked) handOn(ctx context.Context, handed []billing.Due) error {
	requested := slices.DeleteFunc(handed, func(d billing.Due) bool { return d.RequestedAt == nil })
	if len(requested) == 0 {
		return nil
	}
	return p.DB.Run(ctx, lockpath.ParkedRetry.Spec(), func(ctx context.Context, tx *lockorder.Tx) error {
		return billing.HandedOn(ctx, tx, requested)
	})
}
