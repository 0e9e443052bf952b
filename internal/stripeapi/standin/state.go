package standin

import (
	"maps"
	"slices"
	"time"
)

// Customer is a customer as the stand-in keeps it.
type Customer struct {
	ID          string
	Email       string
	Name        string
	Description string
	Metadata    map[string]string
	Created     time.Time
	Livemode    bool
}

// Product is a product as the stand-in keeps it.
type Product struct {
	ID          string
	Name        string
	Description string
	Inactive    bool
	Metadata    map[string]string
	Created     time.Time
	Updated     time.Time
	Livemode    bool
}

// Price is a price as the stand-in keeps it.
type Price struct {
	ID         string
	Product    string // id of the product
	Currency   string // three letters; empty means usd
	UnitAmount int64  // minor units
	Nickname   string
	LookupKey  string
	// Interval is day, week, month or year; empty means a one-time price.
	Interval string
	// IntervalCount is the number of intervals in a period; 0 means 1.
	IntervalCount int64
	Inactive      bool
	Metadata      map[string]string
	Created       time.Time
	Livemode      bool
}

// Subscription is a subscription as the stand-in keeps it. A zero time is null on the wire.
type Subscription struct {
	ID       string
	Customer string // id of the customer
	// Status is Stripe's word: incomplete, incomplete_expired, trialing, active, past_due, canceled, unpaid or paused.
	Status string
	Items  []Item

	Created            time.Time
	StartDate          time.Time
	CurrentPeriodStart time.Time
	CurrentPeriodEnd   time.Time
	BillingCycleAnchor time.Time
	TrialStart         time.Time
	TrialEnd           time.Time
	CancelAt           time.Time
	CanceledAt         time.Time
	EndedAt            time.Time
	CancelAtPeriodEnd  bool

	// PauseCollection is keep_as_draft, mark_uncollectible or void while collection is paused, else empty. It leaves the
	// status alone.
	PauseCollection        string
	PauseCollectionResumes time.Time

	CollectionMethod string // charge_automatically when empty
	DaysUntilDue     int64
	Description      string
	CancelComment    string
	CancelFeedback   string
	CancelReason     string
	Metadata         map[string]string
	Livemode         bool
}

// Item is a line of a subscription.
type Item struct {
	ID       string
	Price    string // id of the price
	Quantity int64
	Metadata map[string]string
	Created  time.Time
}

func (s Subscription) clone() Subscription {
	s.Metadata = maps.Clone(s.Metadata)
	s.Items = slices.Clone(s.Items)
	for i := range s.Items {
		s.Items[i].Metadata = maps.Clone(s.Items[i].Metadata)
	}
	return s
}

// ended reports whether the subscription can no longer change.
func (s *Subscription) ended() bool {
	return s.Status == "canceled" || s.Status == "incomplete_expired"
}

// checkoutSession is a checkout session as the stand-in keeps it.
type checkoutSession struct {
	id, mode, status  string // status: open, complete or expired
	customer          string
	customerEmail     string
	clientReference   string
	lines             []Item
	successURL        string
	cancelURL         string
	subscription      string
	subscriptionMeta  map[string]string
	trialEnd          time.Time
	trialDays         int64
	description       string
	metadata          map[string]string
	created           time.Time
	expires           time.Time
	paid              bool
	allowPromotion    bool
	paymentCollection string
}

// table keeps objects of one kind by id, with the order in which they came.
type table[T any] struct {
	byID  map[string]*T
	order []string // oldest first
}

func (t *table[T]) get(id string) (*T, bool) {
	v, ok := t.byID[id]
	return v, ok
}

// put inserts or replaces; a replaced object keeps its place.
func (t *table[T]) put(id string, v *T) {
	if t.byID == nil {
		t.byID = make(map[string]*T)
	}
	if _, ok := t.byID[id]; !ok {
		t.order = append(t.order, id)
	}
	t.byID[id] = v
}

func (t *table[T]) remove(id string) {
	if _, ok := t.byID[id]; !ok {
		return
	}
	delete(t.byID, id)
	t.order = slices.DeleteFunc(t.order, func(s string) bool { return s == id })
}

// newestFirst returns the ids of the objects that keep accepts, youngest first, as Stripe lists.
func (t *table[T]) newestFirst(keep func(*T) bool) []string {
	var out []string
	for _, id := range slices.Backward(t.order) {
		if keep(t.byID[id]) {
			out = append(out, id)
		}
	}
	return out
}
