package standin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/bursarhq/bursar/internal/stripeapi/standin"
)

func mustGet(t *testing.T, r *rig, id string) *stripe.Subscription {
	t.Helper()
	sub, err := r.api.Subscriptions.Get(id, nil)
	require.NoError(t, err)
	return sub
}

// fixed is a clock that stands still; a test moves it with Advance.
func fixed(at string) func() time.Time {
	when, err := time.Parse(time.RFC3339, at)
	if err != nil {
		panic(err)
	}
	return func() time.Time { return when }
}

func unix(at string) int64 { return fixed(at)().Unix() }

func period(sub *stripe.Subscription) [2]int64 {
	return [2]int64{sub.CurrentPeriodStart, sub.CurrentPeriodEnd}
}

func TestSubscriptionLife(t *testing.T) {
	r := start(t, standin.Options{Clock: fixed("2026-01-31T10:00:00Z")})
	p := r.plans(t)
	sub := r.subscribe(t, p.basic)
	require.Regexp(t, `^sub_[0-9A-Za-z]{24}$`, sub.ID)
	require.Equal(t, stripe.SubscriptionStatusActive, sub.Status)
	require.EqualValues(t, 1, sub.Items.Data[0].Quantity)
	require.Equal(t, p.product, sub.Items.Data[0].Price.Product.ID)
	require.Equal(t, [2]int64{unix("2026-01-31T10:00:00Z"), unix("2026-02-28T10:00:00Z")}, period(sub))

	// A price of the same interval keeps the period; the item keeps its id.
	item := sub.Items.Data[0].ID
	up, err := r.api.Subscriptions.Update(sub.ID, &stripe.SubscriptionParams{
		Items: []*stripe.SubscriptionItemsParams{{ID: &item, Price: &p.pro, Quantity: stripe.Int64(4)}}})
	require.NoError(t, err)
	require.Equal(t, item, up.Items.Data[0].ID)
	require.Equal(t, p.pro, up.Items.Data[0].Price.ID)
	require.EqualValues(t, 4, up.Items.Data[0].Quantity)
	require.Equal(t, period(sub), period(up))

	// Another interval starts a new period now.
	r.Advance(48 * time.Hour)
	year, err := r.api.Subscriptions.Update(sub.ID, &stripe.SubscriptionParams{
		Items: []*stripe.SubscriptionItemsParams{{ID: &item, Price: &p.yearly}}})
	require.NoError(t, err)
	require.Equal(t, [2]int64{unix("2026-02-02T10:00:00Z"), unix("2027-02-02T10:00:00Z")}, period(year))

	// Collection paused leaves the status alone, and unsets again.
	paused, err := r.api.Subscriptions.Update(sub.ID, &stripe.SubscriptionParams{
		PauseCollection: &stripe.SubscriptionPauseCollectionParams{Behavior: stripe.String("void")}})
	require.NoError(t, err)
	require.Equal(t, stripe.SubscriptionStatusActive, paused.Status)
	require.Equal(t, "void", string(paused.PauseCollection.Behavior))
	unpause := &stripe.SubscriptionParams{}
	unpause.AddExtra("pause_collection", "")
	paused, err = r.api.Subscriptions.Update(sub.ID, unpause)
	require.NoError(t, err)
	require.Nil(t, paused.PauseCollection)

	later, err := r.api.Subscriptions.Update(sub.ID, &stripe.SubscriptionParams{CancelAtPeriodEnd: stripe.Bool(true)})
	require.NoError(t, err)
	require.True(t, later.CancelAtPeriodEnd)
	require.Equal(t, later.CurrentPeriodEnd, later.CancelAt)
	later, err = r.api.Subscriptions.Update(sub.ID, &stripe.SubscriptionParams{CancelAtPeriodEnd: stripe.Bool(false)})
	require.NoError(t, err)
	require.Zero(t, later.CancelAt)
	require.Zero(t, later.CanceledAt)

	gone, err := r.api.Subscriptions.Cancel(sub.ID, &stripe.SubscriptionCancelParams{})
	require.NoError(t, err)
	require.Equal(t, stripe.SubscriptionStatusCanceled, gone.Status)
	require.NotZero(t, gone.EndedAt)
	_, err = r.api.Subscriptions.Cancel(sub.ID, nil)
	refused(t, err, 404, "resource_missing")
	_, err = r.api.Subscriptions.Update(sub.ID, &stripe.SubscriptionParams{CancelAtPeriodEnd: stripe.Bool(true)})
	refused(t, err, 400, "")
	require.Equal(t, stripe.SubscriptionStatusCanceled, mustGet(t, r, sub.ID).Status, "a canceled one can still be read")

	subs := r.types()[len(r.types())-7:]
	require.Equal(t, []string{"customer.subscription.updated", "customer.subscription.updated", "customer.subscription.updated",
		"customer.subscription.updated", "customer.subscription.updated", "customer.subscription.updated",
		"customer.subscription.deleted"}, subs)
}

