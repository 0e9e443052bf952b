package activities_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"
	"go.temporal.io/sdk/testsuite"

	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/internal/stripeapi/standin"
	"github.com/bursarhq/bursar/workflows/contract"
)

func TestALifeOfASubscription(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	customer := r.member("acme")
	require.Equal(t, free, r.entitlements("acme"), "the floor")

	id := r.subscribe(customer, "silver")
	got := r.reconcile(id)
	require.Equal(t, contract.ReconcileResult{
		Outcome: contract.OutcomeApplied, Status: "active", Organization: "acme", Version: 1, Reads: 1,
		Conferred: 1, Entitlements: 2, Detail: "ACME: silver × 1 active; 2 entitlements changed",
	}, got)
	require.Equal(t, silver, r.entitlements("acme"))
	require.Equal(t, "silver×1:active", r.held("acme", false), "the floor gave way")

	r.change(id, toPrice("gold"))
	got = r.reconcile(id)
	require.Equal(t, 1, got.Conferred)
	require.Equal(t, 1, got.Ended)
	require.Equal(t, gold, r.entitlements("acme"), "upgrade")

	r.change(id, toPrice("silver"))
	r.reconcile(id)
	require.Equal(t, silver, r.entitlements("acme"), "downgrade")

	r.change(id, func(s *standin.Subscription) {
		s.Items = append(s.Items, standin.Item{Price: "price_extra", Quantity: 3})
	})
	r.reconcile(id)
	require.Equal(t, "sites=11 storage=50", r.entitlements("acme"), "5 and three times 2")
	r.change(id, func(s *standin.Subscription) { s.Items[1].Quantity = 1 })
	got = r.reconcile(id)
	require.Equal(t, 1, got.Changed)
	require.Equal(t, "sites=7 storage=50", r.entitlements("acme"), "quantity")
	r.change(id, func(s *standin.Subscription) { s.Items[1].Quantity = 0 })
	require.Equal(t, 1, r.reconcile(id).Ended, "a quantity of 0 is as if the item were absent")
	require.Equal(t, silver, r.entitlements("acme"))
	r.change(id, func(s *standin.Subscription) { s.Items = s.Items[:1] })
	require.Zero(t, r.reconcile(id).Ended)

	r.status(id, "past_due")
	got = r.reconcile(id)
	require.Equal(t, "ACME: silver × 1 past_due; no entitlement changed", got.Detail)
	require.Equal(t, silver, r.entitlements("acme"))

	r.status(id, "canceled")
	got = r.reconcile(id)
	require.Equal(t, 1, got.Ended)
	require.Equal(t, "ACME: ended (canceled); 2 entitlements changed", got.Detail)
	require.Equal(t, free, r.entitlements("acme"), "the floor is restored")
	require.Equal(t, "free×1:active", r.held("acme", false))
	require.Empty(t, r.parked())
	r.ledgerAgrees()
}

// Two members whose subscriptions Stripe shows alike hold alike, whichever states were read on the way.
func TestSuspensionDoesNotDependOnWhatWasReadBefore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	one, other := r.subscribe(r.member("one"), "gold", "extra"), r.subscribe(r.member("other"), "gold", "extra")
	r.reconcile(one) // only of this one the active state is read
	for _, id := range []string{one, other} {
		r.status(id, "unpaid")
		r.reconcile(id)
	}
	require.Equal(t, "extra×1:suspended gold×1:suspended", r.held("one", false))
	require.Equal(t, r.held("one", false), r.held("other", false))
	require.Empty(t, r.entitlements("other"))

	for _, id := range []string{one, other} {
		r.change(id, func(s *standin.Subscription) { s.Items = s.Items[1:] })
		r.reconcile(id)
	}
	require.Equal(t, "extra×1:suspended free×1:active", r.held("one", false), "an item that is gone gives its place up, also while suspended")
	require.Equal(t, r.held("one", false), r.held("other", false))
}

func TestSuspensionKeepsThePlaceAndRecoveryIsExact(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	customer := r.member("acme")
	lower, upper := r.subscribe(customer, "silver"), r.subscribe(customer, "gold", "extra")
	r.reconcile(lower)
	r.reconcile(upper)
	before, held := r.entitlements("acme"), r.held("acme", true)
	require.Equal(t, "sites=22 storage=200 support=true", before)

	for _, status := range []string{"unpaid", "paused"} {
		r.status(upper, status)
		got := r.reconcile(upper)
		require.Equal(t, 2, got.Changed, status)
		require.Empty(t, r.entitlements("acme"), "suspended gold keeps its place: neither silver nor the floor confers instead")
		require.Equal(t, "extra×1:suspended gold×1:suspended silver×1:active", r.held("acme", false))

		r.status(upper, "active")
		require.Equal(t, 2, r.reconcile(upper).Changed)
		require.Equal(t, before, r.entitlements("acme"))
		require.Equal(t, held, r.held("acme", true), "the same positions, from the same times")
	}

	r.status(upper, "unpaid")
	r.reconcile(upper)
	r.status(upper, "canceled")
	r.reconcile(upper)
	require.Equal(t, silver, r.entitlements("acme"), "once gold has ended, silver confers")
	r.ledgerAgrees()
}

func TestIncompleteNeitherConfersNorEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	customer := r.member("acme")
	id := r.subscribe(customer, "gold")
	r.status(id, "incomplete")
	got := r.reconcile(id)
	require.Equal(t, contract.OutcomeApplied, got.Outcome, "the mirror has a new row")
	require.Equal(t, free, r.entitlements("acme"))
	r.status(id, "active")
	r.reconcile(id)
	r.status(id, "incomplete")
	r.reconcile(id)
	require.Equal(t, gold, r.entitlements("acme"), "what is held stays")
	r.status(id, "incomplete_expired")
	r.reconcile(id)
	require.Equal(t, free, r.entitlements("acme"))
}

func TestAPausedCollectionChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.subscribe(r.member("acme"), "gold")
	r.reconcile(id)
	r.change(id, func(s *standin.Subscription) { s.PauseCollection = "void" })
	require.Equal(t, contract.OutcomeUnchanged, r.reconcile(id).Outcome)
	require.Equal(t, gold, r.entitlements("acme"))
}

func TestEarlyTrialEndAndChangedInterval(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stripe.Freeze()
	customer := r.member("acme")
	api := r.client.API()
	sub, err := api.Subscriptions.New(&stripe.SubscriptionParams{
		Customer: &customer, TrialPeriodDays: stripe.Int64(14),
		Items: []*stripe.SubscriptionItemsParams{{Price: stripe.String("price_gold")}},
	})
	require.NoError(t, err)
	start := r.stripe.Now()
	require.Equal(t, "ACME: gold × 1 trialing; 3 entitlements changed", r.reconcile(sub.ID).Detail)

	r.stripe.Advance(5 * 24 * time.Hour)
	_, err = api.Subscriptions.Update(sub.ID, &stripe.SubscriptionParams{TrialEndNow: stripe.Bool(true)})
	require.NoError(t, err)
	trialEnded := r.stripe.Now()
	require.Equal(t, "active", r.reconcile(sub.ID).Status)

	r.stripe.Advance(3 * 24 * time.Hour)
	_, err = api.Subscriptions.Update(sub.ID, &stripe.SubscriptionParams{
		Items: []*stripe.SubscriptionItemsParams{{ID: &sub.Items.Data[0].ID, Price: stripe.String("price_gold_year")}},
	})
	require.NoError(t, err)
	yearly := r.stripe.Now()
	got := r.reconcile(sub.ID)
	require.Equal(t, contract.OutcomeApplied, got.Outcome)
	require.Zero(t, got.Conferred, "another price of the same product")
	require.Equal(t, gold, r.entitlements("acme"))

	periods, err := billing.Periods(t.Context(), r.db.Reader(), sub.ID)
	require.NoError(t, err)
	item := sub.Items.Data[0].ID
	require.Equal(t, []billing.Period{
		{ItemID: item, Start: start, End: trialEnded},
		{ItemID: item, Start: trialEnded, End: yearly},
		{ItemID: item, Start: yearly, End: yearly.AddDate(1, 0, 0)},
	}, periods)

	r.stripe.Advance(366 * 24 * time.Hour)
	r.reconcile(sub.ID)
	periods, err = billing.Periods(t.Context(), r.db.Reader(), sub.ID)
	require.NoError(t, err)
	require.Len(t, periods, 4, "a renewal adds one")
}

// Every act twice: the second changes no row but the version.
func TestTwiceIsANoOp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	customer := r.member("acme")
	id := r.subscribe(customer, "silver", "extra")
	acts := []struct {
		name string
		do   func()
	}{
		{"confer", func() {}},
		{"upgrade", func() { r.change(id, toPrice("gold")) }},
		{"quantity", func() { r.change(id, func(s *standin.Subscription) { s.Items[1].Quantity = 7 }) }},
		{"downgrade", func() { r.change(id, toPrice("silver")) }},
		{"suspend", func() { r.status(id, "unpaid") }},
		{"recover", func() { r.status(id, "active") }},
		{"remove an item", func() { r.change(id, func(s *standin.Subscription) { s.Items = s.Items[:1] }) }},
		{"cancel at the period's end", func() {
			r.change(id, func(s *standin.Subscription) { s.CancelAtPeriodEnd, s.CancelAt = true, s.CurrentPeriodEnd })
		}},
		{"take that back", func() {
			r.change(id, func(s *standin.Subscription) { s.CancelAtPeriodEnd, s.CancelAt = false, time.Time{} })
		}},
		{"end", func() { r.status(id, "canceled") }},
	}
	for _, act := range acts {
		act.do()
		first := r.reconcile(id)
		require.Equal(t, contract.OutcomeApplied, first.Outcome, act.name)
		rows := r.frozen()
		second := r.reconcile(id)
		require.Equal(t, contract.OutcomeUnchanged, second.Outcome, act.name)
		require.Equal(t, first.Version+1, second.Version, act.name)
		require.Zero(t, second.Conferred+second.Changed+second.Ended+second.Entitlements, act.name)
		require.Equal(t, rows, r.frozen(), act.name)
	}
}

func TestEventsLeadToTheVersionThatTheyCaused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.subscribe(r.member("acme"), "gold")
	request := contract.ReconcileRequest{SubscriptionID: id, Events: []contract.ReconcileSignal{
		{EventID: "evt_1", EventType: "customer.subscription.created"}, {EventType: "operator"}}}
	for range 2 {
		_, err := r.subs.ReconcileSubscription(t.Context(), request)
		require.NoError(t, err)
	}
	require.Equal(t, "evt_1@1", r.text(`SELECT event_id || '@' || version FROM stripe.subscription_events`))
}

// The ledger says which workflow did it.
func TestTheLedgerNamesTheWorkflow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.subscribe(r.member("acme"), "gold")
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	env.RegisterActivity(r.subs)
	_, err := env.ExecuteActivity(r.subs.ReconcileSubscription, contract.ReconcileRequest{SubscriptionID: id})
	require.NoError(t, err)
	require.Equal(t, "subscription-reconcile by default-test-workflow-id",
		r.text(`SELECT DISTINCT act || ' by ' || workflow FROM core.ledger WHERE workflow <> ''`))
}
