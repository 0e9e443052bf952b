package workflows

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/bursarhq/bursar/workflows/contract"
)

func TestAFailureForGoodIsParked(t *testing.T) {
	b := newBench(t, time.Second)
	b.onRead = func(n int) (contract.ReconcileResult, error) {
		if n == 1 {
			return contract.ReconcileResult{}, temporal.NewNonRetryableApplicationError("lock out of order", "LockOrderViolation", nil)
		}
		return contract.ReconcileResult{Outcome: contract.OutcomeApplied}, nil
	}
	var a *answer
	b.at(500*time.Millisecond, func() { a = b.update("u1", contract.ReconcileSignal{EventType: "operator"}) })
	b.start(event(0))
	result := b.result(t)
	require.Equal(t, []contract.ParkRequest{{SubscriptionID: testSubscription, Reason: "lock out of order", Events: []contract.ReconcileSignal{event(0)}}}, b.parks)
	require.Equal(t, contract.OutcomeApplied, result.Last.Outcome, "it goes on after parking")
	require.Equal(t, contract.OutcomeApplied, a.result.Outcome)
}

func TestTheUpdateOfAParkedReadIsTold(t *testing.T) {
	b := newBench(t, time.Second)
	b.onRead = func(n int) (contract.ReconcileResult, error) {
		return contract.ReconcileResult{}, temporal.NewNonRetryableApplicationError("lock out of order", "LockOrderViolation", nil)
	}
	var a *answer
	b.at(500*time.Millisecond, func() { a = b.update("u1", contract.ReconcileSignal{EventType: "operator"}) })
	b.start(event(0))
	require.Equal(t, contract.OutcomeParked, b.result(t).Last.Outcome)
	require.NoError(t, a.failed)
	require.Equal(t, contract.OutcomeParked, a.result.Outcome)
	require.Contains(t, a.result.Detail, "lock out of order")
	require.Len(t, b.parks, 2)
}

func TestWhatCannotEvenBeParkedFailsTheRun(t *testing.T) {
	b := newBench(t, 0)
	b.onRead = func(n int) (contract.ReconcileResult, error) {
		return contract.ReconcileResult{}, temporal.NewNonRetryableApplicationError("lock out of order", "LockOrderViolation", nil)
	}
	b.onPark = func(int) error {
		return temporal.NewNonRetryableApplicationError("no such table", "Schema", nil)
	}
	b.start(event(0))
	require.True(t, b.IsWorkflowCompleted())
	require.ErrorContains(t, b.GetWorkflowError(), "no such table")
}

func TestAnOutageRollsOverAndNeverGivesUp(t *testing.T) {
	b := newBench(t, 0)
	b.onRead = func(n int) (contract.ReconcileResult, error) {
		return contract.ReconcileResult{}, errors.New("stripe does not answer")
	}
	var a *answer
	b.at(time.Minute, func() { b.signal(event(1)) })
	b.at(2*time.Minute, func() { a = b.update("u1", contract.ReconcileSignal{EventType: "operator"}) })
	b.start(event(0))
	in := b.continued(t)
	require.Equal(t, testSubscription, in.SubscriptionID)
	require.ElementsMatch(t, []contract.ReconcileSignal{event(0), event(1), {EventType: "operator"}}, in.Carried)
	require.Equal(t, maxLinger, in.Linger)
	require.Equal(t, 2, in.Reconciles, "one for the signals, one for the update")
	require.True(t, a.done)
	require.ErrorContains(t, a.failed, "goes on being tried")
	require.ErrorContains(t, a.failed, "stripe does not answer")
	require.Empty(t, b.parks, "an outage is not parked")
}

