package lockpath

import "github.com/bursarhq/bursar/lockorder"

// SubscriptionReconcile is activities.Subscriptions.ReconcileSubscription: active, suspended and ended alike.
var SubscriptionReconcile = path(Path{
	Name: "subscription-reconcile", Area: Subscriptions, Kind: lockorder.Materializing,
	Keys: []Step{{Class: lockorder.Subscription}},
	Rows: []Step{
		{Class: lockorder.Pool, Of: "of every pool that the subscription has a position in, and its organisation's default pool",
			When: "where the subscription confers, suspends or ends something, and leads to a pool"},
		{Class: lockorder.ChangeObligation, Of: "of all that these pools are owed", When: "where a change left one owed"},
		{Class: lockorder.ParkedWork, Of: "of the subscription", When: "where it is parked"},
	},
	Does: "Makes the mirror, the positions and the entitlements follow what Stripe showed before the transaction began, or parks the subscription where they cannot.",
	By:   []string{"activity ReconcileSubscription"},
})

// SubscriptionPark is activities.Subscriptions.ParkSubscription for a subscription.
var SubscriptionPark = path(Path{
	Name: "subscription-park", Area: Subscriptions, Kind: lockorder.Plain,
	Keys: []Step{{Class: lockorder.Subscription}},
	Rows: []Step{{Class: lockorder.ParkedWork, Of: "of the subscription", When: "where it is parked already"}},
	Does: "Parks a subscription whose reconcile failed for good, and raises its version, so that no older read is applied after it.",
	By:   []string{"activity ParkSubscription"},
})

// CheckoutPark is activities.Subscriptions.ParkSubscription for a checkout.
var CheckoutPark = path(Path{
	Name: "checkout-park", Area: Subscriptions, Kind: lockorder.Plain,
	Keys: []Step{{Class: lockorder.Subscription, Of: "of the checkout's subscription, which covers the parked row where there is none yet"}},
	Rows: []Step{{Class: lockorder.ParkedWork, Of: "of the checkout", When: "where it is parked already"}},
	Does: "Parks a checkout whose customer could not be linked for good.",
	By:   []string{"activity ParkSubscription"},
})
