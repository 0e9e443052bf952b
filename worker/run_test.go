package worker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/workflows/contract"
)

// The whole of what a worker does: a signal becomes entitlements; what is parked is retried by the schedule once the link
// appears; the Temporal UI finds it by organisation, object and outcome; asked to stop, it stops.
func TestAWorkerServesAndStops(t *testing.T) {
	r := newRig(t, "serves")
	r.start(Options{})
	r.organization("acme")
	customer := r.customer()
	sub := r.subscribe(customer)
	require.Equal(t, 1, r.sites("acme"))

	require.NoError(t, r.starter.SignalReconcile(t.Context(), sub, contract.ReconcileSignal{EventID: "evt_1", EventType: "customer.subscription.created"}))
	last := r.outcome(sub)
	require.Equal(t, contract.OutcomeParked, last.Outcome)
	require.Equal(t, "unknown_customer", last.ParkedReason)

	r.link(customer, "acme")
	require.Eventually(t, func() bool { return r.sites("acme") == 20 }, 60*time.Second, 100*time.Millisecond, "the schedule has parked work retried")
	require.Equal(t, contract.OutcomeApplied, r.outcome(sub).Outcome)

	query := fmt.Sprintf("%s = 'acme' AND %s = '%s' AND %s = '%s'", contract.AttrOrganization, contract.AttrObject, sub, contract.AttrOutcome, contract.OutcomeApplied)
	require.Eventually(t, func() bool { return r.count(query) == 1 }, 20*time.Second, 100*time.Millisecond, query)

	result, err := r.starter.ReconcileNow(t.Context(), sub)
	require.NoError(t, err)
	require.Equal(t, contract.OutcomeUnchanged, result.Outcome)

	r.stop()
	require.NoError(t, r.awaitEnd(15*time.Second))
}

// What runs when the process is asked to stop may finish: one read, no second try elsewhere.
func TestARunningActivityFinishesBeforeTheEnd(t *testing.T) {
	r := newRig(t, "drains")
	r.start(Options{})
	r.organization("acme")
	customer := r.customer()
	r.link(customer, "acme")
	sub := r.subscribe(customer)
	begun, release := make(chan struct{}, 8), make(chan struct{})
	r.stripe.OnRead(func(string) { begun <- struct{}{}; <-release })

	require.NoError(t, r.starter.SignalReconcile(t.Context(), sub, contract.ReconcileSignal{EventType: "test"}))
	<-begun
	r.stop()
	select {
	case err := <-r.ended:
		t.Fatalf("the worker ended (%v) while an activity ran", err)
	case <-time.After(500 * time.Millisecond): // long enough for a worker that does not wait to be gone
	}
	close(release)
	require.NoError(t, r.awaitEnd(12*time.Second))
	require.Equal(t, 20, r.sites("acme"))
	require.Equal(t, 1, r.stripe.Reads(sub))
}

// A hung Stripe takes the slots of one queue and no connection: what needs the database alone goes on.
func TestAHungStripeStopsNothingElse(t *testing.T) {
	r := newRig(t, "hangs")
	r.config.DBMaxConns, r.config.IOSlots = 2, 4
	r.start(Options{})
	release := make(chan struct{})
	r.stripe.HangUntil(release)
	for i := range 4 {
		require.NoError(t, r.starter.SignalReconcile(t.Context(), fmt.Sprintf("sub_Hung%d", i), contract.ReconcileSignal{EventType: "test"}))
	}
	require.Eventually(t, func() bool {
		open := 0
		for i := range 4 {
			described, err := r.temporal.DescribeWorkflowExecution(t.Context(), contract.SubscriptionWorkflowID(fmt.Sprintf("sub_Hung%d", i)), "")
			if err == nil && len(described.PendingActivities) == 1 && described.PendingActivities[0].State == enumspb.PENDING_ACTIVITY_STATE_STARTED {
				open++
			}
		}
		return open == 4
	}, 30*time.Second, 50*time.Millisecond, "all slots of the queue wait for Stripe")

	var inTransaction int
	require.NoError(t, r.database.Conn(t).QueryRow(t.Context(),
		`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()`).Scan(&inTransaction))
	require.Zero(t, inTransaction, "no transaction is open during the call")

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	run, err := r.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "act-on-db", TaskQueue: contract.QueueDB}, contract.SubscriptionReconcile,
		contract.SubscriptionReconcileInput{SubscriptionID: "sub_AnotherName"})
	require.NoError(t, err)
	require.ErrorContains(t, run.Get(ctx, nil), "start it as", "workflows are served all the while")
	close(release)
}

func TestAnExistingClientAndPoolAreUsedAndKept(t *testing.T) {
	r := newRig(t, "embedded")
	r.config.DatabaseURL, r.config.Temporal.Address = "postgres://127.0.0.1:1/none", "127.0.0.1:1"
	r.start(Options{DB: r.db, Temporal: r.temporal, TelemetryIsSet: true})
	r.stop()
	require.NoError(t, r.awaitEnd(15*time.Second))
	require.NoError(t, r.db.Ping(t.Context()))
	require.NoError(t, Ready(r.temporal, "embedded")(t.Context()))
}

