package workflows

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/bursarhq/bursar/workflows/contract"
)

const testSubscription = "sub_1PqRsT2eZvKYlo2C"

// bench runs SubscriptionReconcile in the SDK's test environment and keeps what its activities were asked.
type bench struct {
	*testsuite.TestWorkflowEnvironment

	mu     sync.Mutex
	reads  []contract.ReconcileRequest
	begun  []time.Time // of each read, on the environment's clock
	links  []contract.LinkRequest
	parks  []contract.ParkRequest
	onRead func(n int) (contract.ReconcileResult, error)
	onLink func(n int) (contract.LinkResult, error)
	onPark func(n int) error
}

// newBench makes one whose reads take readTime each.
func newBench(t *testing.T, readTime time.Duration) *bench {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	b := &bench{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment()}
	b.onRead = func(n int) (contract.ReconcileResult, error) {
		return contract.ReconcileResult{Outcome: contract.OutcomeApplied, Status: "active", Organization: "acme", Version: int64(n), Reads: 1, Detail: fmt.Sprintf("Read %d.", n)}, nil
	}
	b.onLink = func(int) (contract.LinkResult, error) {
		return contract.LinkResult{Linked: true, Organization: "acme"}, nil
	}
	b.onPark = func(int) error { return nil }
	Register(b)
	b.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: contract.SubscriptionWorkflowID(testSubscription), TaskQueue: contract.QueueDB})
	b.SetTestTimeout(20 * time.Second)

	read := func(_ context.Context, request contract.ReconcileRequest) (contract.ReconcileResult, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.reads = append(b.reads, request)
		b.begun = append(b.begun, b.Now())
		return b.onRead(len(b.reads))
	}
	link := func(_ context.Context, request contract.LinkRequest) (contract.LinkResult, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.links = append(b.links, request)
		return b.onLink(len(b.links))
	}
	park := func(_ context.Context, request contract.ParkRequest) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.parks = append(b.parks, request)
		return b.onPark(len(b.parks))
	}
	b.RegisterActivityWithOptions(read, activity.RegisterOptions{Name: contract.ActivityReconcileSubscription})
	b.RegisterActivityWithOptions(link, activity.RegisterOptions{Name: contract.ActivityLinkFromCheckout})
	b.RegisterActivityWithOptions(park, activity.RegisterOptions{Name: contract.ActivityParkSubscription})
	if readTime > 0 {
		// The answer is fixed when the read begins; then it takes readTime to arrive.
		b.OnActivity(contract.ActivityReconcileSubscription, mock.Anything, mock.Anything).After(readTime).Return(read)
	}
	return b
}

func (b *bench) at(d time.Duration, f func()) { b.RegisterDelayedCallback(f, d) }
func (b *bench) signal(s contract.ReconcileSignal) {
	b.SignalWorkflow(contract.SignalReconcile, s)
}
func (b *bench) start(carried ...contract.ReconcileSignal) {
	b.ExecuteWorkflow(contract.SubscriptionReconcile, contract.SubscriptionReconcileInput{SubscriptionID: testSubscription, Carried: carried})
}

// seen are the ids of all events that some read covered.
func (b *bench) seen() map[string]bool {
	seen := map[string]bool{}
	for _, r := range b.reads {
		for _, e := range r.Events {
			seen[e.EventID] = true
		}
	}
	return seen
}

func (b *bench) result(t *testing.T) contract.SubscriptionReconcileResult {
	t.Helper()
	require.True(t, b.IsWorkflowCompleted())
	require.NoError(t, b.GetWorkflowError())
	var result contract.SubscriptionReconcileResult
	require.NoError(t, b.GetWorkflowResult(&result))
	return result
}

// continued is the input of the next run; the test fails unless the run continued as new.
func (b *bench) continued(t *testing.T) contract.SubscriptionReconcileInput {
	t.Helper()
	require.True(t, b.IsWorkflowCompleted())
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, b.GetWorkflowError(), &next)
	require.Equal(t, contract.SubscriptionReconcile, next.WorkflowType.Name)
	var in contract.SubscriptionReconcileInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &in))
	return in
}

