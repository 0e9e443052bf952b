package standin

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// SetWebhookURL says where events go from now on; empty stops delivery of later ones. Events that happened before are
// delivered by Redeliver only.
func (s *Server) SetWebhookURL(url string) { s.hooks.update(func() { s.hooks.url = url }) }

// SetWebhookSecrets replaces the secrets that sign deliveries from now on.
func (s *Server) SetWebhookSecrets(secrets ...string) {
	s.hooks.update(func() { s.hooks.secrets = slices.Clone(secrets) })
}

// PauseDeliveries holds webhooks back; a delivery on its way ends first. Events go on queueing.
func (s *Server) PauseDeliveries() { s.hooks.update(func() { s.hooks.paused = true }) }

// ResumeDeliveries lets webhooks go again, in the order of the queue.
func (s *Server) ResumeDeliveries() { s.hooks.update(func() { s.hooks.paused = false }) }

// DeliverShuffled puts the queued webhooks into an order that seed decides and lets them go.
func (s *Server) DeliverShuffled(seed int64) { s.hooks.shuffle(seed) }

// Redeliver queues an event so many times more. It is an error when there is no such event or no webhook address.
func (s *Server) Redeliver(eventID string, times int) error {
	s.mu.Lock()
	_, ok := s.events.get(eventID)
	s.mu.Unlock()
	if !ok {
		return fmt.Errorf("stripe stand-in: there is no event %q", eventID)
	}
	if !s.hooks.hooked() {
		return fmt.Errorf("stripe stand-in: no webhook address is set")
	}
	s.hooks.add(slices.Repeat([]string{eventID}, max(times, 0))...)
	return nil
}

// WaitDelivered waits until every queued webhook has been answered with 2xx, or ctx ends.
func (s *Server) WaitDelivered(ctx context.Context) error { return s.hooks.idle(ctx) }

// Attempts returns how often an event was sent, failures included.
func (s *Server) Attempts(eventID string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.events.get(eventID); ok {
		return e.attempts
	}
	return 0
}

// Event is the summary of an event.
type Event struct {
	ID, Type  string
	Object    string // id of the object it is about
	Created   time.Time
	Delivered bool
}

// Events returns all events, oldest first.
func (s *Server) Events() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Event, 0, len(s.events.order))
	for _, id := range s.events.order {
		e := s.events.byID[id]
		out = append(out, Event{ID: e.id, Type: e.kind, Object: idOf(e.object), Created: e.created, Delivered: e.delivered})
	}
	return out
}

// Hang makes each read (GET) wait for d before it looks at the state. Zero ends it for reads to come. A read that waits
// is let go when its client leaves or the server closes.
func (s *Server) Hang(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hang, s.hangUntil = d, nil
}

// HangUntil makes each read (GET) wait until the channel is closed before it looks at the state. Nil ends it for reads
// to come.
func (s *Server) HangUntil(released <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hang, s.hangUntil = 0, released
}

// FailNext makes the next n calls fail with the HTTP status, before they do anything.
func (s *Server) FailNext(n, status int) { s.FailNextRetryAfter(n, status, 0) }

// FailNextRetryAfter is FailNext with a Retry-After header of so many seconds.
func (s *Server) FailNextRetryAfter(n, status int, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = failing{left: n, status: status, retryAfter: wait}
}

// OnRead sets a function that is called for each retrieve of a subscription, with its id, after the answer has been
// built and before it is sent: blocking in it stalls a reader that has read the state of that moment. Nil removes it.
func (s *Server) OnRead(fn func(subscriptionID string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onRead = fn
}

// Reads returns how many retrieves of a subscription have arrived, answered or not.
func (s *Server) Reads(subscriptionID string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads[subscriptionID]
}

// Now returns the time that objects see, in whole seconds.
func (s *Server) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now()
}

// Freeze stops the time that objects see, so that all that follows happens in one second, until Thaw or Advance.
func (s *Server) Freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = s.now()
}

// Thaw lets the time go on from the machine's clock and what was advanced.
func (s *Server) Thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = time.Time{}
}

// Advance moves the time on by d and brings about what falls due: trials end, periods are renewed, what is set to be
// cancelled ends. Each is an event. A frozen time stays frozen at the new second.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offset += d
	if !s.frozen.IsZero() {
		s.frozen = s.frozen.Add(d)
	}
	now := s.now()
	for _, id := range slices.Clone(s.subscriptions.order) {
		s.settle(id, now)
	}
}