func TestADatabaseWithoutSchemaIsRefused(t *testing.T) {
	empty := pgtest.NewEmpty(t)
	config := Config{DatabaseURL: Secret(empty.URL()), DBMaxConns: 2, StripeKey: "sk_test_x", ShutdownTimeout: time.Second}
	err := Run(t.Context(), config, Options{Logger: quiet(), TelemetryIsSet: true})
	require.ErrorContains(t, err, "bursar migrate")
}

func TestAnUnreachableTemporalIsNamed(t *testing.T) {
	database := pgtest.New(t)
	config := Config{DatabaseURL: Secret(database.URL()), DBMaxConns: 2, StripeKey: "sk_test_x", ShutdownTimeout: time.Second,
		Temporal: TemporalConfig{Address: "127.0.0.1:1", Namespace: "default"}}
	began := time.Now()
	err := Run(t.Context(), config, Options{Logger: quiet(), TelemetryIsSet: true})
	require.ErrorContains(t, err, "TEMPORAL_ADDRESS")
	require.Less(t, time.Since(began), 2*dialTimeout)
}

func TestSearchAttributesAreMadeOnce(t *testing.T) {
	config := namespace(t, "attributes")
	c := dial(t, config)
	require.Error(t, usable(t.Context(), c, config.Namespace), "they are not there at first")
	for range 2 {
		require.NoError(t, EnsureSearchAttributes(t.Context(), c, config.Namespace))
		require.NoError(t, usable(t.Context(), c, config.Namespace), "they can be used at once")
	}
}

func TestASearchAttributeOfAnotherTypeIsRefused(t *testing.T) {
	config := namespace(t, "conflict")
	c := dial(t, config)
	_, err := c.OperatorService().AddSearchAttributes(t.Context(), &operatorservice.AddSearchAttributesRequest{
		Namespace: config.Namespace, SearchAttributes: map[string]enumspb.IndexedValueType{contract.AttrObject: enumspb.INDEXED_VALUE_TYPE_INT},
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		listed, err := c.OperatorService().ListSearchAttributes(t.Context(), &operatorservice.ListSearchAttributesRequest{Namespace: config.Namespace})
		return err == nil && listed.GetCustomAttributes()[contract.AttrObject] != 0
	}, 30*time.Second, 100*time.Millisecond)
	err = EnsureSearchAttributes(t.Context(), c, config.Namespace)
	require.ErrorContains(t, err, contract.AttrObject)
	require.ErrorContains(t, err, "Keyword")
}

func TestSchedulesAreEnsured(t *testing.T) {
	config := Config{ParkedRetryInterval: time.Hour}
	config.Temporal = namespace(t, "schedules")
	c := dial(t, config.Temporal)
	require.NoError(t, ensureSchedules(t.Context(), c, schedules(config), quiet()))
	handle := c.ScheduleClient().GetHandle(t.Context(), contract.ScheduleParkedRetry)
	keeper := c.ScheduleClient().GetHandle(t.Context(), contract.ScheduleGrantExpiry)
	kept, err := keeper.Describe(t.Context())
	require.NoError(t, err)
	first, err := handle.Describe(t.Context())
	require.NoError(t, err)
	require.Equal(t, enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, first.Schedule.Policy.Overlap)
	require.Equal(t, catchupWindow, first.Schedule.Policy.CatchupWindow)

	require.NoError(t, ensureSchedules(t.Context(), c, schedules(config), quiet()))
	second, err := handle.Describe(t.Context())
	require.NoError(t, err)
	require.Equal(t, first.Info.LastUpdateAt, second.Info.LastUpdateAt, "one that stands is not written again")
	still, err := keeper.Describe(t.Context())
	require.NoError(t, err)
	require.Equal(t, kept.Info.LastUpdateAt, still.Info.LastUpdateAt, "nor is one with arguments")
	have := kept.Schedule.Action.(*client.ScheduleWorkflowAction)
	require.True(t, sameArgs(have.Args, []any{contract.KeeperInput{
		Workflow: contract.GrantExpiry, ID: contract.GrantExpiryWorkflowID, Summary: "Expire and begin the grants that are due"}}))
	require.False(t, sameArgs(have.Args, []any{contract.KeeperInput{Workflow: contract.GrantExpiry, ID: "another"}}))

	require.NoError(t, handle.Pause(t.Context(), client.SchedulePauseOptions{Note: "by hand"}))
	config.ParkedRetryInterval = 2 * time.Hour
	require.NoError(t, ensureSchedules(t.Context(), c, schedules(config), quiet()))
	third, err := handle.Describe(t.Context())
	require.NoError(t, err)
	require.Equal(t, []client.ScheduleIntervalSpec{{Every: 2 * time.Hour}}, third.Schedule.Spec.Intervals)
	require.True(t, third.Schedule.State.Paused, "a pause by an operator stays")
}