func event(n int) contract.ReconcileSignal {
	return contract.ReconcileSignal{EventID: fmt.Sprintf("evt_%d", n), EventType: "customer.subscription.updated"}
}

// answer collects what an update was told.
type answer struct {
	rejected, failed error
	accepted, done   bool
	result           contract.ReconcileResult
}

func (b *bench) update(id string, signal contract.ReconcileSignal) *answer {
	a := &answer{}
	b.UpdateWorkflow(contract.UpdateReconcileNow, id, &testsuite.TestUpdateCallback{
		OnAccept: func() { a.accepted = true },
		OnReject: func(err error) { a.rejected = err },
		OnComplete: func(v any, err error) {
			a.done, a.failed = true, err
			if err == nil {
				a.result = v.(contract.ReconcileResult)
			}
		},
	}, signal)
	return a
}

func TestOneSignalIsOneRead(t *testing.T) {
	b := newBench(t, 0)
	b.at(0, func() { b.signal(event(1)) })
	b.start()
	result := b.result(t)
	require.Equal(t, 1, result.Reconciles)
	require.Equal(t, "Read 1.", result.Last.Detail)
	require.Len(t, b.reads, 1)
	require.Equal(t, testSubscription, b.reads[0].SubscriptionID)
	require.Empty(t, b.parks)
	require.Empty(t, b.links)
}

func TestStartedByHandReadsOnce(t *testing.T) {
	b := newBench(t, 0)
	b.start()
	require.Equal(t, 1, b.result(t).Reconciles)
	require.Equal(t, []contract.ReconcileSignal{{EventType: "start"}}, b.reads[0].Events)
}

func TestARunCarriedWithNothingToDoReadsNothing(t *testing.T) {
	b := newBench(t, 0)
	b.ExecuteWorkflow(contract.SubscriptionReconcile, contract.SubscriptionReconcileInput{SubscriptionID: testSubscription, Reconciles: 7})
	require.Equal(t, 7, b.result(t).Reconciles)
	require.Empty(t, b.reads)
}

func TestABurstCostsAHandfulOfReads(t *testing.T) {
	b := newBench(t, 100*time.Millisecond)
	// 300 events over 15 seconds, as a busy account sends them.
	for i := range 300 {
		b.at(time.Duration(i)*50*time.Millisecond, func() { b.signal(event(i)) })
	}
	b.start()
	result := b.result(t)
	require.LessOrEqual(t, result.Reconciles, 7)
	require.Len(t, b.seen(), 300, "every event is covered by a read")
}

func TestABurstDuringOneReadIsOneMoreRead(t *testing.T) {
	b := newBench(t, 2*time.Second)
	b.at(0, func() { b.signal(event(0)) })
	for i := 1; i <= 50; i++ {
		b.at(time.Second, func() { b.signal(event(i)) })
	}
	b.start()
	require.Equal(t, 2, b.result(t).Reconciles)
	require.Len(t, b.seen(), 51)
	require.GreaterOrEqual(t, b.begun[1].Sub(b.begun[0]), 3*time.Second, "the second read waits a second after the first")
}

func TestThePauseDoublesUpToItsBound(t *testing.T) {
	b := newBench(t, 500*time.Millisecond)
	// Half a second each, reads begin at 0, 1.5, 4, 8.5, 17, 25.5 and 34 s; all but the last are met by an event.
	b.at(0, func() { b.signal(event(0)) })
	for i, begun := range []float64{0, 1.5, 4, 8.5, 17, 25.5} {
		b.at(time.Duration((begun+0.25)*float64(time.Second)), func() { b.signal(event(i + 1)) })
	}
	b.start()
	b.result(t)
	var gaps []time.Duration
	for i := 1; i < len(b.begun); i++ {
		gaps = append(gaps, (b.begun[i].Sub(b.begun[i-1]) - 500*time.Millisecond).Round(100*time.Millisecond))
	}
	require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 8 * time.Second, 8 * time.Second}, gaps)
}

func TestDuplicateEventsAreRememberedOnce(t *testing.T) {
	b := newBench(t, 2*time.Second)
	b.at(0, func() { b.signal(event(0)) })
	for range 20 {
		b.at(time.Second, func() { b.signal(event(1)) })
	}
	b.start()
	b.result(t)
	require.Equal(t, []contract.ReconcileSignal{event(1)}, b.reads[1].Events)
	require.Zero(t, b.reads[1].EventsOmitted)
}

