package stripeapi_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/bursarhq/bursar/internal/stripeapi"
	"github.com/bursarhq/bursar/internal/stripeapi/standin"
)

// poll follows the stream to its end and returns the ids in order.
func poll(t *testing.T, r *rig, cur stripeapi.Cursor) ([]string, stripeapi.Cursor) {
	t.Helper()
	var ids []string
	for {
		events, next, more, err := r.Events(t.Context(), cur)
		require.NoError(t, err)
		for _, e := range events {
			ids = append(ids, e.ID)
		}
		cur = next
		if !more {
			return ids, cur
		}
	}
}

// wanted are the ids of the stand-in's events about subscriptions, oldest first.
func wanted(r *rig) []string {
	var ids []string
	for _, e := range r.fake.Events() {
		switch e.Type {
		case "customer.subscription.created", "customer.subscription.updated", "customer.subscription.deleted":
			ids = append(ids, e.ID)
		}
	}
	return ids
}

func TestEventsOldestFirstEachOnce(t *testing.T) {
	now := time.Now()
	r := start(t, stripeapi.Config{}, standin.Options{Clock: func() time.Time { return now }})
	sub := r.put(t, 1)
	for i := range 150 { // many in one second, over a page
		sub.Items[0].Quantity = int64(i + 2)
		_, err := r.fake.PutSubscription(sub)
		require.NoError(t, err)
	}
	first, cur := poll(t, r, stripeapi.Cursor{})
	require.Equal(t, wanted(r), first)
	require.Len(t, first, 151)

	again, cur := poll(t, r, cur)
	require.Empty(t, again)
	// An event of the same second, after the cursor was taken.
	require.NoError(t, r.fake.SetStatus(sub.ID, "unpaid"))
	same, cur := poll(t, r, cur)
	require.Equal(t, wanted(r)[151:], same)
	// One that becomes visible late: it was created before the youngest event returned.
	r.fake.Advance(4 * time.Minute)
	require.NoError(t, r.fake.SetStatus(sub.ID, "active"))
	_, cur = poll(t, r, cur)
	r.fake.Advance(-3 * time.Minute)
	require.NoError(t, r.fake.SetStatus(sub.ID, "canceled"))
	late, cur := poll(t, r, cur)
	require.Len(t, late, 1)
	require.Equal(t, wanted(r)[len(wanted(r))-1], late[0])

	// What is remembered stays within the overlap.
	require.NotEmpty(t, cur.Seen)
	r.fake.Advance(time.Hour)
	r.put(t, 1)
	_, cur = poll(t, r, cur)
	require.Len(t, cur.Seen, 1)
}

func TestEventsBacklogIsBounded(t *testing.T) {
	r := start(t, stripeapi.Config{}, standin.Options{})
	sub := r.put(t, 1)
	for i := range 1150 {
		sub.Items[0].Quantity = int64(i + 2)
		_, err := r.fake.PutSubscription(sub)
		require.NoError(t, err)
	}
	events, next, more, err := r.Events(t.Context(), stripeapi.Cursor{})
	require.NoError(t, err)
	require.True(t, more)
	require.Len(t, events, 1000)
	rest, _ := poll(t, r, next)
	require.Len(t, rest, 151)
	var ids []string
	for _, e := range events {
		ids = append(ids, e.ID)
	}
	require.Equal(t, wanted(r), append(ids, rest...))
}

func TestEventsFailKeepsTheCursor(t *testing.T) {
	r := start(t, stripeapi.Config{}, standin.Options{})
	r.put(t, 1)
	from := stripeapi.CursorAt(time.Now().Add(-time.Minute))
	r.fake.FailNext(1, 500)
	_, cur, _, err := r.Events(t.Context(), from)
	require.Error(t, err)
	require.Equal(t, from, cur)
	got, _ := poll(t, r, cur)
	require.Len(t, got, 1)
}

func TestEventsSince(t *testing.T) {
	r := start(t, stripeapi.Config{}, standin.Options{})
	r.put(t, 1)
	got, _ := poll(t, r, stripeapi.CursorAt(time.Now().Add(time.Hour)))
	require.Empty(t, got)
	events, _, _, err := r.Events(t.Context(), stripeapi.CursorAt(time.Now()))
	require.NoError(t, err)
	require.Len(t, events, 1)
	// An event can be passed on as JSON with its object whole.
	body, err := json.Marshal(events[0])
	require.NoError(t, err)
	var back stripe.Event
	require.NoError(t, json.Unmarshal(body, &back))
	require.Equal(t, events[0].GetObjectValue("id"), back.GetObjectValue("id"))
	require.LessOrEqual(t, len(stripeapi.EventTypes), 20)
}
