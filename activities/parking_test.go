package activities_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/stripeapi/standin"
	"github.com/bursarhq/bursar/workflows/contract"
)

// What Stripe does not show as ours parks; nothing that is held ends, and the mirror stays as it was but for its version.
func TestNotFoundAndLivemodeMismatchParkAndEndNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for n, c := range []struct {
		reason billing.Reason
		hide   func(id string)
	}{
		{billing.ReasonNotFound, func(id string) { r.stripe.Forget(id) }},
		{billing.ReasonLivemodeMismatch, func(id string) {
			require.NoError(t, r.stripe.SetLivemode(id, true))
			r.status(id, "canceled") // of a test object nothing counts, its end neither
		}},
	} {
		slug := []string{"acme", "tern"}[n]
		id := r.subscribe(r.member(slug), "gold")
		r.reconcile(id)
		sub, _ := r.stripe.GetSubscription(id)
		rows := r.frozen()

		c.hide(id)
		for try := range 2 {
			got := r.reconcile(id)
			require.Equal(t, contract.OutcomeParked, got.Outcome)
			require.Equal(t, string(c.reason), got.ParkedReason)
			require.Equal(t, int64(2+try), got.Version, "a park raises the version")
			require.Equal(t, slug, got.Organization)
			require.Empty(t, got.Status)
		}
		require.Equal(t, gold, r.entitlements(slug))
		require.Equal(t, rows, r.frozen())
		parked := r.parked()
		require.Len(t, parked, 1)
		require.Equal(t, c.reason, parked[0].Reason)
		require.Equal(t, 2, parked[0].Attempts)
		require.Contains(t, parked[0].Detail, id)
		require.Empty(t, r.due(), "nothing here can free it")

		_, err := r.stripe.PutSubscription(sub)
		require.NoError(t, err)
		require.Equal(t, contract.OutcomeUnchanged, r.reconcile(id).Outcome)
		require.Empty(t, r.parked(), "a reconcile that succeeds frees it")
	}

	r.stripe.Forget("sub_never")
	got := r.reconcile("sub_never")
	require.Equal(t, contract.OutcomeParked, got.Outcome)
	require.Equal(t, int64(1), got.Version, "a row without a status carries the version")
}

func TestUnmappedPriceParksAndIsDueOnceItIsMapped(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.subscribe(r.member("acme"), "gold", "strange", "extra")
	got := r.reconcile(id)
	require.Equal(t, contract.OutcomeParked, got.Outcome)
	require.Equal(t, string(billing.ReasonUnmappedPrice), got.ParkedReason)
	require.Equal(t, 2, got.Conferred, "what is mapped is conferred")
	require.Contains(t, got.Detail, "price_strange (Stripe product prod_strange)")
	require.Equal(t, "sites=22 storage=200 support=true", r.entitlements("acme"))
	require.Empty(t, r.due())

	rows := r.frozen()
	require.Equal(t, contract.OutcomeParked, r.reconcile(id).Outcome)
	require.Equal(t, rows, r.frozen())

	r.mapPrice("strange", "extra")
	require.Equal(t, id, r.due())
	got = r.reconcile(id)
	require.Equal(t, contract.OutcomeApplied, got.Outcome)
	require.Equal(t, "sites=24 storage=200 support=true", r.entitlements("acme"))
	require.Empty(t, r.parked())
}

// An item that changes to a price without a product keeps what it has; what Stripe shows no more ends all the same.
func TestUnmappedItemsKeepTheirPositions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.subscribe(r.member("acme"), "gold", "extra")
	r.reconcile(id)
	r.change(id, func(s *standin.Subscription) {
		s.Items[0].Price = "price_strange"
		s.Items = s.Items[:1]
	})
	got := r.reconcile(id)
	require.Equal(t, contract.OutcomeParked, got.Outcome)
	require.Equal(t, 1, got.Ended)
	require.Equal(t, gold, r.entitlements("acme"))
	require.Equal(t, "gold×1:active", r.held("acme", false))

	r.status(id, "canceled")
	require.Equal(t, contract.OutcomeApplied, r.reconcile(id).Outcome, "an end needs no mapping")
	require.Equal(t, free, r.entitlements("acme"))
	require.Empty(t, r.parked())
}

func TestUnknownCustomerParksAndIsDueOnceItIsLinked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.member("acme")
	customer := r.stripe.PutCustomer(standin.Customer{}).ID
	id := r.subscribe(customer, "gold")
	for range 2 {
		got := r.reconcile(id)
		require.Equal(t, string(billing.ReasonUnknownCustomer), got.ParkedReason)
		require.Empty(t, got.Organization)
		require.Contains(t, got.Detail, "bursar customer link "+customer)
	}
	require.Zero(t, r.count(`SELECT count(*) FROM core.positions WHERE source = 'subscription'`))
	require.Empty(t, r.due())

	result := r.link(customer, "acme")
	require.True(t, result.Linked)
	require.Len(t, result.Freed, 1)
	require.Equal(t, id, result.Freed[0].ObjectID)
	require.Equal(t, id, r.due())
	require.Equal(t, contract.OutcomeApplied, r.reconcile(id).Outcome)
	require.Equal(t, gold, r.entitlements("acme"))
	require.Empty(t, r.parked())
	require.Empty(t, r.link(customer, "acme").Freed)
}