// What the server answers for an activity: the end of its time in the middle of a try is an outage, although the server calls it
// not retryable.
func TestWhichFailuresArePermanent(t *testing.T) {
	timeout := func(kind enumspb.TimeoutType) *failurepb.Failure {
		return &failurepb.Failure{FailureInfo: &failurepb.Failure_TimeoutFailureInfo{TimeoutFailureInfo: &failurepb.TimeoutFailureInfo{TimeoutType: kind}}}
	}
	application := func(final bool) *failurepb.Failure {
		return &failurepb.Failure{FailureInfo: &failurepb.Failure_ApplicationFailureInfo{ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{Type: "T", NonRetryable: final}}}
	}
	for name, c := range map[string]struct {
		state enumspb.RetryState
		cause *failurepb.Failure
		want  bool
	}{
		"time is over during a try":    {enumspb.RETRY_STATE_NON_RETRYABLE_FAILURE, timeout(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE), false},
		"time is over before a try":    {enumspb.RETRY_STATE_TIMEOUT, timeout(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START), false},
		"time is over between tries":   {enumspb.RETRY_STATE_TIMEOUT, application(false), false},
		"said by the activity":         {enumspb.RETRY_STATE_NON_RETRYABLE_FAILURE, application(true), true},
		"said by the policy's types":   {enumspb.RETRY_STATE_NON_RETRYABLE_FAILURE, application(false), true},
		"cancelled while it was tried": {enumspb.RETRY_STATE_NON_RETRYABLE_FAILURE, &failurepb.Failure{FailureInfo: &failurepb.Failure_CanceledFailureInfo{CanceledFailureInfo: &failurepb.CanceledFailureInfo{}}}, false},
	} {
		err := temporal.GetDefaultFailureConverter().FailureToError(&failurepb.Failure{
			Cause:       c.cause,
			FailureInfo: &failurepb.Failure_ActivityFailureInfo{ActivityFailureInfo: &failurepb.ActivityFailureInfo{RetryState: c.state}},
		})
		require.Equal(t, c.want, permanent(err), name)
	}
}

// When a failure asks for a longer pause than an activity's tries have time for, the next run begins with it.
func TestThePauseThatAFailureAsksForIsKept(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{2 * time.Minute: 2 * time.Minute, time.Hour: maxAskedPause, time.Second: maxLinger} {
		b := newBench(t, 0)
		b.onRead = func(int) (contract.ReconcileResult, error) {
			return contract.ReconcileResult{}, temporal.NewApplicationErrorWithOptions("slow down", "StripeRateLimited", temporal.ApplicationErrorOptions{NextRetryDelay: asked})
		}
		b.start(event(0))
		require.Equal(t, want, b.continued(t).Linger)
	}
}

// A worker of another version may send what this one cannot decode. The next try may meet one that can.
func TestAnInputThatCannotBeDecodedIsTriedAgain(t *testing.T) {
	b := newBench(t, 0)
	unreadableTimes = 3
	b.RegisterActivityWithOptions(func(context.Context, picky) (contract.ReconcileResult, error) {
		return contract.ReconcileResult{Outcome: contract.OutcomeApplied}, nil
	}, activity.RegisterOptions{Name: contract.ActivityReconcileSubscription, DisableAlreadyRegisteredCheck: true})
	b.start(event(0))
	require.Equal(t, contract.OutcomeApplied, b.result(t).Last.Outcome)
	require.Zero(t, unreadableTimes)
	require.Empty(t, b.parks)
}

// picky cannot be decoded the first unreadableTimes.
type picky struct{}

var unreadableTimes int

func (*picky) UnmarshalJSON([]byte) error {
	if unreadableTimes > 0 {
		unreadableTimes--
		return errors.New("a field of another version")
	}
	return nil
}

func TestAFailedReadOfNoSignalIsTriedAgain(t *testing.T) {
	b := newBench(t, 0)
	b.onRead = func(int) (contract.ReconcileResult, error) {
		return contract.ReconcileResult{}, errors.New("stripe does not answer")
	}
	b.ExecuteWorkflow(contract.SubscriptionReconcile, contract.SubscriptionReconcileInput{
		SubscriptionID: testSubscription, Reconciles: 3, CarriedOmitted: 2, Linger: time.Second,
	})
	in := b.continued(t)
	require.Equal(t, 2, in.CarriedOmitted)
	require.Equal(t, 4, in.Reconciles)
}

func TestAShortOutageIsRetriedInPlace(t *testing.T) {
	b := newBench(t, 0)
	b.onRead = func(n int) (contract.ReconcileResult, error) {
		if n < 5 {
			return contract.ReconcileResult{}, errors.New("stripe does not answer")
		}
		return contract.ReconcileResult{Outcome: contract.OutcomeApplied}, nil
	}
	b.start(event(0))
	require.Equal(t, 1, b.result(t).Reconciles)
	require.Len(t, b.reads, 5)
}