func TestTrial(t *testing.T) {
	r := start(t, standin.Options{Clock: fixed("2026-03-01T00:00:00Z")})
	p := r.plans(t)
	c := r.PutCustomer(standin.Customer{})
	sub, err := r.api.Subscriptions.New(&stripe.SubscriptionParams{Customer: &c.ID, TrialEnd: stripe.Int64(unix("2026-03-15T00:00:00Z")),
		Items: []*stripe.SubscriptionItemsParams{{Price: &p.basic}}})
	require.NoError(t, err)
	require.Equal(t, stripe.SubscriptionStatusTrialing, sub.Status)
	require.Equal(t, [2]int64{unix("2026-03-01T00:00:00Z"), unix("2026-03-15T00:00:00Z")}, period(sub))

	// Another interval during the trial leaves the trial alone; its early end starts a period of the new one.
	r.Advance(72 * time.Hour)
	sub, err = r.api.Subscriptions.Update(sub.ID, &stripe.SubscriptionParams{
		Items: []*stripe.SubscriptionItemsParams{{ID: &sub.Items.Data[0].ID, Price: &p.yearly}}})
	require.NoError(t, err)
	require.Equal(t, stripe.SubscriptionStatusTrialing, sub.Status)
	sub, err = r.api.Subscriptions.Update(sub.ID, &stripe.SubscriptionParams{TrialEndNow: stripe.Bool(true)})
	require.NoError(t, err)
	require.Equal(t, stripe.SubscriptionStatusActive, sub.Status)
	require.Equal(t, [2]int64{unix("2026-03-04T00:00:00Z"), unix("2027-03-04T00:00:00Z")}, period(sub))
	require.Equal(t, unix("2026-03-04T00:00:00Z"), sub.TrialEnd)

	// A trial that runs out by itself.
	other, err := r.api.Subscriptions.New(&stripe.SubscriptionParams{Customer: &c.ID, TrialPeriodDays: stripe.Int64(10),
		Items: []*stripe.SubscriptionItemsParams{{Price: &p.basic}}})
	require.NoError(t, err)
	r.Advance(11 * 24 * time.Hour)
	other = mustGet(t, r, other.ID)
	require.Equal(t, stripe.SubscriptionStatusActive, other.Status)
	require.Equal(t, [2]int64{unix("2026-03-14T00:00:00Z"), unix("2026-04-14T00:00:00Z")}, period(other))
}

func TestAdvanceRenewsAndEnds(t *testing.T) {
	r := start(t, standin.Options{Clock: fixed("2026-01-31T12:00:00Z")})
	p := r.plans(t)
	keeps, ends := r.subscribe(t, p.basic), r.subscribe(t, p.basic)
	_, err := r.api.Subscriptions.Update(ends.ID, &stripe.SubscriptionParams{CancelAtPeriodEnd: stripe.Bool(true)})
	require.NoError(t, err)
	before := len(r.Events())
	r.Advance(70 * 24 * time.Hour) // 11 April: two renewals on the month's last days
	got := mustGet(t, r, keeps.ID)
	require.Equal(t, [2]int64{unix("2026-03-31T12:00:00Z"), unix("2026-04-30T12:00:00Z")}, period(got))
	gone := mustGet(t, r, ends.ID)
	require.Equal(t, stripe.SubscriptionStatusCanceled, gone.Status)
	require.Equal(t, unix("2026-02-28T12:00:00Z"), gone.EndedAt)
	require.Equal(t, []string{"customer.subscription.updated", "customer.subscription.updated", "customer.subscription.deleted"}, r.types()[before:])
}

