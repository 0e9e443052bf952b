package lockpath

import "github.com/bursarhq/bursar/lockorder"

// CustomerLink is activities.Operator.LinkCustomer.
var CustomerLink = path(Path{
	Name: "customer-link", Area: Customers, Kind: lockorder.Plain,
	Rows: []Step{{Class: lockorder.Customer}},
	Does: "Links a Stripe customer to an organisation, by hand.",
	By:   []string{"bursar customer link"},
})

// CustomerLinkCheckout is activities.Subscriptions.LinkFromCheckout.
var CustomerLinkCheckout = path(Path{
	Name: "customer-link-checkout", Area: Customers, Kind: lockorder.Plain,
	Keys: []Step{{Class: lockorder.Subscription, Of: "of the checkout's subscription, which covers the parked row where there is none yet"}},
	Rows: []Step{
		{Class: lockorder.Customer, When: "where the checkout names an organisation that there is"},
		{Class: lockorder.ParkedWork, Of: "of the checkout", When: "where it is parked"},
	},
	Does: "Links the customer of a completed checkout to the organisation that the checkout names, or parks the checkout.",
	By:   []string{"activity LinkFromCheckout"},
})
