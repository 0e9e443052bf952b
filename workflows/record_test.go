package workflows

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/bursarhq/bursar/workflows/contract"
)

var record = flag.Bool("record", false, "record the histories that are missing, on a real Temporal server")

// scenario makes one history: it drives a workflow on the real server to its end and answers which run to keep.
type scenario struct {
	workflow string
	name     string
	// play returns the workflow id and the run id; "" is the last run.
	play func(ctx context.Context, t *testing.T, c client.Client) (id, run string)
	// holds is an event that the history must have, or it shows nothing of what it is named after.
	holds enumspb.EventType
}

var scenarios = []scenario{
	{contract.SubscriptionReconcile, "plain", playPlain, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED},
	{contract.SubscriptionReconcile, "burst", playBurst, enumspb.EVENT_TYPE_TIMER_FIRED},
	{contract.SubscriptionReconcile, "update", playUpdate, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED},
	{contract.SubscriptionReconcile, "update-ends-pause", playUpdateEndsPause, enumspb.EVENT_TYPE_TIMER_CANCELED},
	{contract.SubscriptionReconcile, "checkout", playCheckout, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED},
	{contract.SubscriptionReconcile, "checkout-outage", playCheckoutOutage, enumspb.EVENT_TYPE_TIMER_FIRED},
	{contract.SubscriptionReconcile, "checkout-parked", playCheckoutParked, enumspb.EVENT_TYPE_TIMER_CANCELED},
	{contract.SubscriptionReconcile, "parked", playParked, enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED},
	{contract.SubscriptionReconcile, "retried", playRetried, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED},
	{contract.SubscriptionReconcile, "continues-as-new", playContinues, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW},
	{contract.SubscriptionReconcile, "continued", playContinued, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED},
	{contract.ParkedRetry, "nothing-due", playRetryNothing, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED},
	{contract.ParkedRetry, "signalled", playRetrySignalled, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED},
	{contract.Keeper, "plain", playKeeper, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED},
	{contract.GrantExpiry, "plain", playExpiry, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED},
	{contract.GrantExpiry, "looks-again", playExpiryAgain, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED},
	{contract.GrantExpiry, "goes-on", playExpiryGoesOn, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED},
	{contract.GrantExpiry, "continues-as-new", playExpiryContinues, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW},
	{contract.OperatorAct, "plain", playActPlain, enumspb.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES},
	{contract.OperatorAct, "refused", playActRefused, enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED},
	{contract.OperatorAct, "owes", playActOwes, enumspb.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED},
	{contract.OperatorAct, "drain-runs", playActDrainRuns, enumspb.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_FAILED},
	{contract.RuleChangeDrain, "plain", playDrainPlain, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED},
	{contract.RuleChangeDrain, "goes-on", playDrainGoesOn, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED},
	{contract.RuleChangeDrain, "parks", playDrainParks, enumspb.EVENT_TYPE_TIMER_FIRED},
	{contract.RuleChangeDrain, "continues-as-new", playDrainContinues, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW},
	{contract.DrainStart, "plain", playDrainStart, enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED},
}

// Each scenario has its history, and the history shows what the scenario is about. With -record, histories that are
// missing are recorded first; one that is there stays, since it stands for workflows that may be running: to record it
// anew, delete it.
func TestRecordHistories(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.workflow+"/"+s.name, func(t *testing.T) {
			file := filepath.Join(replayFolder, s.workflow, s.name+".json.gz")
			if _, err := os.Stat(file); *record && errors.Is(err, os.ErrNotExist) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				c := dial(t)
				id, run := s.play(ctx, t, c)
				writeHistory(t, file, fetchHistory(ctx, t, c, id, run))
			}
			require.FileExists(t, file, "run make record")
			found := false
			for _, e := range readHistory(t, file).Events {
				found = found || e.EventType == s.holds
			}
			require.True(t, found, "%s has no event of type %s", file, s.holds)
		})
	}
}

func fetchHistory(ctx context.Context, t *testing.T, c client.Client, id, run string) *historypb.History {
	t.Helper()
	history := &historypb.History{}
	events := c.GetWorkflowHistory(ctx, id, run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(t, err)
		history.Events = append(history.Events, event)
	}
	return history
}

