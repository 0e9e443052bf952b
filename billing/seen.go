package billing

import (
	"fmt"
	"regexp"
	"time"

	"github.com/stripe/stripe-go/v79"
)

// MaxQuantity is the largest quantity of an item that can be mirrored and held.
const MaxQuantity = 1_000_000

// Seen is a subscription as one retrieve of Stripe showed it. Times are UTC; a nil one was not shown.
type Seen struct {
	ID string
	// Customer is Stripe's id of who pays.
	Customer string
	// Status is Stripe's; Standing what it means here.
	Status   string
	Standing Standing
	// PeriodStart and PeriodEnd bound the current paid period, the end excluded.
	PeriodStart, PeriodEnd *time.Time
	TrialEnd               *time.Time
	// CancelAt, CanceledAt and EndedAt not shown mean that there is none: a cancellation can be taken back.
	CancelAt          *time.Time
	CancelAtPeriodEnd bool
	CanceledAt        *time.Time
	EndedAt           *time.Time
	Created           *time.Time
	Livemode          bool
	Items             []Item
}

// Item is one item of a subscription as Stripe showed it.
type Item struct {
	ID string
	// Price and Product are Stripe's ids.
	Price, Product string
	// Quantity is 0 for an item that is kept at none. A metered price has no quantity and counts as 1.
	Quantity int64
}

var (
	subscriptionID = regexp.MustCompile(`^sub_[A-Za-z0-9_]+$`)
	customerID     = regexp.MustCompile(`^cus_[A-Za-z0-9_]+$`)
	catalogueID    = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)
)

// CheckSubscriptionID answers an error that wraps ErrInvalid unless id looks like Stripe's id of a subscription.
func CheckSubscriptionID(id string) error {
	if !subscriptionID.MatchString(id) {
		return fmt.Errorf("%w: %q is not the id of a Stripe subscription (sub_…)", ErrInvalid, id)
	}
	return nil
}

// See takes from a retrieved subscription what is mirrored. It answers an *Unreadable for one that cannot be: a
// status that is not known, no customer, an item without a price, a quantity out of range.
func See(sub *stripe.Subscription) (Seen, error) {
	unreadable := func(format string, args ...any) (Seen, error) {
		return Seen{}, &Unreadable{SubscriptionID: sub.ID, Why: fmt.Sprintf(format, args...)}
	}
	standing, ok := StandingOf(string(sub.Status))
	switch {
	case !ok:
		return unreadable("Stripe gives it the status %q, which is not known here; a newer Bursar may know it", sub.Status)
	case sub.Customer == nil || !customerID.MatchString(sub.Customer.ID):
		return unreadable("Stripe names no customer of it")
	case sub.Created <= 0:
		return unreadable("Stripe gives no time of its creation")
	case sub.Items == nil:
		return unreadable("Stripe gives no list of its items")
	}
	seen := Seen{
		ID: sub.ID, Customer: sub.Customer.ID, Status: string(sub.Status), Standing: standing, Livemode: sub.Livemode,
		PeriodStart: at(sub.CurrentPeriodStart), PeriodEnd: at(sub.CurrentPeriodEnd), TrialEnd: at(sub.TrialEnd),
		CancelAt: at(sub.CancelAt), CancelAtPeriodEnd: sub.CancelAtPeriodEnd, CanceledAt: at(sub.CanceledAt),
		EndedAt: at(sub.EndedAt), Created: at(sub.Created),
	}
	// Half a period, or one that ends before it begins, tells nothing that can be relied on.
	if seen.PeriodStart == nil || seen.PeriodEnd == nil || seen.PeriodEnd.Before(*seen.PeriodStart) {
		seen.PeriodStart, seen.PeriodEnd = nil, nil
	}
	known := map[string]bool{}
	for _, i := range sub.Items.Data {
		switch {
		case i == nil || i.ID == "":
			return unreadable("one of its items has no id")
		case i.Deleted || known[i.ID]:
			continue // pages of a list that changed meanwhile may repeat an item
		case i.Price == nil || i.Price.ID == "" || i.Price.Product == nil || i.Price.Product.ID == "":
			return unreadable("item %s has no price, or its price no product", i.ID)
		}
		quantity := i.Quantity
		if i.Price.Recurring != nil && i.Price.Recurring.UsageType == stripe.PriceRecurringUsageTypeMetered {
			quantity = max(quantity, 1)
		}
		if quantity < 0 || quantity > MaxQuantity {
			return unreadable("item %s has the quantity %d; 0 to %d can be held", i.ID, quantity, MaxQuantity)
		}
		known[i.ID] = true
		seen.Items = append(seen.Items, Item{ID: i.ID, Price: i.Price.ID, Product: i.Price.Product.ID, Quantity: quantity})
	}
	return seen, nil
}

// at turns Stripe's seconds into a time; 0 is how a time that was not shown arrives.
func at(seconds int64) *time.Time {
	if seconds == 0 {
		return nil
	}
	t := time.Unix(seconds, 0).UTC()
	return &t
}
