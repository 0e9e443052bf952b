package standin

import (
	"net/http"
	"reflect"
	"slices"
	"time"
)

// ignoredOnSubscriptions are parameters about billing details that the stand-in does not model.
var ignoredOnSubscriptions = []string{"proration_behavior", "proration_date", "payment_settings", "off_session",
	"default_payment_method", "trial_settings", "automatic_tax", "invoice_settings"}

func createSubscription(s *Server, r *request) (object, *apiError) {
	customer := r.form.need("customer")
	lines := readLines(r.form, "items")
	sub := Subscription{Customer: customer, Metadata: r.form.metadata(nil), Description: r.form.str("description")}
	trialEnd, trialNow := r.trialEnd()
	if days := r.form.natural("trial_period_days"); days != nil && *days > 0 && trialEnd.IsZero() {
		trialEnd = r.now.AddDate(0, 0, int(*days))
	}
	incomplete := r.form.oneOf("payment_behavior", "allow_incomplete", "default_incomplete", "error_if_incomplete") == "default_incomplete"
	cancelAtEnd := r.form.boolean("cancel_at_period_end")
	r.collection(&sub)
	r.form.ignore(ignoredOnSubscriptions...)
	expand := r.expansions("customer", "items.data.price.product", "latest_invoice", "pending_setup_intent")
	if e := r.form.finish(); e != nil {
		return nil, e
	}
	if _, ok := s.customers.get(customer); !ok {
		return nil, missing(http.StatusBadRequest, "customer", customer, "customer")
	}
	for _, l := range lines {
		if l.id != "" {
			return nil, invalid("items", "A subscription that is being created has no items with an id yet.")
		}
	}
	items, e := s.applyLines(nil, lines, r.now)
	if e != nil {
		return nil, e
	}
	sub.Items = items
	s.begin(&sub, r.now, trialEnd, incomplete && !trialNow)
	if cancelAtEnd != nil && *cancelAtEnd {
		sub.CancelAtPeriodEnd, sub.CancelAt, sub.CanceledAt = true, sub.CurrentPeriodEnd, r.now
		sub.CancelReason = "cancellation_requested"
	}
	s.subscriptions.put(sub.ID, &sub)
	s.emit("customer.subscription.created", s.renderSubscription(&sub), nil, sub.Livemode, r)
	return s.expandSubscription(&sub, expand), nil
}

// begin gives a new subscription its id, dates and status.
func (s *Server) begin(sub *Subscription, now, trialEnd time.Time, incomplete bool) {
	if sub.ID == "" {
		sub.ID = s.ids.subscription()
	}
	sub.Created, sub.StartDate, sub.Status = now, now, "active"
	if sub.CollectionMethod == "" {
		sub.CollectionMethod = "charge_automatically"
	}
	switch {
	case !trialEnd.IsZero():
		startTrial(sub, now, trialEnd)
	case incomplete:
		sub.Status = "incomplete"
		s.startPeriod(sub, now)
	default:
		s.startPeriod(sub, now)
	}
}

func getSubscription(s *Server, r *request) (object, *apiError) {
	sub, ok := s.subscriptions.get(r.PathValue("id"))
	if !ok {
		return nil, missing(http.StatusNotFound, "subscription", r.PathValue("id"), "id")
	}
	expand := r.expansions("customer", "items.data.price.product", "latest_invoice", "pending_setup_intent", "schedule")
	if e := r.form.finish(); e != nil {
		return nil, e
	}
	return s.expandSubscription(sub, expand), nil
}