func TestALongBurstIsCountedBeyondTheBound(t *testing.T) {
	b := newBench(t, 2*time.Second)
	b.at(0, func() { b.signal(event(0)) })
	for i := 1; i <= maxBatch+30; i++ {
		b.at(time.Second, func() { b.signal(event(i)) })
	}
	b.start()
	b.result(t)
	require.Len(t, b.reads[1].Events, maxBatch)
	require.Equal(t, 30, b.reads[1].EventsOmitted)
}

func TestASignalAtTheVeryEndIsRead(t *testing.T) {
	// The first read's end and a second signal arrive in one workflow task.
	b := newBench(t, 0)
	b.at(0, func() { b.signal(event(0)) })
	b.onRead = func(n int) (contract.ReconcileResult, error) {
		if n == 1 {
			b.SignalWorkflowSkippingWorkflowTask(contract.SignalReconcile, event(1))
		}
		return contract.ReconcileResult{Outcome: contract.OutcomeUnchanged}, nil
	}
	b.start()
	require.Equal(t, 2, b.result(t).Reconciles)
	require.Contains(t, b.seen(), "evt_1")
}

func TestAnUpdateAnswersAReadBegunAfterIt(t *testing.T) {
	b := newBench(t, 4*time.Second)
	b.at(0, func() { b.signal(event(0)) })
	var a *answer
	var asked time.Time
	b.at(2*time.Second, func() { // in the middle of the first read
		asked = b.Now()
		a = b.update("u1", contract.ReconcileSignal{EventType: "operator"})
	})
	b.start()
	require.Equal(t, 2, b.result(t).Reconciles)
	require.True(t, a.done)
	require.NoError(t, a.failed)
	require.EqualValues(t, 2, a.result.Version, "the second read, not the one under way")
	require.False(t, b.begun[1].Before(asked))
	require.Less(t, b.begun[1].Sub(b.begun[0]), 4*time.Second+firstLinger, "an update does not wait for a burst to gather")
}

func TestAnUpdateEndsThePause(t *testing.T) {
	b := newBench(t, time.Second)
	b.at(0, func() { b.signal(event(0)) })
	b.at(500*time.Millisecond, func() { b.signal(event(1)) }) // a pause follows: from 1 s to 2 s
	var a *answer
	b.at(1300*time.Millisecond, func() { a = b.update("u1", contract.ReconcileSignal{EventType: "operator"}) })
	b.start()
	require.Equal(t, 2, b.result(t).Reconciles, "the read covers the update and the signal")
	require.EqualValues(t, 2, a.result.Version)
	require.Equal(t, 1300*time.Millisecond, b.begun[1].Sub(b.begun[0]).Round(50*time.Millisecond))
	require.Contains(t, b.seen(), "evt_1")
}

func TestAnUpdateThatStartsTheRunIsOneRead(t *testing.T) {
	b := newBench(t, time.Second)
	var a *answer
	b.at(0, func() { a = b.update("u1", contract.ReconcileSignal{EventType: "operator"}) })
	b.start()
	require.LessOrEqual(t, b.result(t).Reconciles, 2)
	require.True(t, a.done)
	require.NoError(t, a.failed)
}

func TestManyUpdatesShareOneRead(t *testing.T) {
	b := newBench(t, 2*time.Second)
	b.at(0, func() { b.signal(event(0)) })
	var answers []*answer
	for i := range 8 {
		b.at(time.Second, func() {
			answers = append(answers, b.update(fmt.Sprintf("u%d", i), contract.ReconcileSignal{EventType: "operator"}))
		})
	}
	b.start()
	require.Equal(t, 2, b.result(t).Reconciles)
	for _, a := range answers {
		require.True(t, a.done)
		require.EqualValues(t, 2, a.result.Version)
	}
}