func TestItems(t *testing.T) {
	r := start(t, standin.Options{EmbeddedItems: 2})
	p := r.plans(t)
	sub := r.subscribe(t, p.basic, p.pro)
	require.False(t, sub.Items.HasMore)
	add := func(items ...*stripe.SubscriptionItemsParams) error {
		_, err := r.api.Subscriptions.Update(sub.ID, &stripe.SubscriptionParams{Items: items})
		return err
	}
	refused(t, add(&stripe.SubscriptionItemsParams{Price: &p.basic}), 400, "")
	refused(t, add(&stripe.SubscriptionItemsParams{Price: &p.yearly}), 400, "")
	refused(t, add(&stripe.SubscriptionItemsParams{Price: &p.once}), 400, "")
	refused(t, add(&stripe.SubscriptionItemsParams{ID: stripe.String("si_gone")}), 400, "resource_missing")
	refused(t, add(&stripe.SubscriptionItemsParams{ID: &sub.Items.Data[0].ID, Deleted: stripe.Bool(true)},
		&stripe.SubscriptionItemsParams{ID: &sub.Items.Data[1].ID, Deleted: stripe.Bool(true)}), 400, "")
	third, err := r.PutPrice(standin.Price{Product: p.product, Interval: "month"})
	require.NoError(t, err)
	before := len(r.Events())
	require.NoError(t, add(&stripe.SubscriptionItemsParams{Price: &third.ID, Quantity: stripe.Int64(9)}))
	require.Len(t, r.Events(), before+1)
	got := mustGet(t, r, sub.ID)
	require.Len(t, got.Items.Data, 2)
	require.True(t, got.Items.HasMore)

	list := &stripe.SubscriptionItemListParams{Subscription: &sub.ID}
	list.Limit = stripe.Int64(1)
	it := r.api.SubscriptionItems.List(list)
	var prices []string
	var last *stripe.SubscriptionItem
	for it.Next() {
		last = it.SubscriptionItem()
		prices = append(prices, last.Price.ID)
	}
	require.NoError(t, it.Err())
	require.Equal(t, []string{p.basic, p.pro, third.ID}, prices)

	// A change to an item beyond the embedded ones is an event too.
	require.NoError(t, add(&stripe.SubscriptionItemsParams{ID: &last.ID, Quantity: stripe.Int64(10)}))
	require.Len(t, r.Events(), before+2)
	one, err := r.api.SubscriptionItems.Get(last.ID, nil)
	require.NoError(t, err)
	require.EqualValues(t, 10, one.Quantity)
}

func TestStatusControls(t *testing.T) {
	r := start(t, standin.Options{})
	p := r.plans(t)
	sub := r.subscribe(t, p.basic)
	before := len(r.Events())
	for _, status := range []string{"past_due", "past_due", "unpaid", "active", "paused", "active", "canceled"} {
		require.NoError(t, r.SetStatus(sub.ID, status))
		require.Equal(t, status, string(mustGet(t, r, sub.ID).Status))
	}
	require.Equal(t, []string{"customer.subscription.updated", "customer.subscription.updated", "customer.subscription.updated",
		"customer.subscription.updated", "customer.subscription.paused", "customer.subscription.updated",
		"customer.subscription.resumed", "customer.subscription.deleted"}, r.types()[before:])
	require.Error(t, r.SetStatus(sub.ID, "happy"))
	require.Error(t, r.SetStatus("sub_gone", "active"))
	require.Equal(t, 7, r.Reads(sub.ID))

	other := r.subscribe(t, p.basic)
	require.NoError(t, r.SetStatus(other.ID, "paused"))
	resumed, err := r.api.Subscriptions.Resume(other.ID, &stripe.SubscriptionResumeParams{})
	require.NoError(t, err)
	require.Equal(t, stripe.SubscriptionStatusActive, resumed.Status)
	require.NoError(t, r.SetLivemode(other.ID, true))
	require.True(t, mustGet(t, r, other.ID).Livemode)

	list := &stripe.SubscriptionListParams{Status: stripe.String("all")}
	it, n := r.api.Subscriptions.List(list), 0
	for it.Next() {
		n++
	}
	require.Equal(t, 2, n)
	r.Forget(other.ID)
	_, err = r.api.Subscriptions.Get(other.ID, nil)
	refused(t, err, 404, "resource_missing")
}