func updateSubscription(s *Server, r *request) (object, *apiError) {
	old, ok := s.subscriptions.get(r.PathValue("id"))
	if !ok {
		return nil, missing(http.StatusNotFound, "subscription", r.PathValue("id"), "id")
	}
	next := old.clone()
	next.Metadata = r.form.metadata(old.Metadata)
	r.cancellationDetails(&next)
	expand := r.expansions("customer", "items.data.price.product", "latest_invoice", "pending_setup_intent", "schedule")
	if old.ended() {
		if r.form.finish() != nil {
			return nil, invalid("", "A canceled subscription can only update its cancellation_details and metadata.")
		}
		return s.expandSubscription(s.replace(next, "customer.subscription.updated", r), expand), nil
	}
	setText(r, "description", &next.Description)
	lines := readLines(r.form, "items")
	trialEnd, trialNow := r.trialEnd()
	anchor := r.form.oneOf("billing_cycle_anchor", "now", "unchanged")
	atEnd, at, atGiven := r.form.boolean("cancel_at_period_end"), r.form.moment("cancel_at"), r.form.has("cancel_at")
	r.pause(&next)
	r.collection(&next)
	r.form.ignore(ignoredOnSubscriptions...)
	r.form.oneOf("payment_behavior", "allow_incomplete", "default_incomplete", "error_if_incomplete", "pending_if_incomplete")
	if e := r.form.finish(); e != nil {
		return nil, e
	}
	items, e := s.applyLines(next.Items, lines, r.now)
	if e != nil {
		return nil, e
	}
	otherInterval := !sameInterval(s.prices.byID[next.Items[0].Price], s.prices.byID[items[0].Price])
	next.Items = items
	switch {
	case trialNow && next.Status == "trialing":
		next.Status, next.TrialEnd = "active", r.now
		s.startPeriod(&next, r.now)
	case !trialEnd.IsZero():
		startTrial(&next, r.now, trialEnd)
	case next.Status == "trialing":
		// The trial goes on to its end, whatever the new price.
	case otherInterval || anchor == "now":
		s.startPeriod(&next, r.now)
	}
	cancelLater(&next, r.now, atEnd, at, atGiven)
	return s.expandSubscription(s.replace(next, "customer.subscription.updated", r), expand), nil
}

// cancelLater applies cancel_at_period_end and cancel_at.
func cancelLater(sub *Subscription, now time.Time, atEnd *bool, at time.Time, atGiven bool) {
	switch {
	case atEnd != nil && *atEnd:
		if !sub.CancelAtPeriodEnd {
			sub.CanceledAt = now
		}
		sub.CancelAtPeriodEnd, sub.CancelAt = true, sub.CurrentPeriodEnd
		sub.CancelReason = "cancellation_requested"
	case atGiven && !at.IsZero():
		sub.CancelAtPeriodEnd, sub.CancelAt, sub.CanceledAt = false, at, now
		sub.CancelReason = "cancellation_requested"
	case atEnd != nil && sub.CancelAtPeriodEnd, atGiven:
		sub.CancelAtPeriodEnd, sub.CancelAt, sub.CanceledAt, sub.CancelReason = false, time.Time{}, time.Time{}, ""
	}
}

func cancelSubscription(s *Server, r *request) (object, *apiError) {
	old, ok := s.subscriptions.get(r.PathValue("id"))
	if !ok || old.ended() {
		return nil, missing(http.StatusNotFound, "subscription", r.PathValue("id"), "id")
	}
	next := old.clone()
	r.cancellationDetails(&next)
	r.form.ignore("invoice_now", "prorate")
	expand := r.expansions("customer", "items.data.price.product", "latest_invoice")
	if e := r.form.finish(); e != nil {
		return nil, e
	}
	endNow(&next, r.now, "cancellation_requested")
	return s.expandSubscription(s.replace(next, "customer.subscription.deleted", r), expand), nil
}

func resumeSubscription(s *Server, r *request) (object, *apiError) {
	old, ok := s.subscriptions.get(r.PathValue("id"))
	if !ok {
		return nil, missing(http.StatusNotFound, "subscription", r.PathValue("id"), "id")
	}
	anchor := r.form.oneOf("billing_cycle_anchor", "now", "unchanged")
	r.form.ignore("proration_behavior", "proration_date")
	expand := r.expansions("customer", "items.data.price.product", "latest_invoice")
	if e := r.form.finish(); e != nil {
		return nil, e
	}
	if old.Status != "paused" {
		return nil, invalid("", "You can only resume a subscription that is paused.")
	}
	next := old.clone()
	next.Status = "active"
	if anchor != "unchanged" {
		s.startPeriod(&next, r.now)
	}
	stored := s.replace(next, "customer.subscription.updated", r)
	s.emit("customer.subscription.resumed", s.renderSubscription(stored), nil, stored.Livemode, r)
	return s.expandSubscription(stored, expand), nil
}

