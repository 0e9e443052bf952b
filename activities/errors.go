package activities

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/stripeapi"
	"github.com/bursarhq/bursar/lockorder"
)

// Types of the errors that activities return, as Temporal shows them. They are part of histories.
const (
	ErrTypeBusy               = "Busy"               // the database refused at once or a budget ran out; nothing was done
	ErrTypeLockTimeout        = "LockTimeout"        // a wait for a lock ended; nothing was done
	ErrTypeDeadlock           = "Deadlock"           // two transactions waited for each other; nothing was done
	ErrTypeSerialization      = "Serialization"      // nothing was done
	ErrTypeCancelled          = "Cancelled"          // the worker is stopping, or time ran out
	ErrTypeIdle               = "IdleInTransaction"  // the process stood still with a transaction open; nothing was done
	ErrTypeLockTableFull      = "LockTableFull"      // the server's table of locks is full
	ErrTypeConnection         = "ConnectionLost"     // the database went away; nothing was done
	ErrTypeCommitUnknown      = "CommitUnknown"      // the answer to COMMIT was lost; it may have been done
	ErrTypeAborted            = "Aborted"            // a statement had failed and its error was not passed on
	ErrTypeHeldTooLong        = "HeldTooLong"        // the work held the exclusive rendezvous for longer than it may; nothing was done
	ErrTypeConflict           = "Conflict"           // another row stood in the way
	ErrTypeLockOrderViolation = "LockOrderViolation" // a bug: locks out of order, or without the rendezvous
	ErrTypeGrantMoving        = "GrantMoving"        // others acted on the line of grants during every try; nothing was done
	ErrTypeSubscriptionMoving = "SubscriptionMoving" // others committed during every read
	ErrTypeStripeRateLimited  = "StripeRateLimited"
	ErrTypeStripeAuth         = "StripeAuth"
	ErrTypeStripeUnavailable  = "StripeUnavailable"
	ErrTypeNotFound           = "NotFound"
	ErrTypeAlreadyExists      = "AlreadyExists"
	ErrTypeInvalidArgument    = "InvalidArgument"
	ErrTypeLinkedElsewhere    = "LinkedElsewhere"
	ErrTypeOwedUnsettled      = "OwedUnsettled"    // what a change owes a pool cannot be settled, so nothing can be done with the pool
	ErrTypeChangeInProgress   = "ChangeInProgress" // an earlier change has not reached everyone yet
	ErrTypeExhausted          = "Exhausted"        // an allowance does not hold what was asked for; nothing was done
	ErrTypeUnknown            = "Unknown"          // nothing that this table knows
)

// errMoved says that a reconcile committed while Stripe was read.
var errMoved = errors.New("another reconcile committed while Stripe was read")

// rule says what becomes of one sort of failure.
type rule struct {
	errType string
	// final: trying again cannot help.
	final bool
	// from and to bound the pause before the next try; 0 leaves it to the workflow's retry policy. The pause is random between
	// them, so that those who collided do not meet again.
	from, to time.Duration
	// expected in normal operation, and no cause for an alert.
	expected bool
}

// verdicts is the table for failures of the database.
var verdicts = map[lockorder.Verdict]rule{
	lockorder.VerdictBusy:          {errType: ErrTypeBusy, from: 500 * time.Millisecond, to: 2 * time.Second, expected: true},
	lockorder.VerdictLockTimeout:   {errType: ErrTypeLockTimeout, from: 500 * time.Millisecond, to: 2 * time.Second, expected: true},
	lockorder.VerdictDeadlock:      {errType: ErrTypeDeadlock, from: 100 * time.Millisecond, to: time.Second},
	lockorder.VerdictSerialization: {errType: ErrTypeSerialization, from: 100 * time.Millisecond, to: time.Second},
	lockorder.VerdictCancelled:     {errType: ErrTypeCancelled, from: 500 * time.Millisecond, to: 2 * time.Second},
	lockorder.VerdictIdle:          {errType: ErrTypeIdle, from: time.Second, to: 3 * time.Second},
	lockorder.VerdictLockTableFull: {errType: ErrTypeLockTableFull, from: 5 * time.Second, to: 15 * time.Second},
	lockorder.VerdictConnection:    {errType: ErrTypeConnection, from: time.Second, to: 5 * time.Second},
	lockorder.VerdictCommitUnknown: {errType: ErrTypeCommitUnknown, from: time.Second, to: 5 * time.Second},
	lockorder.VerdictAborted:       {errType: ErrTypeAborted},
	lockorder.VerdictConflict:      {errType: ErrTypeConflict, from: 200 * time.Millisecond, to: 2 * time.Second},
	lockorder.VerdictHeldTooLong:   {errType: ErrTypeHeldTooLong, from: 5 * time.Second, to: 15 * time.Second},
	lockorder.VerdictMisuse:        {errType: ErrTypeLockOrderViolation, final: true},
	lockorder.VerdictOther:         {errType: ErrTypeUnknown},
}