func TestUnknownCustomerAndUnmappedPriceTogether(t *testing.T) {
	t.Parallel()
	for _, linkFirst := range []bool{true, false} {
		r := newRig(t)
		r.member("acme")
		customer := r.stripe.PutCustomer(standin.Customer{}).ID
		id := r.subscribe(customer, "strange", "gold")
		got := r.reconcile(id)
		require.Equal(t, string(billing.ReasonUnknownCustomer), got.ParkedReason)
		require.Contains(t, got.Detail, "price_strange")
		steps := []func(){func() { r.link(customer, "acme") }, func() { r.mapPrice("strange", "extra") }}
		if !linkFirst {
			steps[0], steps[1] = steps[1], steps[0]
		}
		steps[0]()
		require.Equal(t, id, r.due(), "either frees it")
		require.Equal(t, contract.OutcomeParked, r.reconcile(id).Outcome)
		require.Empty(t, r.due(), "it waits for the other one only")
		steps[1]()
		require.Equal(t, id, r.due())
		require.Equal(t, contract.OutcomeApplied, r.reconcile(id).Outcome)
		require.Equal(t, "sites=22 storage=200 support=true", r.entitlements("acme"))
		require.Empty(t, r.parked())
	}
}

func TestWhatConfersNothingIsNotParked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	customer := r.stripe.PutCustomer(standin.Customer{}).ID
	for status, want := range map[string]string{
		"incomplete": contract.OutcomeApplied, "canceled": contract.OutcomeApplied, "incomplete_expired": contract.OutcomeApplied,
		"active": contract.OutcomeParked, "trialing": contract.OutcomeParked, "past_due": contract.OutcomeParked, "unpaid": contract.OutcomeParked, "paused": contract.OutcomeParked,
	} {
		id := r.subscribe(customer, "strange")
		r.status(id, status)
		require.Equal(t, want, r.reconcile(id).Outcome, status)
	}
}

// The link commits after the reconcile has looked for it and before the reconcile parks: it is due all the same.
func TestALinkAtTheInstantOfAParkIsNotLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.member("acme")
	customer := r.stripe.PutCustomer(standin.Customer{}).ID
	id := r.subscribe(customer, "gold")
	r.reconcile(id)

	// Whoever holds the parked row stops the reconcile between its look and its park.
	holder, err := r.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = holder.Exec(t.Context(), `SELECT FROM stripe.parked_work WHERE object_id = $1 FOR UPDATE`, id)
	require.NoError(t, err)
	parked := make(chan outcome, 1)
	go func() {
		result, err := r.subs.ReconcileSubscription(t.Context(), contract.ReconcileRequest{SubscriptionID: id})
		parked <- outcome{result, err}
	}()
	eventually(t, "the reconcile waits for the parked row", func() bool {
		return r.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%parked-work%'`) == 1
	})
	require.Equal(t, 2, r.openTransactions(), "the holder and the reconcile: what the test of a hung Stripe counts is seen")
	r.link(customer, "acme")
	require.NoError(t, holder.Rollback(t.Context()))
	o := <-parked
	require.NoError(t, o.err)
	require.Equal(t, string(billing.ReasonUnknownCustomer), o.ParkedReason)
	require.Equal(t, id, r.due())
}

func TestWhatCannotBeMirroredIsParked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.subscribe(r.member("acme"), "gold")
	r.reconcile(id)
	rows := r.frozen()
	r.change(id, func(s *standin.Subscription) { s.Items[0].Quantity = billing.MaxQuantity + 1 })
	got := r.reconcile(id)
	require.Equal(t, string(billing.ReasonFailed), got.ParkedReason)
	require.Contains(t, got.Detail, "1000001")
	require.Equal(t, rows, r.frozen())

	_, err := r.subs.ReconcileSubscription(t.Context(), contract.ReconcileRequest{SubscriptionID: "in_1"})
	requireFinal(t, err, activities.ErrTypeInvalidArgument)
	require.Equal(t, billing.MaxQuantity, entitlements.MaxQuantity)
}

func TestParkSubscription(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.subscribe(r.member("acme"), "gold")
	r.reconcile(id)
	rows := r.frozen()
	request := contract.ParkRequest{SubscriptionID: id, Reason: "out of order\x00: " + strings.Repeat("ä", 4000), Events: []contract.ReconcileSignal{{EventID: "evt_1", EventType: "x"}}}
	for range 2 {
		require.NoError(t, r.subs.ParkSubscription(t.Context(), request))
	}
	parked := r.parked()
	require.Len(t, parked, 1)
	require.Equal(t, billing.ReasonFailed, parked[0].Reason)
	require.True(t, strings.HasPrefix(parked[0].Detail, "out of order: ää"))
	require.Less(t, len(parked[0].Detail), 4100)
	require.Equal(t, 2, parked[0].Attempts)
	require.Equal(t, int64(3), r.version(id))
	require.Equal(t, rows, r.frozen())
	require.Equal(t, "evt_1@2", r.text(`SELECT event_id || '@' || version FROM stripe.subscription_events`))

	require.NoError(t, r.subs.ParkSubscription(t.Context(), contract.ParkRequest{SubscriptionID: "sub_new"}))
	require.Equal(t, int64(1), r.version("sub_new"))
	requireFinal(t, r.subs.ParkSubscription(t.Context(), contract.ParkRequest{SubscriptionID: "x", Reason: "y"}), activities.ErrTypeInvalidArgument)
}