func TestABadUpdateIsRefused(t *testing.T) {
	for name, signal := range map[string]contract.ReconcileSignal{
		"checkout": {CheckoutSession: "sub_1"},
		"event":    {EventID: "evt_ 1"},
		"type":     {EventType: strings.Repeat("x", 300)},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, time.Second)
			var a *answer
			b.at(500*time.Millisecond, func() { a = b.update("u1", signal) })
			b.start()
			require.Equal(t, 1, b.result(t).Reconciles)
			require.Error(t, a.rejected)
			require.False(t, a.accepted)
		})
	}
}

func TestContinueAsNewCarriesEverySignal(t *testing.T) {
	b := newBench(t, 2*time.Second)
	b.SetContinueAsNewSuggested(true)
	b.at(time.Second, func() { b.signal(event(1)) })
	b.at(time.Second, func() {
		b.signal(contract.ReconcileSignal{EventID: "evt_c", EventType: "checkout.session.completed", CheckoutSession: "cs_test_a1"})
	})
	b.start(event(0))
	in := b.continued(t)
	require.Equal(t, []contract.ReconcileSignal{event(1), {EventID: "evt_c", EventType: "checkout.session.completed", CheckoutSession: "cs_test_a1"}}, in.Carried)
	require.Equal(t, 1, in.Reconciles)
	require.Equal(t, firstLinger, in.Linger, "the burst goes on over the seam")

	next := newBench(t, 0)
	next.ExecuteWorkflow(contract.SubscriptionReconcile, in)
	require.Equal(t, 2, next.result(t).Reconciles)
	require.Len(t, next.links, 1)
	require.Equal(t, in.Carried, next.reads[0].Events)
}

func TestContinueAsNewAnswersUpdatesFirst(t *testing.T) {
	b := newBench(t, 2*time.Second)
	b.SetContinueAsNewSuggested(true)
	var a *answer
	b.at(time.Second, func() { a = b.update("u1", contract.ReconcileSignal{EventType: "operator"}) })
	b.at(3*time.Second, func() { b.signal(event(1)) })
	b.start(event(0))
	in := b.continued(t)
	require.True(t, a.done)
	require.EqualValues(t, 2, a.result.Version)
	require.Equal(t, []contract.ReconcileSignal{event(1)}, in.Carried)
}

func TestWithNothingCarriedTheRunCompletesInstead(t *testing.T) {
	b := newBench(t, 0)
	b.SetContinueAsNewSuggested(true)
	b.start(event(0))
	require.Equal(t, 1, b.result(t).Reconciles)
}

func TestCancellationEndsTheRun(t *testing.T) {
	b := newBench(t, 10*time.Second)
	b.at(time.Second, b.CancelWorkflow)
	b.start(event(0))
	require.True(t, b.IsWorkflowCompleted())
	require.True(t, temporal.IsCanceledError(b.GetWorkflowError()), "%v", b.GetWorkflowError())
}

func TestARunThatIsNotTheOneOfItsSubscriptionIsRefused(t *testing.T) {
	b := newBench(t, 0)
	b.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "my-own", TaskQueue: contract.QueueDB})
	b.start()
	require.ErrorContains(t, b.GetWorkflowError(), contract.SubscriptionWorkflowID(testSubscription))

	b = newBench(t, 0)
	b.ExecuteWorkflow(contract.SubscriptionReconcile, contract.SubscriptionReconcileInput{SubscriptionID: "cus_1"})
	require.ErrorContains(t, b.GetWorkflowError(), "not the id of a Stripe subscription")
	require.Empty(t, b.reads)
}

func TestSearchAttributesFollowTheOutcome(t *testing.T) {
	b := newBench(t, time.Second)
	var writes []temporal.SearchAttributes
	b.OnUpsertTypedSearchAttributes(mock.Anything).Return(nil).Run(func(args mock.Arguments) {
		writes = append(writes, args.Get(0).(temporal.SearchAttributes))
	})
	b.at(500*time.Millisecond, func() { b.signal(event(1)) })
	b.start(event(0))
	require.Equal(t, 2, b.result(t).Reconciles)
	require.Len(t, writes, 1, "the second read brought nothing new, so nothing is written")
	for key, want := range map[temporal.SearchAttributeKeyKeyword]string{keyObject: testSubscription, keyOrganization: "acme", keyOutcome: contract.OutcomeApplied} {
		got, _ := writes[0].GetKeyword(key)
		require.Equal(t, want, got, key.GetName())
	}
}
