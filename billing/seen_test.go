package billing_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/bursarhq/bursar/billing"
)

func shown() *stripe.Subscription {
	return &stripe.Subscription{
		ID: "sub_1", Status: "active", Customer: &stripe.Customer{ID: "cus_1"}, Created: 1, CurrentPeriodStart: 10, CurrentPeriodEnd: 20,
		Items: &stripe.SubscriptionItemList{Data: []*stripe.SubscriptionItem{
			{ID: "si_1", Quantity: 3, Price: &stripe.Price{ID: "price_1", Product: &stripe.Product{ID: "prod_1"}}},
		}},
	}
}

func TestStandings(t *testing.T) {
	t.Parallel()
	for status, want := range map[string]billing.Standing{
		"active": billing.Confers, "trialing": billing.Confers, "past_due": billing.Confers,
		"unpaid": billing.Suspends, "paused": billing.Suspends,
		"incomplete": billing.Pending,
		"canceled":   billing.Ends, "incomplete_expired": billing.Ends,
	} {
		got, ok := billing.StandingOf(status)
		require.True(t, ok, status)
		require.Equal(t, want, got, status)
	}
	_, ok := billing.StandingOf("all")
	require.False(t, ok)
}

func TestSee(t *testing.T) {
	t.Parallel()
	sub := shown()
	sub.PauseCollection = &stripe.SubscriptionPauseCollection{Behavior: "void"}
	metered := &stripe.PriceRecurring{UsageType: stripe.PriceRecurringUsageTypeMetered}
	sub.Items.Data = append(sub.Items.Data,
		&stripe.SubscriptionItem{ID: "si_2", Price: &stripe.Price{ID: "price_2", Product: &stripe.Product{ID: "prod_2"}, Recurring: metered}},
		&stripe.SubscriptionItem{ID: "si_3", Price: &stripe.Price{ID: "price_3", Product: &stripe.Product{ID: "prod_3"}}},
		sub.Items.Data[0])
	seen, err := billing.See(sub)
	require.NoError(t, err)
	require.Equal(t, billing.Confers, seen.Standing, "a paused collection changes nothing")
	require.Equal(t, []billing.Item{
		{ID: "si_1", Price: "price_1", Product: "prod_1", Quantity: 3},
		{ID: "si_2", Price: "price_2", Product: "prod_2", Quantity: 1}, // metered: no quantity counts as one
		{ID: "si_3", Price: "price_3", Product: "prod_3", Quantity: 0},
	}, seen.Items)
	require.Equal(t, int64(10), seen.PeriodStart.Unix())
	require.Nil(t, seen.TrialEnd)

	sub = shown()
	sub.CurrentPeriodEnd = 5
	seen, err = billing.See(sub)
	require.NoError(t, err)
	require.Nil(t, seen.PeriodStart, "a period that ends before it begins tells nothing")
}

func TestSeeRefuses(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*stripe.Subscription){
		"unknown status":    func(s *stripe.Subscription) { s.Status = "dormant" },
		"no customer":       func(s *stripe.Subscription) { s.Customer = nil },
		"no creation":       func(s *stripe.Subscription) { s.Created = 0 },
		"no items":          func(s *stripe.Subscription) { s.Items = nil },
		"item without id":   func(s *stripe.Subscription) { s.Items.Data[0].ID = "" },
		"item, no price":    func(s *stripe.Subscription) { s.Items.Data[0].Price = nil },
		"price, no product": func(s *stripe.Subscription) { s.Items.Data[0].Price.Product = nil },
		"too many":          func(s *stripe.Subscription) { s.Items.Data[0].Quantity = billing.MaxQuantity + 1 },
		"fewer than none":   func(s *stripe.Subscription) { s.Items.Data[0].Quantity = -1 },
	} {
		sub := shown()
		spoil(sub)
		_, err := billing.See(sub)
		var unreadable *billing.Unreadable
		require.ErrorAs(t, err, &unreadable, name)
		require.Contains(t, err.Error(), "sub_1", name)
	}
}
