package activities_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"
	"go.temporal.io/sdk/temporal"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/workflows/contract"
)

// requireFinal expects an error of the type that is not retryable.
func requireFinal(t *testing.T, err error, errType string) {
	t.Helper()
	var app *temporal.ApplicationError
	require.True(t, errors.As(err, &app), "%v", err)
	require.Equal(t, errType, app.Type())
	require.True(t, app.NonRetryable())
}

// checkout lets a member pay for gold on the checkout page. It returns the session, the subscription and the customer.
func (r *rig) checkout(reference, customer string) (session, subscription, payer string) {
	r.t.Helper()
	params := &stripe.CheckoutSessionParams{
		Mode: stripe.String("subscription"), SuccessURL: stripe.String("https://example.org/thanks"),
		LineItems: []*stripe.CheckoutSessionLineItemParams{{Price: stripe.String("price_gold"), Quantity: stripe.Int64(1)}},
	}
	if reference != "" {
		params.ClientReferenceID = &reference
	}
	if customer != "" {
		params.Customer = &customer
	}
	made, err := r.client.API().CheckoutSessions.New(params)
	require.NoError(r.t, err)
	subscription, err = r.stripe.CompleteCheckout(made.ID)
	require.NoError(r.t, err)
	sub, _ := r.stripe.GetSubscription(subscription)
	return made.ID, subscription, sub.Customer
}

func (r *rig) linkFrom(session, subscription string) contract.LinkResult {
	r.t.Helper()
	result, err := r.subs.LinkFromCheckout(r.t.Context(), contract.LinkRequest{SubscriptionID: subscription, CheckoutSession: session})
	require.NoError(r.t, err)
	return result
}

func TestACheckoutLinksItsCustomer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.member("acme")
	id := r.text(`SELECT id::text FROM core.organizations`)
	for _, reference := range []string{"acme", id} {
		session, subscription, payer := r.checkout(reference, "")
		require.Equal(t, contract.OutcomeParked, r.reconcile(subscription).Outcome, "before the link")
		for range 2 {
			got := r.linkFrom(session, subscription)
			require.True(t, got.Linked)
			require.Equal(t, "acme", got.Organization)
		}
		require.Equal(t, "checkout", r.text(`SELECT linked_by FROM stripe.customers WHERE id = $1`, payer))
		require.Equal(t, subscription, r.due())
		require.Equal(t, contract.OutcomeApplied, r.reconcile(subscription).Outcome)
	}
	require.Equal(t, gold, r.entitlements("acme"))
	require.Empty(t, r.parked())
}

func TestACheckoutWithNothingToLink(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.member("acme")
	session, subscription, _ := r.checkout("", "")
	got := r.linkFrom(session, subscription)
	require.False(t, got.Linked)
	require.NotEmpty(t, got.Detail)

	open, err := r.client.API().CheckoutSessions.New(&stripe.CheckoutSessionParams{
		Mode: stripe.String("subscription"), SuccessURL: stripe.String("https://example.org"), ClientReferenceID: stripe.String("acme"),
		LineItems: []*stripe.CheckoutSessionLineItemParams{{Price: stripe.String("price_gold"), Quantity: stripe.Int64(1)}},
	})
	require.NoError(t, err)
	require.False(t, r.linkFrom(open.ID, subscription).Linked, "it is not paid yet")
	require.Equal(t, 1, r.count(`SELECT count(*) FROM stripe.customers`))
	require.Empty(t, r.parked())

	_, err = r.subs.LinkFromCheckout(t.Context(), contract.LinkRequest{SubscriptionID: subscription})
	requireFinal(t, err, activities.ErrTypeInvalidArgument)
	_, err = r.subs.LinkFromCheckout(t.Context(), contract.LinkRequest{SubscriptionID: "x", CheckoutSession: session})
	requireFinal(t, err, activities.ErrTypeInvalidArgument)
}

func TestACheckoutOfAnUnknownOrganization(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	session, subscription, payer := r.checkout("acmé ltd", "")
	for range 2 {
		require.False(t, r.linkFrom(session, subscription).Linked)
	}
	parked := r.parked()
	require.Len(t, parked, 1)
	require.Equal(t, billing.ParkedKey{Kind: billing.ParkedCheckout, ObjectID: session}, parked[0].ParkedKey)
	require.Equal(t, billing.ReasonUnknownOrganization, parked[0].Reason)
	require.Equal(t, subscription, parked[0].SubscriptionID)
	require.Equal(t, 2, parked[0].Attempts)
	require.Contains(t, parked[0].Detail, "acmé ltd")
	require.Empty(t, r.due())

	// Linked by hand, the question is answered.
	r.member("acme")
	require.Len(t, r.link(payer, "acme").Freed, 1)
	require.Equal(t, session, r.due())
	require.False(t, r.linkFrom(session, subscription).Linked)
	require.Empty(t, r.parked())

	// Made later, the organisation makes it due and is found by the retry.
	session, subscription, _ = r.checkout("later", "")
	r.linkFrom(session, subscription)
	require.Empty(t, r.due())
	r.member("later")
	require.Equal(t, session, r.due())
	require.True(t, r.linkFrom(session, subscription).Linked)
	require.Empty(t, r.parked())
}

func TestACheckoutThatContradictsALink(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	customer := r.member("acme")
	r.member("tern")
	session, subscription, _ := r.checkout("tern", customer)
	got := r.linkFrom(session, subscription)
	require.False(t, got.Linked)
	parked := r.parked()
	require.Len(t, parked, 1)
	require.Equal(t, billing.ReasonConflictingLink, parked[0].Reason)
	require.Contains(t, parked[0].Detail, "acme")
	require.Contains(t, parked[0].Detail, "tern")
	require.Equal(t, "acme", r.text(`SELECT o.slug FROM stripe.customers c JOIN core.organizations o ON o.id = c.organization_id WHERE c.id = $1`, customer))
	require.Empty(t, r.due(), "no link can free it, so it is not tried for ever")
}

func TestACheckoutThatStripeDoesNotShowAsOurs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.member("acme")
	session, subscription, _ := r.checkout("acme", "")
	r.linkFrom("cs_test_unknown", subscription)
	require.Equal(t, billing.ReasonNotFound, r.parked()[0].Reason)

	r.subs.Livemode = true
	require.False(t, r.linkFrom(session, subscription).Linked)
	require.Len(t, r.parked(), 2)
	require.Equal(t, 1, r.count(`SELECT count(*) FROM stripe.customers`))
	r.subs.Livemode = false
	require.True(t, r.linkFrom(session, subscription).Linked)
	require.Len(t, r.parked(), 1)

	r.stripe.FailNext(1, 500)
	_, err := r.subs.LinkFromCheckout(t.Context(), contract.LinkRequest{SubscriptionID: subscription, CheckoutSession: session})
	require.True(t, retryable(err, activities.ErrTypeStripeUnavailable), "%v", err)
}
