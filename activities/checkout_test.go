package activities_test

import (
	"context"
	"errors"
	"strings"
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

// Whoever makes a payment link writes the reference. What no organisation can be called is parked without a query, and its detail
// can be stored, whatever it holds.
func TestAReferenceThatNoOrganizationCanHave(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	acme := r.member("acme")
	session, subscription, payer := r.checkout("acme", "")
	through := &sessions{StripeReader: r.client}
	r.subs.Stripe = through
	for _, reference := range []string{"a\x00b", "a\xff\xfeb", "Acme Ltd.", "ACME", "-acme", " acme", strings.Repeat("a", 64), strings.Repeat("\x00", 10_000), "urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c8"} {
		through.change = func(s *stripe.CheckoutSession) { s.ClientReferenceID = reference }
		got := r.linkFrom(session, subscription)
		require.False(t, got.Linked, "%q", reference)
		require.False(t, got.NothingToDo)
		require.Equal(t, string(billing.ReasonUnknownOrganization), got.ParkedReason)
		parked := r.parked()
		require.Len(t, parked, 1)
		require.Equal(t, billing.ReasonUnknownOrganization, parked[0].Reason)
		require.Equal(t, payer, parked[0].WaitingCustomer)
		require.Contains(t, parked[0].Detail, "neither the slug nor the id")
		require.NotContains(t, parked[0].Detail, "make the organisation", "that would not free it")
		require.Zero(t, r.count(`SELECT count(*) FROM stripe.parked_work WHERE waiting_organization IS NOT NULL`))
		require.Empty(t, r.due())
	}
	// Linked by hand, the question is answered, also for those.
	r.link(payer, "acme")
	require.Equal(t, session, r.due())
	require.True(t, r.linkFrom(session, subscription).NothingToDo)
	require.Empty(t, r.parked())

	// An id in capitals is the same id.
	id := r.text(`SELECT upper(id::text) FROM core.organizations`)
	through.change = func(s *stripe.CheckoutSession) { s.ClientReferenceID, s.Customer.ID = id, acme }
	require.True(t, r.linkFrom(session, subscription).Linked)
}

func TestACustomerThatNoneCanBe(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.member("acme")
	session, subscription, _ := r.checkout("acme", "")
	through := &sessions{StripeReader: r.client}
	r.subs.Stripe = through
	for _, customer := range []string{"gcus_1", "cus_\x00", "cus_\xff", "cus_ 1"} {
		through.change = func(s *stripe.CheckoutSession) { s.Customer.ID = customer }
		got := r.linkFrom(session, subscription)
		require.False(t, got.Linked, "%q", customer)
		require.Equal(t, string(billing.ReasonFailed), got.ParkedReason)
		parked := r.parked()
		require.Len(t, parked, 1)
		require.Equal(t, billing.ParkedKey{Kind: billing.ParkedCheckout, ObjectID: session}, parked[0].ParkedKey)
		require.Equal(t, billing.ReasonFailed, parked[0].Reason)
		require.Empty(t, parked[0].WaitingCustomer)
		require.Contains(t, parked[0].Detail, "bursar parked retry "+session)
	}
	through.change = func(*stripe.CheckoutSession) {}
	require.True(t, r.linkFrom(session, subscription).Linked)
	require.Empty(t, r.parked())
}

// What a later signal cannot change is told apart from what it can.
func TestACheckoutSaysWhetherAnotherTryMayDiffer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.member("acme")
	session, subscription, _ := r.checkout("", "")
	require.True(t, r.linkFrom(session, subscription).NothingToDo, "it names no organisation")
	session, subscription, _ = r.checkout("acme", "")
	through := &sessions{StripeReader: r.client}
	r.subs.Stripe = through
	for status, nothing := range map[stripe.CheckoutSessionStatus]bool{stripe.CheckoutSessionStatusOpen: false, stripe.CheckoutSessionStatusExpired: true} {
		through.change = func(s *stripe.CheckoutSession) { s.Status = status }
		got := r.linkFrom(session, subscription)
		require.False(t, got.Linked)
		require.Equal(t, nothing, got.NothingToDo, status)
		require.Empty(t, got.ParkedReason)
	}
}

// The workflow parks what failed for good: as a checkout, which touches neither the subscription's version nor its own parked row.
func TestACheckoutIsParkedForTheWorkflow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.member("acme")
	session, subscription, _ := r.checkout("acme", "")
	require.Equal(t, contract.OutcomeParked, r.reconcile(subscription).Outcome)
	for range 2 {
		require.NoError(t, r.subs.ParkSubscription(t.Context(), contract.ParkRequest{SubscriptionID: subscription, CheckoutSession: session, Reason: "broken\x00 \xff"}))
	}
	parked := r.parked()
	require.Len(t, parked, 2)
	require.Equal(t, billing.ParkedKey{Kind: billing.ParkedCheckout, ObjectID: session}, parked[0].ParkedKey)
	require.Equal(t, billing.ReasonFailed, parked[0].Reason)
	require.Equal(t, subscription, parked[0].SubscriptionID)
	require.Equal(t, 2, parked[0].Attempts)
	require.Equal(t, "broken �", parked[0].Detail)
	require.Equal(t, billing.ReasonUnknownCustomer, parked[1].Reason)
	require.Equal(t, 1, parked[1].Attempts)
	require.Equal(t, int64(1), r.version(subscription))

	// An operator's retry reaches the subscription with the checkout in hand, and a link frees both.
	_, err := r.operator.RequestRetry(t.Context(), activities.RetryRequest{Objects: []string{session}})
	require.NoError(t, err)
	require.Equal(t, session, r.due())
	require.True(t, r.linkFrom(session, subscription).Linked)
	require.Equal(t, contract.OutcomeApplied, r.reconcile(subscription).Outcome)
	require.Empty(t, r.parked())
}

// sessions changes the checkout sessions that Stripe shows.
type sessions struct {
	activities.StripeReader
	change func(*stripe.CheckoutSession)
}

func (s *sessions) CheckoutSession(ctx context.Context, id string) (*stripe.CheckoutSession, error) {
	session, err := s.StripeReader.CheckoutSession(ctx, id)
	if err == nil {
		s.change(session)
	}
	return session, err
}
