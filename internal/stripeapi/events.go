package stripeapi

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stripe/stripe-go/v79"
)

// EventTypes are the event types that Events asks for: those that can change what a subscription confers, who its
// customer is, or whether it is paid. Stripe allows at most twenty in one request.
var EventTypes = []string{
	"checkout.session.async_payment_succeeded",
	"checkout.session.completed",
	"customer.subscription.created",
	"customer.subscription.deleted",
	"customer.subscription.paused",
	"customer.subscription.pending_update_applied",
	"customer.subscription.pending_update_expired",
	"customer.subscription.resumed",
	"customer.subscription.trial_will_end",
	"customer.subscription.updated",
	"invoice.marked_uncollectible",
	"invoice.paid",
	"invoice.payment_failed",
	"invoice.voided",
	"subscription_schedule.aborted",
	"subscription_schedule.canceled",
	"subscription_schedule.completed",
	"subscription_schedule.created",
	"subscription_schedule.released",
	"subscription_schedule.updated",
}

// EventOverlap is how far behind its watermark each poll looks again. Stripe orders events by the second of their
// creation, and one may become visible after another that is younger.
const EventOverlap = 5 * time.Minute

// maxEventsPerPoll bounds what one Events call returns, and so its memory; the rest is returned by the next calls.
const maxEventsPerPoll = 1000

// Cursor is a place in Stripe's stream of events. The zero Cursor is the start of what Stripe keeps (30 days). A Cursor
// is a value: Events returns a new one and leaves the old one valid, so a caller that fails half-way polls again from the
// old one and gets the same events.
type Cursor struct {
	// Since is the creation second of the youngest event returned so far.
	Since time.Time
	// Seen are the ids, with their creation seconds (Unix), of the events returned so far that lie within EventOverlap of
	// Since.
	Seen map[string]int64
}

// CursorAt returns a cursor for events created at t or later. Events that were created up to EventOverlap earlier are
// returned too.
func CursorAt(t time.Time) Cursor { return Cursor{Since: t.Truncate(time.Second)} }

// Events returns the events of EventTypes since the cursor, oldest first, each once, and the cursor for the next call.
// An event is left behind only when it becomes visible more than EventOverlap after a younger one. more is true when a
// backlog is left: call again at once. Store the new cursor only when everything returned has been handled.
// The returned error is an *Error; the cursor is then the one given.
func (c *Client) Events(ctx context.Context, since Cursor) (events []*stripe.Event, next Cursor, more bool, err error) {
	const op = "list events"
	var (
		found []*stripe.Event // newest first, as Stripe lists
		after string
		ended bool
	)
	for range maxPages {
		list, err := call(ctx, c, op, "", func(ctx context.Context) (*stripe.EventList, error) {
			params := &stripe.EventListParams{Types: stripe.StringSlice(EventTypes)}
			params.Context, params.Limit, params.Single = ctx, stripe.Int64(pageSize), true
			if !since.Since.IsZero() {
				params.CreatedRange = &stripe.RangeQueryParams{GreaterThanOrEqual: since.Since.Add(-EventOverlap).Unix()}
			}
			if after != "" {
				params.StartingAfter = stripe.String(after)
			}
			it := c.api.Events.List(params)
			return it.EventList(), it.Err()
		})
		if err != nil {
			return nil, since, false, err
		}
		for _, e := range list.Data {
			if _, seen := since.Seen[e.ID]; !seen {
				found = append(found, e)
			}
		}
		// Only the oldest are kept: the younger ones lie ahead of the new cursor and come with the next call.
		if over := len(found) - maxEventsPerPoll; over > 0 {
			found, more = slices.Clone(found[over:]), true
		}
		if !list.HasMore {
			ended = true
			break
		}
		if len(list.Data) == 0 {
			return nil, since, false, &Error{Op: op, Message: "an empty page that says there is more"}
		}
		after = list.Data[len(list.Data)-1].ID
	}
	if !ended {
		return nil, since, false, &Error{Op: op, Message: fmt.Sprintf("more than %d pages since %s; start from a later time", maxPages, since.Since.UTC().Format(time.RFC3339))}
	}
	slices.Reverse(found)
	return found, advance(since, found), more, nil
}

// advance returns the cursor after the given events.
func advance(from Cursor, events []*stripe.Event) Cursor {
	next := Cursor{Since: from.Since, Seen: maps.Clone(from.Seen)}
	if next.Seen == nil {
		next.Seen = make(map[string]int64, len(events))
	}
	for _, e := range events {
		next.Seen[e.ID] = e.Created
		if at := time.Unix(e.Created, 0).UTC(); at.After(next.Since) {
			next.Since = at
		}
	}
	horizon := next.Since.Add(-EventOverlap).Unix()
	maps.DeleteFunc(next.Seen, func(_ string, created int64) bool { return created < horizon })
	return next
}