func writeHistory(t *testing.T, file string, history *historypb.History) {
	t.Helper()
	for _, e := range history.Events {
		anonymize(e)
	}
	text, err := temporalproto.CustomJSONMarshalOptions{}.Marshal(history)
	require.NoError(t, err)
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err = w.Write(text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, zipped.Bytes(), 0o644))
}

// anonymize takes out which machine and process recorded the history. Replay does not look at it.
func anonymize(e *historypb.HistoryEvent) {
	const who = "recorder"
	switch a := e.Attributes.(type) {
	case *historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes:
		a.WorkflowExecutionStartedEventAttributes.Identity = who
	case *historypb.HistoryEvent_WorkflowExecutionSignaledEventAttributes:
		a.WorkflowExecutionSignaledEventAttributes.Identity = who
	case *historypb.HistoryEvent_WorkflowTaskScheduledEventAttributes:
		if q := a.WorkflowTaskScheduledEventAttributes.GetTaskQueue(); q.GetKind() == enumspb.TASK_QUEUE_KIND_STICKY {
			q.Name = who
		}
	case *historypb.HistoryEvent_WorkflowTaskStartedEventAttributes:
		a.WorkflowTaskStartedEventAttributes.Identity = who
	case *historypb.HistoryEvent_WorkflowTaskCompletedEventAttributes:
		a.WorkflowTaskCompletedEventAttributes.Identity = who
	case *historypb.HistoryEvent_ActivityTaskStartedEventAttributes:
		a.ActivityTaskStartedEventAttributes.Identity = who
	case *historypb.HistoryEvent_ActivityTaskCompletedEventAttributes:
		a.ActivityTaskCompletedEventAttributes.Identity = who
	case *historypb.HistoryEvent_ActivityTaskFailedEventAttributes:
		a.ActivityTaskFailedEventAttributes.Identity = who
	case *historypb.HistoryEvent_WorkflowExecutionFailedEventAttributes:
		if info := a.WorkflowExecutionFailedEventAttributes.GetFailure().GetActivityFailureInfo(); info != nil {
			info.Identity = who
		}
	case *historypb.HistoryEvent_TimerCanceledEventAttributes:
		a.TimerCanceledEventAttributes.Identity = who
	case *historypb.HistoryEvent_WorkflowExecutionUpdateAcceptedEventAttributes:
		a.WorkflowExecutionUpdateAcceptedEventAttributes.GetAcceptedRequest().GetMeta().Identity = who
	case *historypb.HistoryEvent_WorkflowExecutionUpdateCompletedEventAttributes:
	}
}

// gate lets a test hold a read open: the read says that it has begun, and ends when it is let go.
type gate struct{ begun, letGo chan struct{} }

func newGate() gate { return gate{make(chan struct{}, 64), make(chan struct{}, 64)} }