// SetStatus gives a subscription a status as a failed payment, an ended trial or a recovery would, with the events that
// Stripe sends for it. The same status again does nothing.
func (s *Server) SetStatus(subscriptionID, status string) error {
	if !slices.Contains([]string{"incomplete", "incomplete_expired", "trialing", "active", "past_due", "canceled", "unpaid", "paused"}, status) {
		return fmt.Errorf("stripe stand-in: %q is no status of a subscription", status)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.subscriptions.get(subscriptionID)
	if !ok {
		return missing(http.StatusNotFound, "subscription", subscriptionID, "id")
	}
	if old.Status == status {
		return nil
	}
	next, now := old.clone(), s.now()
	next.Status = status
	extra := ""
	switch {
	case status == "canceled":
		endNow(&next, now, "payment_failed")
		s.replace(next, "customer.subscription.deleted", nil)
		return nil
	case status == "incomplete_expired":
		next.EndedAt = now
	case status == "paused":
		extra = "customer.subscription.paused"
	case old.Status == "paused":
		extra = "customer.subscription.resumed"
	}
	stored := s.replace(next, "customer.subscription.updated", nil)
	if extra != "" {
		s.emit(extra, s.renderSubscription(stored), nil, stored.Livemode, nil)
	}
	return nil
}

// SetLivemode changes the livemode that a subscription shows. There is no event for it: Stripe never does this.
func (s *Server) SetLivemode(subscriptionID string, livemode bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.subscriptions.get(subscriptionID)
	if !ok {
		return missing(http.StatusNotFound, "subscription", subscriptionID, "id")
	}
	next := old.clone()
	next.Livemode = livemode
	s.subscriptions.put(next.ID, &next)
	return nil
}

// Forget removes a subscription without an event: Stripe answers 404 for it from now on.
func (s *Server) Forget(subscriptionID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscriptions.remove(subscriptionID)
}

// CompleteCheckout does what a member does who pays on the checkout page. It returns the id of the subscription made,
// empty for a session in payment mode.
func (s *Server) CompleteCheckout(sessionID string) (subscriptionID string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, e := s.complete(sessionID, nil)
	if e != nil {
		return "", e
	}
	return c.subscription, nil
}

// PutCustomer stores a customer as it is, with the event, and returns it with its id and creation time filled in.
func (s *Server) PutCustomer(c Customer) Customer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.putCustomer(c, nil)
}

// PutProduct stores a product as it is, with the event, and returns it with its id and times filled in.
func (s *Server) PutProduct(p Product) Product {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.putProduct(p, nil)
}

// PutPrice stores a price as it is, with the event, and returns it filled in. Its product must exist.
func (s *Server) PutPrice(p Price) (Price, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.products.get(p.Product); !ok {
		return Price{}, missing(http.StatusBadRequest, "product", p.Product, "product")
	}
	return *s.putPrice(p, nil), nil
}

// PutSubscription stores a subscription in any state, with the event of its creation or change, and returns it with its
// ids, status, dates and period filled in where they were zero. Its prices must exist and it must have an item; nothing
// else is checked, so states that Stripe itself would refuse, such as a customer that it does not know, can be made.
func (s *Server) PutSubscription(sub Subscription) (Subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub = sub.clone()
	if len(sub.Items) == 0 {
		return Subscription{}, invalid("items", "A subscription must have at least one item.")
	}
	now := s.now()
	for i := range sub.Items {
		it := &sub.Items[i]
		if _, ok := s.prices.get(it.Price); !ok {
			return Subscription{}, missing(http.StatusBadRequest, "price", it.Price, "items")
		}
		it.ID = cmp.Or(it.ID, s.ids.item())
		if it.Created.IsZero() {
			it.Created = now
		}
	}
	sub.ID = cmp.Or(sub.ID, s.ids.subscription())
	sub.Status = cmp.Or(sub.Status, "active")
	sub.CollectionMethod = cmp.Or(sub.CollectionMethod, "charge_automatically")
	fill := func(t *time.Time, with time.Time) {
		if t.IsZero() {
			*t = with
		}
	}
	fill(&sub.Created, now)
	fill(&sub.StartDate, sub.Created)
	fill(&sub.CurrentPeriodStart, now)
	fill(&sub.BillingCycleAnchor, sub.CurrentPeriodStart)
	fill(&sub.CurrentPeriodEnd, addIntervals(sub.CurrentPeriodStart, s.prices.byID[sub.Items[0].Price], 1))
	stored := sub.clone()
	if _, ok := s.subscriptions.get(sub.ID); ok {
		s.replace(stored, "customer.subscription.updated", nil)
	} else {
		s.subscriptions.put(sub.ID, &stored)
		s.emit("customer.subscription.created", s.renderSubscription(&stored), nil, stored.Livemode, nil)
	}
	return sub, nil
}

// GetSubscription returns a subscription as it stands. Its times are UTC.
func (s *Server) GetSubscription(id string) (Subscription, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub, ok := s.subscriptions.get(id)
	if !ok {
		return Subscription{}, false
	}
	return sub.clone(), true
}