func listSubscriptions(s *Server, r *request) (object, *apiError) {
	customer, price := r.form.str("customer"), r.form.str("price")
	status := r.form.oneOf("status", "active", "past_due", "unpaid", "canceled", "incomplete", "incomplete_expired",
		"trialing", "paused", "all", "ended")
	w, created := r.window(), r.createdRange()
	expand := r.expansions("data.customer")
	if e := r.form.finish(); e != nil {
		return nil, e
	}
	ids := s.subscriptions.newestFirst(func(sub *Subscription) bool {
		switch {
		case customer != "" && sub.Customer != customer, !created.holds(sub.Created):
			return false
		case price != "" && !slices.ContainsFunc(sub.Items, func(i Item) bool { return i.Price == price }):
			return false
		}
		switch status {
		case "all":
			return true
		case "":
			return sub.Status != "canceled"
		case "ended":
			return sub.ended()
		}
		return sub.Status == status
	})
	return page(ids, w, "subscription", "/v1/subscriptions", func(id string) object {
		return s.expandSubscription(s.subscriptions.byID[id], map[string]bool{"customer": expand["data.customer"]})
	})
}

// replace stores the next state of a subscription and emits kind; an update that changes nothing emits nothing.
func (s *Server) replace(next Subscription, kind string, r *request) *Subscription {
	old := s.subscriptions.byID[next.ID]
	before, sameItems := s.renderSubscription(old), reflect.DeepEqual(old.Items, next.Items)
	s.subscriptions.put(next.ID, &next)
	after := s.renderSubscription(&next)
	diff := previous(before, after)
	switch {
	case kind != "customer.subscription.updated":
		s.emit(kind, after, nil, next.Livemode, r)
	case diff != nil || !sameItems: // an item beyond the embedded ones changes without a trace in the object
		s.emit(kind, after, diff, next.Livemode, r)
	}
	return &next
}

func (s *Server) expandSubscription(sub *Subscription, expand map[string]bool) object {
	o := s.renderSubscription(sub)
	if expand["customer"] {
		if c, ok := s.customers.get(sub.Customer); ok {
			o["customer"] = c.render()
		}
	}
	if expand["items.data.price.product"] {
		for _, it := range o["items"].(object)["data"].([]any) {
			s.expandPrice(it.(object)["price"].(object), true)
		}
	}
	return o
}

// trialEnd reads trial_end: a time in the future, or the word now.
func (r *request) trialEnd() (end time.Time, now bool) {
	if !r.form.has("trial_end") {
		return time.Time{}, false
	}
	if r.form.str("trial_end") == "now" {
		return time.Time{}, true
	}
	end = r.form.moment("trial_end")
	if !end.After(r.now) {
		r.form.fail(invalid("trial_end", "Invalid timestamp: must be an integer Unix timestamp in the future."))
	}
	return end, false
}

// pause reads pause_collection, which leaves the status alone.
func (r *request) pause(sub *Subscription) {
	if r.form.unset("pause_collection") {
		sub.PauseCollection, sub.PauseCollectionResumes = "", time.Time{}
		return
	}
	if g := r.form.sub("pause_collection"); g != nil {
		g.need("behavior")
		sub.PauseCollection = g.oneOf("behavior", "keep_as_draft", "mark_uncollectible", "void")
		sub.PauseCollectionResumes = g.moment("resumes_at")
	}
}

func (r *request) collection(sub *Subscription) {
	if m := r.form.oneOf("collection_method", "charge_automatically", "send_invoice"); m != "" {
		sub.CollectionMethod = m
	}
	if days := r.form.natural("days_until_due"); days != nil {
		sub.DaysUntilDue = *days
	}
}

func (r *request) cancellationDetails(sub *Subscription) {
	if g := r.form.sub("cancellation_details"); g != nil {
		sub.CancelComment = g.str("comment")
		sub.CancelFeedback = g.oneOf("feedback", "customer_service", "low_quality", "missing_features", "other",
			"switched_service", "too_complex", "too_expensive", "unused")
	}
}
