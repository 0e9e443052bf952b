package activities_test

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/stripeapi/standin"
	"github.com/bursarhq/bursar/workflows/contract"
)

// signals takes signals in place of Temporal, and refuses those for some subscriptions.
type signals struct {
	mu     sync.Mutex
	got    map[string]contract.ReconcileSignal
	refuse map[string]bool
	on     func(subscriptionID string)
}

func (s *signals) SignalReconcile(_ context.Context, id string, sig contract.ReconcileSignal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on != nil {
		s.on(id)
	}
	if s.refuse[id] {
		return errors.New("refused " + id)
	}
	s.got[id] = sig
	return nil
}

func (s *signals) ids() []string { return slices.Sorted(maps.Keys(s.got)) }

// retryParked runs the activity as a worker does, with the heartbeat of an earlier try. It returns the last heartbeat too.
func (r *rig) retryParked(s *signals, before any) (result contract.ParkedRetryResult, last converter.EncodedValues, err error) {
	s.got = map[string]contract.ReconcileSignal{}
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	parked := &activities.Parked{DB: r.db, Signaler: s}
	env.RegisterActivity(parked)
	env.SetOnActivityHeartbeatListener(func(_ *activity.Info, details converter.EncodedValues) { last = details })
	if before != nil {
		env.SetHeartbeatDetails(before)
	}
	value, err := env.ExecuteActivity(parked.RetryParked)
	if err == nil {
		err = value.Get(&result)
	}
	return result, last, err
}

func TestRetryParkedSignalsWhatIsDue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.member("acme")
	customer := r.stripe.PutCustomer(standin.Customer{}).ID
	waiting, asked, idle := r.subscribe(customer, "gold"), r.subscribe(r.member("tern"), "strange"), r.subscribe(r.member("gull"), "strange")
	session, bought, _ := r.checkout("nobody", "")
	for _, id := range []string{waiting, asked, idle} {
		require.Equal(t, contract.OutcomeParked, r.reconcile(id).Outcome)
	}
	r.linkFrom(session, bought)
	var s signals
	result, _, err := r.retryParked(&s, nil)
	require.NoError(t, err)
	require.Zero(t, result)

	r.link(customer, "acme")
	requested, err := r.operator.RequestRetry(t.Context(), activities.RetryRequest{Objects: []string{asked, session, bought}})
	require.NoError(t, err)
	require.Equal(t, []billing.ParkedKey{{Kind: billing.ParkedSubscription, ObjectID: asked}, {Kind: billing.ParkedCheckout, ObjectID: session}}, requested.Requested)

	// A request that comes while its row is being signalled is kept for the next time.
	s.on = func(id string) {
		if id == asked {
			_, err := r.operator.RequestRetry(t.Context(), activities.RetryRequest{Objects: []string{asked}})
			assertNoError(t, err)
		}
	}
	result, _, err = r.retryParked(&s, nil)
	require.NoError(t, err)
	require.Equal(t, contract.ParkedRetryResult{Due: 3, Signalled: 3}, result)
	require.Equal(t, map[string]contract.ReconcileSignal{
		waiting: {EventType: "parked-retry"}, asked: {EventType: "parked-retry"},
		bought: {EventType: "parked-retry", CheckoutSession: session},
	}, s.got)

	s.on = nil
	_, _, err = r.retryParked(&s, nil)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{waiting, asked}, s.ids(), "the request of the checkout was handed on; what is linked stays due until it is reconciled")
	r.reconcile(waiting)
	_, _, err = r.retryParked(&s, nil)
	require.NoError(t, err)
	require.Empty(t, s.ids())
	require.Len(t, r.parked(), 3, "handed on is not resolved")
}

// Three pages, some of whose signals fail: the others go out, the activity fails retryable, and the next try goes on from the
// first that failed.
func TestRetryParkedGoesOnFromTheFirstFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const rows = 2*billing.PageSize + 50
	_, err := r.pool.Exec(t.Context(), `INSERT INTO stripe.parked_work (kind, object_id, reason, detail, subscription_id, parked_at, last_tried_at, retry_requested_at)
		SELECT 'subscription', id, 'failed', 'x', id, now(), now(), now() FROM (SELECT 'sub_' || to_char(n, 'FM0000') AS id FROM generate_series(1, $1::int) n) i`, rows)
	require.NoError(t, err)
	s := signals{refuse: map[string]bool{"sub_0250": true, "sub_0300": true}}
	_, last, err := r.retryParked(&s, nil)
	require.True(t, retryable(err, activities.ErrTypeUnknown), "%v", err)
	require.ErrorContains(t, err, "2 of 450")
	require.ErrorContains(t, err, "refused sub_0250")
	require.Len(t, s.ids(), rows-2)
	require.Equal(t, "sub_0250 sub_0300", r.due(), "the others' requests were handed on")

	// A later try finds what is due from there on, and counts what the earlier one did.
	_, err = r.operator.RequestRetry(t.Context(), activities.RetryRequest{Objects: []string{"sub_0001", "sub_0299"}})
	require.NoError(t, err)
	var progress struct {
		After          billing.ParkedKey
		Due, Signalled int
	}
	require.NoError(t, last.Get(&progress))
	require.Equal(t, "sub_0249", progress.After.ObjectID)
	s.refuse = nil
	result, _, err := r.retryParked(&s, progress)
	require.NoError(t, err)
	require.Equal(t, []string{"sub_0250", "sub_0299", "sub_0300"}, s.ids())
	require.Equal(t, contract.ParkedRetryResult{Due: 249 + 3, Signalled: 249 + 3}, result)

	result, _, err = r.retryParked(&s, "written by another version")
	require.NoError(t, err)
	require.Equal(t, contract.ParkedRetryResult{Due: 1, Signalled: 1}, result, "a progress that cannot be read begins at the start")
}

