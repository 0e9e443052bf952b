package billing

import "github.com/stripe/stripe-go/v79"

// Standing is what a subscription's status means here.
type Standing string

const (
	// Confers: the subscription's items are held and confer.
	Confers Standing = "active"
	// Suspends: what is held confers nothing and keeps its place.
	Suspends Standing = "suspended"
	// Pending: not paid for yet. Nothing is conferred and nothing ends.
	Pending Standing = "pending"
	// Ends: what is held through the subscription ends.
	Ends Standing = "ended"
)

// standings maps every status of Stripe's API version 2024-06-20. A collection that is paused (pause_collection) leaves
// the status as it is, and so changes nothing here.
var standings = map[string]Standing{
	string(stripe.SubscriptionStatusActive):            Confers,
	string(stripe.SubscriptionStatusTrialing):          Confers,
	string(stripe.SubscriptionStatusPastDue):           Confers,
	string(stripe.SubscriptionStatusUnpaid):            Suspends,
	string(stripe.SubscriptionStatusPaused):            Suspends,
	string(stripe.SubscriptionStatusIncomplete):        Pending,
	string(stripe.SubscriptionStatusCanceled):          Ends,
	string(stripe.SubscriptionStatusIncompleteExpired): Ends,
}

// StandingOf returns what one of Stripe's statuses means, and false for one that is not known.
func StandingOf(status string) (Standing, bool) {
	s, ok := standings[status]
	return s, ok
}

// liveStatuses are the statuses in which a subscription's items are held.
func liveStatuses() []string {
	var live []string
	for status, standing := range standings {
		if standing == Confers || standing == Suspends {
			live = append(live, status)
		}
	}
	return live
}