// rendezvousMissing is the SQLSTATE of core.assert_rendezvous.
const rendezvousMissing = "BU001"

// judge finds the rule for an error that is not nil. What is more specific comes first: an error of Stripe may carry a context's end,
// which is no verdict on the database.
func judge(err error) rule {
	var stripeErr *stripeapi.Error
	var elsewhere *billing.ErrLinkedElsewhere
	var unreadable *billing.Unreadable
	switch {
	case errors.Is(err, errMoved):
		return rule{errType: ErrTypeSubscriptionMoving, from: 200 * time.Millisecond, to: time.Second, expected: true}
	case errors.Is(err, entitlements.ErrGrantMoved):
		return rule{errType: ErrTypeGrantMoving, from: 200 * time.Millisecond, to: time.Second, expected: true}
	case stripeapi.IsRateLimited(err):
		if wait := retryAfter(err); wait > 0 {
			return rule{errType: ErrTypeStripeRateLimited, from: wait, to: wait + wait/4, expected: true}
		}
		return rule{errType: ErrTypeStripeRateLimited, from: time.Second, to: 4 * time.Second, expected: true}
	case stripeapi.IsAuth(err):
		// A key that is refused is mended by an operator; parking every subscription meanwhile would only bury that.
		return rule{errType: ErrTypeStripeAuth, from: 30 * time.Second, to: time.Minute}
	case errors.As(err, &stripeErr):
		wait := retryAfter(err)
		return rule{errType: ErrTypeStripeUnavailable, from: wait, to: wait + wait/4}
	case lockorder.SQLState(err) == rendezvousMissing:
		return rule{errType: ErrTypeLockOrderViolation, final: true}
	case errors.Is(err, entitlements.ErrOwed):
		return rule{errType: ErrTypeOwedUnsettled, final: true}
	case errors.Is(err, entitlements.ErrInProgress):
		return rule{errType: ErrTypeChangeInProgress, final: true, expected: true}
	case errors.As(err, &elsewhere):
		return rule{errType: ErrTypeLinkedElsewhere, final: true}
	case errors.Is(err, entitlements.ErrExhausted):
		return rule{errType: ErrTypeExhausted, final: true, expected: true}
	case errors.Is(err, entitlements.ErrNotFound):
		return rule{errType: ErrTypeNotFound, final: true}
	case errors.Is(err, entitlements.ErrExists):
		return rule{errType: ErrTypeAlreadyExists, final: true}
	case errors.Is(err, billing.ErrInvalid), errors.Is(err, entitlements.ErrInvalid), errors.As(err, &unreadable):
		return rule{errType: ErrTypeInvalidArgument, final: true}
	}
	if r, ok := verdicts[lockorder.VerdictOf(err)]; ok {
		return r
	}
	return rule{errType: ErrTypeUnknown}
}

// longestRetryAfter bounds the pause that Stripe asks for. Temporal ends an activity at once when its next try would lie beyond its
// time, and then nothing of the pause is kept.
const longestRetryAfter = 2 * time.Minute

func retryAfter(err error) time.Duration { return min(stripeapi.RetryAfter(err), longestRetryAfter) }

// translate turns an error into the one that Temporal gets; nil stays nil. It is called once, where an activity returns. The
// text is carried over; the chain of wrapped errors is not, since a history cannot hold it.
func translate(ctx context.Context, err error) error {
	var done *temporal.ApplicationError
	if err == nil || errors.As(err, &done) {
		return err
	}
	r := judge(err)
	countFailure(ctx, r.errType)
	options := temporal.ApplicationErrorOptions{NonRetryable: r.final}
	if !r.final && r.to > 0 {
		options.NextRetryDelay = r.from + time.Duration(rand.Int64N(int64(r.to-r.from)+1))
	}
	if r.expected {
		options.Category = temporal.ApplicationErrorCategoryBenign
	}
	return temporal.NewApplicationErrorWithOptions(textOf(err), r.errType, options)
}

// textOf is an error's text for a person. Where a domain refused, what it says is all: which transaction it was in helps nobody.
func textOf(err error) string {
	if tx, ok := err.(*lockorder.Error); ok && tx.Verdict == lockorder.VerdictOther && tx.Doing == "" {
		return tx.Err.Error()
	}
	return err.Error()
}

// translateInActivity is translate where an activity runs; a command that calls the same method gets the error as it is.
func translateInActivity(ctx context.Context, err error) error {
	if !activity.IsActivity(ctx) {
		return err
	}
	return translate(ctx, err)
}

func countFailure(ctx context.Context, errType string) {
	counter, err := otel.Meter("github.com/bursarhq/bursar/activities").Int64Counter("bursar.activity.failures",
		metric.WithDescription("Failures that activities returned, by type. LockOrderViolation is a bug."))
	if err == nil {
		counter.Add(ctx, 1, metric.WithAttributes(attribute.String("type", errType)))
	}
}