func TestOperator(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	customer := r.member("acme")
	r.member("tern")
	_, err := r.operator.CreateOrganization(t.Context(), activities.NewOrganizationRequest{Slug: "acme", Name: "Again", Type: "member"})
	require.ErrorIs(t, err, entitlements.ErrExists)
	_, err = r.operator.CreateOrganization(t.Context(), activities.NewOrganizationRequest{Slug: "new", Name: "New", Type: "none"})
	require.ErrorIs(t, err, entitlements.ErrNotFound)

	_, err = r.operator.LinkCustomer(t.Context(), activities.LinkCustomerRequest{Customer: customer, Organization: "tern"})
	var elsewhere *billing.ErrLinkedElsewhere
	require.ErrorAs(t, err, &elsewhere)
	require.Equal(t, "acme", elsewhere.Slug)
	_, err = r.operator.LinkCustomer(t.Context(), activities.LinkCustomerRequest{Customer: customer, Organization: "acm"})
	require.ErrorIs(t, err, entitlements.ErrNotFound)
	require.ErrorContains(t, err, "acme")
	_, err = r.operator.LinkCustomer(t.Context(), activities.LinkCustomerRequest{Customer: "acme", Organization: "acme"})
	require.ErrorIs(t, err, billing.ErrInvalid)
	require.False(t, r.link(customer, "acme").Linked, "the same again")

	for _, request := range []activities.RetryRequest{{}, {Objects: []string{""}}, {All: true, Objects: []string{"sub_1"}}} {
		_, err = r.operator.RequestRetry(t.Context(), request)
		require.ErrorIs(t, err, billing.ErrInvalid)
	}
	first, second := r.subscribe(customer, "strange"), r.subscribe(customer, "strange")
	r.reconcile(first)
	r.reconcile(second)
	_, err = r.operator.RequestRetry(t.Context(), activities.RetryRequest{Objects: []string{first, "sub_none"}})
	require.ErrorIs(t, err, entitlements.ErrNotFound)
	require.Empty(t, r.due(), "one id that names nothing: nothing is asked for")
	got, err := r.operator.RequestRetry(t.Context(), activities.RetryRequest{All: true})
	require.NoError(t, err)
	require.Len(t, got.Requested, 2)

	// As an activity, its errors are those of the one table.
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	env.RegisterActivity(r.operator)
	_, err = env.ExecuteActivity(r.operator.LinkCustomer, activities.LinkCustomerRequest{Customer: customer, Organization: "tern"})
	requireFinal(t, err, activities.ErrTypeLinkedElsewhere)
}

// Names of activities are part of histories. Two receivers with one method name would make a worker panic.
func TestActivityNames(t *testing.T) {
	t.Parallel()
	var names []string
	for _, receiver := range []any{
		&activities.Subscriptions{}, &activities.Parked{}, &activities.Grants{}, &activities.Drain{}, &activities.Keeper{}, &activities.Operator{},
	} {
		for method := range reflect.TypeOf(receiver).Methods() {
			names = append(names, method.Name)
		}
	}
	require.ElementsMatch(t, []string{
		contract.ActivityReconcileSubscription, contract.ActivityParkSubscription, contract.ActivityLinkFromCheckout, contract.ActivityRetryParked,
		contract.ActivitySweepGrants, contract.ActivityDrainChange, contract.ActivityStartDrains, contract.ActivityKeep,
		contract.ActOrganizationCreate, contract.ActTierAdd, contract.ActTierRemove, contract.ActTierReorder, contract.ActDefaultChange, contract.ActRuleChange,
		contract.ActGrantIssue, contract.ActGrantExtend, contract.ActGrantManage, contract.ActGrantRevoke, contract.ActGrantResume,
		contract.ActUsageSpend, contract.ActUsageRelease, contract.ActUsageRaise, contract.ActUsageBound,
		// What commands call themselves.
		"CreateOrganization", "LinkCustomer", "RequestRetry", "ReopenObligations", "PreviewTierAdd", "PreviewTierRemove", "PreviewTierReorder",
	}, names)
}
