package billing_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/lockorder"
)

func TestVersionRisesAlsoWhenNothingChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	v, err := billing.Version(t.Context(), r.db.Reader(), "sub_1")
	require.NoError(t, err)
	require.Zero(t, v, "absence is version 0")

	v, changed, err := r.record(t.Context(), seen("sub_1"))
	require.NoError(t, err)
	require.Equal(t, int64(1), v)
	require.True(t, changed)
	v, changed, err = r.record(t.Context(), seen("sub_1"))
	require.NoError(t, err)
	require.Equal(t, int64(2), v, "a record that changed nothing raises the version")
	require.False(t, changed)

	require.NoError(t, r.run(t.Context(), lockorder.Plain, func(ctx context.Context, tx *lockorder.Tx) error {
		v, err := billing.RaiseVersion(ctx, tx, "sub_1")
		require.Equal(t, int64(3), v)
		return err
	}, "sub_1"))
	m, ok, err := billing.ReadSubscription(t.Context(), r.db.Reader(), "sub_1")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "active", m.Status, "raising leaves the mirror as it was")
	require.Equal(t, *day(30), *m.PeriodEnd)
}

func TestRaiseVersionMakesARowWithoutStatus(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	require.NoError(t, r.run(t.Context(), lockorder.Plain, func(ctx context.Context, tx *lockorder.Tx) error {
		v, err := billing.RaiseVersion(ctx, tx, "sub_1")
		require.Equal(t, int64(1), v)
		return err
	}, "sub_1"))
	m, ok, err := billing.ReadSubscription(t.Context(), r.db.Reader(), "sub_1")
	require.NoError(t, err)
	require.True(t, ok)
	require.Empty(t, m.Status)
	require.Empty(t, m.Customer)

	_, changed, err := r.record(t.Context(), seen("sub_1"))
	require.NoError(t, err)
	require.True(t, changed, "the first state shown is a change")
}

func TestKnownValuesOutliveMissingOnes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := seen("sub_1")
	first.TrialEnd, first.CancelAt, first.CanceledAt, first.CancelAtPeriodEnd = day(7), day(30), day(2), true
	_, _, err := r.record(t.Context(), first)
	require.NoError(t, err)

	second := seen("sub_1")
	second.PeriodStart, second.PeriodEnd, second.Created = nil, nil, nil
	_, changed, err := r.record(t.Context(), second)
	require.NoError(t, err)
	require.True(t, changed)
	m, _, err := billing.ReadSubscription(t.Context(), r.db.Reader(), "sub_1")
	require.NoError(t, err)
	require.Equal(t, *day(0), *m.PeriodStart)
	require.Equal(t, *day(30), *m.PeriodEnd)
	require.Equal(t, *day(7), *m.TrialEnd)
	require.Equal(t, *day(-1), *m.Created)
	require.Nil(t, m.CancelAt, "a cancellation that is not shown was taken back")
	require.Nil(t, m.CanceledAt)
	require.False(t, m.CancelAtPeriodEnd)
	periods, err := billing.Periods(t.Context(), r.db.Reader(), "sub_1")
	require.NoError(t, err)
	require.Len(t, periods, 1, "a missing period takes none away")

	over := seen("sub_1")
	over.Status, over.Standing, over.EndedAt, over.CanceledAt = "canceled", billing.Ends, day(9), day(9)
	_, _, err = r.record(t.Context(), over)
	require.NoError(t, err)
	over.EndedAt, over.CanceledAt = nil, nil
	_, changed, err = r.record(t.Context(), over)
	require.NoError(t, err)
	require.False(t, changed, "an ended subscription keeps when it ended")
}

func TestItemsAreMarkedRemovedAndComeBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	both := seen("sub_1")
	both.Items = append(both.Items, billing.Item{ID: "si_mug", Price: "price_mug", Product: "prod_mug", Quantity: 2})
	_, _, err := r.record(t.Context(), both)
	require.NoError(t, err)
	_, changed, err := r.record(t.Context(), seen("sub_1"))
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, 1, r.count(t, `SELECT count(*) FROM stripe.subscription_items WHERE id = 'si_mug' AND removed_at IS NOT NULL`))
	_, changed, err = r.record(t.Context(), both)
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, 2, r.count(t, `SELECT count(*) FROM stripe.subscription_items WHERE removed_at IS NULL`))

	none := seen("sub_1")
	none.Items = nil
	_, _, err = r.record(t.Context(), none)
	require.NoError(t, err)
	require.Zero(t, r.count(t, `SELECT count(*) FROM stripe.subscription_items WHERE removed_at IS NULL`))
}

func TestRecordingRequiresTheKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	acts := map[string]func(ctx context.Context, tx *lockorder.Tx) error{
		"record": func(ctx context.Context, tx *lockorder.Tx) error {
			_, _, err := billing.Record(ctx, tx, seen("sub_1"))
			return err
		},
		"raise": func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := billing.RaiseVersion(ctx, tx, "sub_1")
			return err
		},
		"events": func(ctx context.Context, tx *lockorder.Tx) error {
			return billing.RecordEvents(ctx, tx, "sub_1", 1, []billing.Event{{ID: "evt_1", Type: "x"}})
		},
		"park": func(ctx context.Context, tx *lockorder.Tx) error {
			return billing.Park(ctx, tx, billing.Work{Kind: billing.ParkedSubscription, ObjectID: "sub_1", SubscriptionID: "sub_1", Reason: billing.ReasonFailed, Detail: "x"})
		},
		"map a price": func(ctx context.Context, tx *lockorder.Tx) error {
			return billing.SetPriceMapping(ctx, tx, "price_gold", r.gold)
		},
	}
	for name, act := range acts {
		err := r.run(t.Context(), lockorder.Materializing, act, "sub_other")
		require.ErrorIs(t, err, lockorder.ErrNotHeld, name)
	}
}

func TestEventsAreKeptOnceWithTheVersionTheyLedTo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	events := []billing.Event{{ID: "evt_1", Type: "customer.subscription.created"}, {ID: "", Type: "operator"}, {ID: "evt_1", Type: "customer.subscription.created"}}
	for range 2 {
		require.NoError(t, r.run(t.Context(), lockorder.Plain, func(ctx context.Context, tx *lockorder.Tx) error {
			v, _, err := billing.Record(ctx, tx, seen("sub_1"))
			if err != nil {
				return err
			}
			return billing.RecordEvents(ctx, tx, "sub_1", v, events)
		}, "sub_1"))
	}
	require.Equal(t, 1, r.count(t, `SELECT count(*) FROM stripe.subscription_events`))
	require.Equal(t, 1, r.count(t, `SELECT version FROM stripe.subscription_events WHERE event_id = 'evt_1'`))
}
