package activities

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/stripeapi"
	"github.com/bursarhq/bursar/lockorder"
)

func TestTranslation(t *testing.T) {
	t.Parallel()
	verdict := func(v lockorder.Verdict) error {
		return fmt.Errorf("wrapped: %w", &lockorder.Error{Verdict: v, Path: "p", Kind: lockorder.Plain, Err: errors.New("why")})
	}
	state := func(code string) error { return fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code}) }
	for _, c := range []struct {
		name     string
		err      error
		errType  string
		final    bool
		from, to time.Duration // of the pause; 0 leaves it to the policy
	}{
		{"busy", verdict(lockorder.VerdictBusy), ErrTypeBusy, false, 500 * time.Millisecond, 2 * time.Second},
		{"lock time-out", verdict(lockorder.VerdictLockTimeout), ErrTypeLockTimeout, false, 500 * time.Millisecond, 2 * time.Second},
		{"deadlock", verdict(lockorder.VerdictDeadlock), ErrTypeDeadlock, false, 100 * time.Millisecond, time.Second},
		{"serialization", verdict(lockorder.VerdictSerialization), ErrTypeSerialization, false, 100 * time.Millisecond, time.Second},
		{"cancelled", verdict(lockorder.VerdictCancelled), ErrTypeCancelled, false, 500 * time.Millisecond, 2 * time.Second},
		{"idle", verdict(lockorder.VerdictIdle), ErrTypeIdle, false, time.Second, 3 * time.Second},
		{"lock table", verdict(lockorder.VerdictLockTableFull), ErrTypeLockTableFull, false, 5 * time.Second, 15 * time.Second},
		{"connection", verdict(lockorder.VerdictConnection), ErrTypeConnection, false, time.Second, 5 * time.Second},
		{"commit unknown", verdict(lockorder.VerdictCommitUnknown), ErrTypeCommitUnknown, false, time.Second, 5 * time.Second},
		{"aborted", verdict(lockorder.VerdictAborted), ErrTypeAborted, false, 0, 0},
		{"conflict", verdict(lockorder.VerdictConflict), ErrTypeConflict, false, 200 * time.Millisecond, 2 * time.Second},
		{"misuse", verdict(lockorder.VerdictMisuse), ErrTypeLockOrderViolation, true, 0, 0},
		{"other", verdict(lockorder.VerdictOther), ErrTypeUnknown, false, 0, 0},
		{"a verdict of a later version", verdict("new"), ErrTypeUnknown, false, 0, 0},

		{"55P03", state("55P03"), ErrTypeLockTimeout, false, 500 * time.Millisecond, 2 * time.Second},
		{"40P01", state("40P01"), ErrTypeDeadlock, false, 100 * time.Millisecond, time.Second},
		{"40001", state("40001"), ErrTypeSerialization, false, 100 * time.Millisecond, time.Second},
		{"57014", state("57014"), ErrTypeCancelled, false, 500 * time.Millisecond, 2 * time.Second},
		{"25P03", state("25P03"), ErrTypeIdle, false, time.Second, 3 * time.Second},
		{"53200", state("53200"), ErrTypeLockTableFull, false, 5 * time.Second, 15 * time.Second},
		{"57P01", state("57P01"), ErrTypeConnection, false, time.Second, 5 * time.Second},
		{"08006", state("08006"), ErrTypeConnection, false, time.Second, 5 * time.Second},
		{"23505", state("23505"), ErrTypeConflict, false, 200 * time.Millisecond, 2 * time.Second},
		{"23P01", state("23P01"), ErrTypeConflict, false, 200 * time.Millisecond, 2 * time.Second},
		{"no rendezvous", state("BU001"), ErrTypeLockOrderViolation, true, 0, 0},
		{"a check", state("23514"), ErrTypeUnknown, false, 0, 0},

		{"rate limited, no word how long", &stripeapi.Error{Kind: stripeapi.KindRateLimited}, ErrTypeStripeRateLimited, false, time.Second, 4 * time.Second},
		{"rate limited", &stripeapi.Error{Kind: stripeapi.KindRateLimited, RetryAfter: 8 * time.Second}, ErrTypeStripeRateLimited, false, 8 * time.Second, 10 * time.Second},
		{"rate limited for an hour", &stripeapi.Error{Kind: stripeapi.KindRateLimited, RetryAfter: time.Hour}, ErrTypeStripeRateLimited, false, 2 * time.Minute, 150 * time.Second},
		{"bad key", &stripeapi.Error{Kind: stripeapi.KindAuth}, ErrTypeStripeAuth, false, 30 * time.Second, time.Minute},
		{"Stripe down", &stripeapi.Error{Kind: stripeapi.KindTransient, Status: 503}, ErrTypeStripeUnavailable, false, 0, 0},
		{"Stripe down for a while", &stripeapi.Error{Kind: stripeapi.KindTransient, Status: 503, RetryAfter: 4 * time.Second}, ErrTypeStripeUnavailable, false, 4 * time.Second, 5 * time.Second},
		{"Stripe down for an hour", &stripeapi.Error{Kind: stripeapi.KindTransient, Status: 503, RetryAfter: time.Hour}, ErrTypeStripeUnavailable, false, 2 * time.Minute, 150 * time.Second},

		{"moving", fmt.Errorf("y: %w", &lockorder.Error{Verdict: lockorder.VerdictOther, Err: fmt.Errorf("x: %w", errMoved)}), ErrTypeSubscriptionMoving, false, 200 * time.Millisecond, time.Second},
		{"not found", fmt.Errorf("x: %w", entitlements.ErrNotFound), ErrTypeNotFound, true, 0, 0},
		{"exists", fmt.Errorf("x: %w", entitlements.ErrExists), ErrTypeAlreadyExists, true, 0, 0},
		{"exhausted", fmt.Errorf("x: %w", &entitlements.Exhausted{N: 1}), ErrTypeExhausted, true, 0, 0},
		{"a window that moved", fmt.Errorf("x: %w", entitlements.ErrWindowMoved), ErrTypeBusy, false, 500 * time.Millisecond, 2 * time.Second},
		{"invalid", fmt.Errorf("x: %w", entitlements.ErrInvalid), ErrTypeInvalidArgument, true, 0, 0},
		{"invalid too", fmt.Errorf("x: %w", billing.ErrInvalid), ErrTypeInvalidArgument, true, 0, 0},
		{"unreadable", &billing.Unreadable{SubscriptionID: "sub_1", Why: "x"}, ErrTypeInvalidArgument, true, 0, 0},
		{"linked elsewhere", fmt.Errorf("x: %w", &billing.ErrLinkedElsewhere{Customer: "cus_1"}), ErrTypeLinkedElsewhere, true, 0, 0},
		{"unknown", errors.New("nobody knows"), ErrTypeUnknown, false, 0, 0},
		{"a deadline", context.DeadlineExceeded, ErrTypeCancelled, false, 500 * time.Millisecond, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 20 { // the pause is random
				var app *temporal.ApplicationError
				require.ErrorAs(t, translate(t.Context(), c.err), &app)
				require.Equal(t, c.errType, app.Type())
				require.Equal(t, c.final, app.NonRetryable())
				require.Equal(t, c.err.Error(), app.Message())
				require.GreaterOrEqual(t, app.NextRetryDelay(), c.from)
				require.LessOrEqual(t, app.NextRetryDelay(), c.to)
			}
		})
	}
	// What a domain says of its own is told without the transaction that it said it in.
	var app *temporal.ApplicationError
	refused := &lockorder.Error{Verdict: lockorder.VerdictOther, Path: "p", Err: fmt.Errorf("no such thing: %w", entitlements.ErrNotFound)}
	require.ErrorAs(t, translate(t.Context(), refused), &app)
	require.Equal(t, "no such thing: not found", app.Message())

	require.NoError(t, translate(t.Context(), nil))
	done := temporal.NewNonRetryableApplicationError("x", "Mine", nil)
	require.Equal(t, done, translate(t.Context(), done), "what was translated stays as it is")
	plain := errors.New("x")
	require.Equal(t, plain, translateInActivity(t.Context(), plain), "a command gets its error as it is")
}