func (g gate) pass(ctx context.Context) error {
	g.begun <- struct{}{}
	select {
	case <-g.letGo:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g gate) await(ctx context.Context, t *testing.T) {
	t.Helper()
	select {
	case <-g.begun:
	case <-ctx.Done():
		t.Fatal("the read did not begin")
	}
}

func applied(_ context.Context, request contract.ReconcileRequest) (contract.ReconcileResult, error) {
	return contract.ReconcileResult{
		Outcome: contract.OutcomeApplied, Status: "active", Organization: "acme", Version: 1, Reads: 1,
		Conferred: 1, Ended: 1, Entitlements: 3, Detail: "acme: gold × 1 active; 3 entitlements changed.",
	}, nil
}

func unchanged() contract.ReconcileResult {
	return contract.ReconcileResult{Outcome: contract.OutcomeUnchanged, Status: "active", Organization: "acme", Version: 2, Reads: 1, Detail: "acme: nothing changed."}
}

func signal(ctx context.Context, t *testing.T, c client.Client, id string, s contract.ReconcileSignal) {
	t.Helper()
	require.NoError(t, Starter{Client: c}.SignalReconcile(ctx, id, s))
}

func playPlain(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	serve(t, c, outside{reconcile: applied})
	id := "sub_RecordPlain"
	signal(ctx, t, c, id, contract.ReconcileSignal{EventID: "evt_1", EventType: "customer.subscription.created"})
	await(ctx, t, c, contract.SubscriptionWorkflowID(id))
	return contract.SubscriptionWorkflowID(id), ""
}

// held serves reads of which the first waits at a gate.
func held(g gate) func(context.Context, contract.ReconcileRequest) (contract.ReconcileResult, error) {
	var first sync.Once
	return func(ctx context.Context, request contract.ReconcileRequest) (contract.ReconcileResult, error) {
		var err error
		isFirst := false
		first.Do(func() { isFirst = true; err = g.pass(ctx) })
		if isFirst && err == nil {
			return applied(ctx, request)
		}
		return unchanged(), err
	}
}

func playBurst(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	g := newGate()
	serve(t, c, outside{reconcile: held(g)})
	id := "sub_RecordBurst"
	signal(ctx, t, c, id, event(0))
	g.await(ctx, t)
	for i := range 10 {
		signal(ctx, t, c, id, event(i/2)) // each event twice, as resends come
	}
	g.letGo <- struct{}{}
	require.Equal(t, 2, await(ctx, t, c, contract.SubscriptionWorkflowID(id)).Reconciles)
	return contract.SubscriptionWorkflowID(id), ""
}

func playUpdate(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	serve(t, c, outside{reconcile: applied})
	id := "sub_RecordUpdate"
	result, err := Starter{Client: c}.ReconcileNow(ctx, id)
	require.NoError(t, err)
	require.Equal(t, contract.OutcomeApplied, result.Outcome)
	require.Equal(t, 1, await(ctx, t, c, contract.SubscriptionWorkflowID(id)).Reconciles)
	return contract.SubscriptionWorkflowID(id), ""
}

func playUpdateEndsPause(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	g := newGate()
	serve(t, c, outside{reconcile: held(g)})
	id := "sub_RecordUpdateEndsPause"
	signal(ctx, t, c, id, event(0))
	g.await(ctx, t)
	signal(ctx, t, c, id, event(1))
	g.letGo <- struct{}{}
	awaitEvent(ctx, t, c, contract.SubscriptionWorkflowID(id), enumspb.EVENT_TYPE_TIMER_STARTED)
	_, err := Starter{Client: c}.ReconcileNow(ctx, id)
	require.NoError(t, err)
	await(ctx, t, c, contract.SubscriptionWorkflowID(id))
	return contract.SubscriptionWorkflowID(id), ""
}

func playCheckout(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	serve(t, c, outside{reconcile: applied, link: func(_ context.Context, request contract.LinkRequest) (contract.LinkResult, error) {
		return contract.LinkResult{Linked: true, Organization: "acme", Detail: "cus_1 is linked to acme."}, nil
	}})
	id := "sub_RecordCheckout"
	signal(ctx, t, c, id, contract.ReconcileSignal{EventID: "evt_1", EventType: "checkout.session.completed", CheckoutSession: "cs_test_a1"})
	await(ctx, t, c, contract.SubscriptionWorkflowID(id))
	return contract.SubscriptionWorkflowID(id), ""
}

// playCheckoutOutage has a link fail with a pause that its tries have no time for: the subscription is read, the run waits, links and
// reads again.
func playCheckoutOutage(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	var tries atomic.Int32
	serve(t, c, outside{reconcile: applied, link: func(context.Context, contract.LinkRequest) (contract.LinkResult, error) {
		if tries.Add(1) == 1 {
			return contract.LinkResult{}, temporal.NewApplicationErrorWithOptions("Stripe refuses the key", "StripeAuth",
				temporal.ApplicationErrorOptions{NextRetryDelay: linkPersistence + time.Second})
		}
		return linked, nil
	}})
	id := "sub_RecordCheckoutOutage"
	signal(ctx, t, c, id, completed)
	require.Equal(t, 2, await(ctx, t, c, contract.SubscriptionWorkflowID(id)).Reconciles)
	return contract.SubscriptionWorkflowID(id), ""
}

// playCheckoutParked has a link fail for good while another waits to be tried again; a retry of the first ends that pause.
func playCheckoutParked(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	const away = "cs_test_b2"
	var tries atomic.Int32
	serve(t, c, outside{
		reconcile: applied,
		link: func(_ context.Context, request contract.LinkRequest) (contract.LinkResult, error) {
			switch {
			case tries.Add(1) > 2:
				return linked, nil
			case request.CheckoutSession == away:
				return contract.LinkResult{}, temporal.NewApplicationErrorWithOptions("Stripe refuses the key", "StripeAuth",
					temporal.ApplicationErrorOptions{NextRetryDelay: time.Minute})
			}
			return contract.LinkResult{}, temporal.NewNonRetryableApplicationError("broken", "Broken", nil)
		},
		park: func(context.Context, contract.ParkRequest) error { return nil },
	})
	id := "sub_RecordCheckoutParked"
	_, err := c.ExecuteWorkflow(ctx, startOptions(id), contract.SubscriptionReconcile, contract.SubscriptionReconcileInput{
		SubscriptionID: id, Carried: []contract.ReconcileSignal{completed, {EventType: "checkout.session.completed", CheckoutSession: away}},
	})
	require.NoError(t, err)
	awaitEvent(ctx, t, c, contract.SubscriptionWorkflowID(id), enumspb.EVENT_TYPE_TIMER_STARTED)
	signal(ctx, t, c, id, retry)
	await(ctx, t, c, contract.SubscriptionWorkflowID(id))
	return contract.SubscriptionWorkflowID(id), ""
}

func playParked(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	serve(t, c, outside{
		reconcile: func(context.Context, contract.ReconcileRequest) (contract.ReconcileResult, error) {
			return contract.ReconcileResult{}, temporal.NewNonRetryableApplicationError("lock out of order", "LockOrderViolation", nil)
		},
		park: func(context.Context, contract.ParkRequest) error { return nil },
	})
	id := "sub_RecordParked"
	signal(ctx, t, c, id, event(1))
	require.Equal(t, contract.OutcomeParked, await(ctx, t, c, contract.SubscriptionWorkflowID(id)).Last.Outcome)
	return contract.SubscriptionWorkflowID(id), ""
}

func playRetried(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	var tries atomic.Int32
	serve(t, c, outside{reconcile: func(ctx context.Context, request contract.ReconcileRequest) (contract.ReconcileResult, error) {
		if tries.Add(1) < 3 {
			return contract.ReconcileResult{}, errors.New("Stripe does not answer")
		}
		return applied(ctx, request)
	}})
	id := "sub_RecordRetried"
	signal(ctx, t, c, id, event(1))
	require.Equal(t, 1, await(ctx, t, c, contract.SubscriptionWorkflowID(id)).Reconciles)
	return contract.SubscriptionWorkflowID(id), ""
}

// playLong makes a run so long that the server suggests to continue as new, while signals wait.
func playLong(ctx context.Context, t *testing.T, c client.Client, id string) (firstRun string) {
	g := newGate()
	serve(t, c, outside{reconcile: held(g)})
	signal(ctx, t, c, id, event(0))
	g.await(ctx, t)
	described, err := c.DescribeWorkflowExecution(ctx, contract.SubscriptionWorkflowID(id), "")
	require.NoError(t, err)
	for i := 1; i <= suggestAt; i++ {
		signal(ctx, t, c, id, event(i))
	}
	g.letGo <- struct{}{}
	require.Equal(t, 2, await(ctx, t, c, contract.SubscriptionWorkflowID(id)).Reconciles)
	return described.WorkflowExecutionInfo.Execution.RunId
}

func playContinues(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	id := "sub_RecordContinues"
	return contract.SubscriptionWorkflowID(id), playLong(ctx, t, c, id)
}

func playContinued(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	id := "sub_RecordContinued"
	playLong(ctx, t, c, id)
	return contract.SubscriptionWorkflowID(id), ""
}

func playParkedRetry(ctx context.Context, t *testing.T, c client.Client, id string, result contract.ParkedRetryResult) (string, string) {
	serve(t, c, outside{retry: func(context.Context) (contract.ParkedRetryResult, error) { return result, nil }})
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: contract.QueueDB}, contract.ParkedRetry)
	require.NoError(t, err)
	var got contract.ParkedRetryResult
	require.NoError(t, run.Get(ctx, &got))
	require.Equal(t, result, got)
	return id, ""
}

func playRetryNothing(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	return playParkedRetry(ctx, t, c, "parked-retry-nothing", contract.ParkedRetryResult{})
}

func playRetrySignalled(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	return playParkedRetry(ctx, t, c, "parked-retry-signalled", contract.ParkedRetryResult{Due: 3, Signalled: 3})
}

// awaitEvent follows a run's history until it has an event.
func awaitEvent(ctx context.Context, t *testing.T, c client.Client, id string, want enumspb.EventType) {
	t.Helper()
	events := c.GetWorkflowHistory(ctx, id, "", true, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		e, err := events.Next()
		require.NoError(t, err)
		if e.EventType == want {
			return
		}
	}
	t.Fatalf("%s ended without an event of type %s", id, want)
}
