package standin

import "time"

// addIntervals returns anchor moved by n periods of price. A month that lacks the anchor's day ends on its last day, and
// the next long enough one returns to the anchor's day, as Stripe does.
func addIntervals(anchor time.Time, price *Price, n int64) time.Time {
	count := int(n * max(price.IntervalCount, 1))
	switch price.Interval {
	case "day":
		return anchor.AddDate(0, 0, count)
	case "week":
		return anchor.AddDate(0, 0, 7*count)
	case "year":
		return addMonths(anchor, 12*count)
	default:
		return addMonths(anchor, count)
	}
}

func addMonths(t time.Time, months int) time.Time {
	first := time.Date(t.Year(), t.Month()+time.Month(months), 1, t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
	last := first.AddDate(0, 1, -1).Day()
	return first.AddDate(0, 0, min(t.Day(), last)-1)
}

// periodAfter returns the end of the period that begins at start, on the grid of anchor.
func periodAfter(anchor, start time.Time, price *Price) time.Time {
	for n := int64(1); ; n++ {
		if end := addIntervals(anchor, price, n); end.After(start) {
			return end
		}
	}
}

// startPeriod begins a new period at now, with a new anchor: an early trial end, another interval, a resumption.
func (s *Server) startPeriod(sub *Subscription, now time.Time) {
	price := s.prices.byID[sub.Items[0].Price]
	sub.BillingCycleAnchor, sub.CurrentPeriodStart = now, now
	sub.CurrentPeriodEnd = addIntervals(now, price, 1)
	if sub.CancelAtPeriodEnd {
		sub.CancelAt = sub.CurrentPeriodEnd
	}
}

// startTrial begins a trial at now that lasts until end, or moves the end of the one that runs.
func startTrial(sub *Subscription, now, end time.Time) {
	if sub.Status != "trialing" || sub.TrialStart.IsZero() {
		sub.TrialStart, sub.CurrentPeriodStart = now, now
	}
	sub.Status = "trialing"
	sub.TrialEnd, sub.CurrentPeriodEnd, sub.BillingCycleAnchor = end, end, end
	if sub.CancelAtPeriodEnd {
		sub.CancelAt = end
	}
}

// settle brings one subscription up to now: it ends what is due to end and renews period after period, an event for
// each. The mutex must be held.
func (s *Server) settle(id string, now time.Time) {
	for {
		sub := s.subscriptions.byID[id]
		if sub.ended() || sub.Status == "incomplete" || sub.Status == "paused" {
			return
		}
		if !sub.CancelAt.IsZero() && !sub.CancelAt.After(now) && !sub.CancelAt.After(sub.CurrentPeriodEnd) {
			next := sub.clone()
			endNow(&next, sub.CancelAt, "cancellation_requested")
			s.replace(next, "customer.subscription.deleted", nil)
			return
		}
		if sub.CurrentPeriodEnd.After(now) {
			return
		}
		next := sub.clone()
		price := s.prices.byID[next.Items[0].Price]
		if next.Status == "trialing" {
			next.Status = "active"
		}
		next.CurrentPeriodStart = sub.CurrentPeriodEnd
		next.CurrentPeriodEnd = periodAfter(next.BillingCycleAnchor, next.CurrentPeriodStart, price)
		s.replace(next, "customer.subscription.updated", nil)
	}
}

// endNow makes the subscription canceled as of at.
func endNow(sub *Subscription, at time.Time, reason string) {
	sub.Status, sub.EndedAt = "canceled", at
	if sub.CanceledAt.IsZero() {
		sub.CanceledAt = at
	}
	if sub.CancelReason == "" {
		sub.CancelReason = reason
	}
}