func TestPutSubscription(t *testing.T) {
	r := start(t, standin.Options{})
	p := r.plans(t)
	_, err := r.PutSubscription(standin.Subscription{Customer: "cus_any"})
	require.Error(t, err)
	_, err = r.PutSubscription(standin.Subscription{Customer: "cus_any", Items: []standin.Item{{Price: "price_gone"}}})
	require.Error(t, err)
	from := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	put, err := r.PutSubscription(standin.Subscription{ID: "sub_fixed", Customer: "cus_unknown", Status: "unpaid",
		Items: []standin.Item{{Price: p.basic, Quantity: 3}}, CurrentPeriodStart: from})
	require.NoError(t, err)
	got := mustGet(t, r, "sub_fixed")
	require.Equal(t, "cus_unknown", got.Customer.ID)
	require.Equal(t, stripe.SubscriptionStatusUnpaid, got.Status)
	require.Equal(t, [2]int64{from.Unix(), from.AddDate(0, 1, 0).Unix()}, period(got))

	put.Items[0].Quantity = 5 // the caller's copy is its own
	require.EqualValues(t, 3, mustGet(t, r, "sub_fixed").Items.Data[0].Quantity)
	_, err = r.PutSubscription(put)
	require.NoError(t, err)
	require.EqualValues(t, 5, mustGet(t, r, "sub_fixed").Items.Data[0].Quantity)
	kept, ok := r.GetSubscription("sub_fixed")
	require.True(t, ok)
	require.Equal(t, put, kept)
}

func TestCheckout(t *testing.T) {
	r := start(t, standin.Options{})
	p := r.plans(t)
	params := &stripe.CheckoutSessionParams{
		Mode: stripe.String("subscription"), SuccessURL: stripe.String("https://example.org/ok"),
		ClientReferenceID: stripe.String("org-1"), CustomerEmail: stripe.String("ada@example.org"),
		LineItems:        []*stripe.CheckoutSessionLineItemParams{{Price: &p.basic, Quantity: stripe.Int64(2)}},
		SubscriptionData: &stripe.CheckoutSessionSubscriptionDataParams{Metadata: map[string]string{"k": "v"}},
	}
	session, err := r.api.CheckoutSessions.New(params)
	require.NoError(t, err)
	require.Regexp(t, `^cs_test_[0-9A-Za-z]{58}$`, session.ID)
	require.Equal(t, stripe.CheckoutSessionStatusOpen, session.Status)
	require.Nil(t, session.Subscription)
	subID, err := r.CompleteCheckout(session.ID)
	require.NoError(t, err)
	done, err := r.api.CheckoutSessions.Get(session.ID, &stripe.CheckoutSessionParams{Expand: stripe.StringSlice([]string{"line_items", "customer"})})
	require.NoError(t, err)
	require.Equal(t, stripe.CheckoutSessionStatusComplete, done.Status)
	require.Equal(t, stripe.CheckoutSessionPaymentStatusPaid, done.PaymentStatus)
	require.Equal(t, subID, done.Subscription.ID)
	require.Equal(t, "org-1", done.ClientReferenceID)
	require.Equal(t, "ada@example.org", done.Customer.Email)
	require.EqualValues(t, 1000, done.LineItems.Data[0].AmountTotal)
	sub := mustGet(t, r, subID)
	require.EqualValues(t, 2, sub.Items.Data[0].Quantity)
	require.Equal(t, "v", sub.Metadata["k"])
	require.Equal(t, done.Customer.ID, sub.Customer.ID)
	_, err = r.CompleteCheckout(session.ID)
	require.Error(t, err)
	_, err = r.api.CheckoutSessions.Expire(session.ID, nil)
	refused(t, err, 400, "")
	require.Equal(t, []string{"customer.created", "customer.subscription.created", "checkout.session.completed"}, r.types()[len(r.types())-3:])

	// A payment-mode session names no subscription.
	params.Mode, params.SubscriptionData, params.LineItems[0].Price = stripe.String("payment"), nil, &p.once
	session, err = r.api.CheckoutSessions.New(params)
	require.NoError(t, err)
	resp, got := r.raw(t, "POST", "/v1/test_helpers/checkout/sessions/"+session.ID+"/complete", nil)
	require.Equal(t, 200, resp.StatusCode)
	require.Nil(t, got["subscription"])
	params.LineItems[0].Price = &p.basic
	_, err = r.api.CheckoutSessions.New(params)
	refused(t, err, 400, "")
}
