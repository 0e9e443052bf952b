package billing_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/lockorder"
)

func uniqueID() string { return fmt.Sprintf("%x", uuid.New().ID()) }

func (r *rig) park(t *testing.T, w billing.Work) {
	t.Helper()
	require.NoError(t, r.run(t.Context(), lockorder.Plain, func(ctx context.Context, tx *lockorder.Tx) error {
		return billing.Park(ctx, tx, w)
	}, w.SubscriptionID))
}

func (r *rig) parked(t *testing.T, filter billing.ParkedFilter) []billing.Parked {
	t.Helper()
	all, err := billing.AllParked(t.Context(), r.db.Reader(), filter)
	require.NoError(t, err)
	return all
}

func (r *rig) due(t *testing.T) (ids []string) {
	t.Helper()
	due, err := billing.ListDue(t.Context(), r.db.Reader(), billing.ParkedKey{}, billing.PageSize)
	require.NoError(t, err)
	for _, d := range due {
		ids = append(ids, d.ObjectID)
	}
	return ids
}

func work(id string) billing.Work {
	return billing.Work{Kind: billing.ParkedSubscription, ObjectID: id, SubscriptionID: id, Reason: billing.ReasonFailed, Detail: "it failed"}
}

func TestParkAgainCountsAndResolveBeginsAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := work("sub_1")
	w.Reason, w.WaitingCustomer = billing.ReasonUnknownCustomer, "cus_1"
	w.WaitingItems = []billing.Item{{ID: "si_2", Price: "price_b", Product: "prod_b"}, {ID: "si_1", Price: "price_a", Product: "prod_a"}, {ID: "si_3", Price: "price_b", Product: "prod_b"}}
	r.park(t, w)
	r.park(t, w)
	p := r.parked(t, billing.ParkedFilter{})
	require.Len(t, p, 1)
	require.Equal(t, 2, p[0].Attempts)
	require.True(t, p[0].LastTriedAt.After(p[0].ParkedAt))
	require.Equal(t, []string{"price_a", "price_b"}, p[0].WaitingPrices)
	require.Equal(t, []string{"prod_a", "prod_b"}, p[0].WaitingProducts)
	require.Equal(t, "cus_1", p[0].Customer)

	key := p[0].ParkedKey
	resolve := func() (was bool) {
		require.NoError(t, r.run(t.Context(), lockorder.Plain, func(ctx context.Context, tx *lockorder.Tx) (err error) {
			was, err = billing.Resolve(ctx, tx, key)
			return err
		}, "sub_1"))
		return was
	}
	require.True(t, resolve())
	require.False(t, resolve())
	require.Empty(t, r.parked(t, billing.ParkedFilter{}))
	r.park(t, work("sub_1"))
	p = r.parked(t, billing.ParkedFilter{})
	require.Len(t, p, 1)
	require.Equal(t, 1, p[0].Attempts)
	require.Empty(t, p[0].WaitingCustomer)
	require.Empty(t, p[0].WaitingPrices)
}

func TestDueIsToldFromTheTables(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	customer, price, product, neither := work("sub_customer"), work("sub_price"), work("sub_product"), work("sub_neither")
	customer.WaitingCustomer = "cus_1"
	price.WaitingItems = []billing.Item{{ID: "si_1", Price: "price_1", Product: "prod_1"}, {ID: "si_2", Price: "price_2", Product: "prod_2"}}
	product.WaitingItems = []billing.Item{{ID: "si_3", Price: "price_3", Product: "prod_3"}}
	for _, w := range []billing.Work{customer, price, product, neither} {
		r.park(t, w)
	}
	require.Empty(t, r.due(t))
	_, err := r.link(t.Context(), "cus_1", r.acme)
	require.NoError(t, err)
	require.Equal(t, []string{"sub_customer"}, r.due(t))
	r.mapPrice(t, "price_2", r.gold)
	require.Equal(t, []string{"sub_customer", "sub_price"}, r.due(t))
	r.mapProduct(t, "prod_3", r.gold)
	require.Equal(t, []string{"sub_customer", "sub_price", "sub_product"}, r.due(t))
	r.request(t, billing.ParkedKey{Kind: billing.ParkedSubscription, ObjectID: "sub_neither"})
	require.Equal(t, []string{"sub_customer", "sub_neither", "sub_price", "sub_product"}, r.due(t))
}

func (r *rig) request(t *testing.T, keys ...billing.ParkedKey) {
	t.Helper()
	require.NoError(t, r.run(t.Context(), lockorder.Plain, func(ctx context.Context, tx *lockorder.Tx) error {
		n, err := billing.RequestRetry(ctx, tx, keys...)
		require.Equal(t, len(keys), n)
		return err
	}))
}

func TestARequestStaysUntilItIsHandedOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key := billing.ParkedKey{Kind: billing.ParkedSubscription, ObjectID: "sub_1"}
	handOn := func(due []billing.Due) {
		require.NoError(t, r.run(t.Context(), lockorder.Plain, func(ctx context.Context, tx *lockorder.Tx) error {
			return billing.HandedOn(ctx, tx, due)
		}))
	}
	list := func() []billing.Due {
		due, err := billing.ListDue(t.Context(), r.db.Reader(), billing.ParkedKey{}, 10)
		require.NoError(t, err)
		return due
	}
	r.park(t, work("sub_1"))
	r.request(t, key)
	r.park(t, work("sub_1"))
	require.Equal(t, []string{"sub_1"}, r.due(t), "parking again does not drop what was asked for meanwhile")

	listed := list()
	r.request(t, key)
	handOn(listed)
	require.Equal(t, []string{"sub_1"}, r.due(t), "a request made since the list was read stays")
	handOn(list())
	require.Empty(t, r.due(t))
	require.Len(t, r.parked(t, billing.ParkedFilter{}), 1)
}

func TestParkedFiltersAndPages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, _, err := r.record(t.Context(), seen("sub_mirrored"))
	require.NoError(t, err)
	_, err = r.link(t.Context(), "cus_1", r.acme)
	require.NoError(t, err)
	r.park(t, work("sub_mirrored"))
	waiting := work("sub_waiting")
	waiting.WaitingCustomer = "cus_2"
	r.park(t, waiting)
	checkout := work("sub_waiting")
	checkout.Kind, checkout.ObjectID = billing.ParkedCheckout, "cs_1"
	r.park(t, checkout)

	of := r.parked(t, billing.ParkedFilter{Organization: &r.acme})
	require.Len(t, of, 1)
	require.Equal(t, "sub_mirrored", of[0].ObjectID)
	require.Equal(t, "acme", of[0].Organization)
	require.Equal(t, "cus_1", of[0].Customer)
	of = r.parked(t, billing.ParkedFilter{Customer: "cus_2"})
	require.Len(t, of, 1)
	require.Equal(t, "sub_waiting", of[0].ObjectID)
	require.Len(t, r.parked(t, billing.ParkedFilter{Object: "sub_waiting"}), 2, "a subscription and its checkout")
	require.Len(t, r.parked(t, billing.ParkedFilter{Object: "cs_1"}), 1)

	r.exec(t, `INSERT INTO stripe.parked_work (kind, object_id, reason, detail, subscription_id, parked_at, last_tried_at, retry_requested_at)
		SELECT 'subscription', 'sub_n' || n, 'failed', 'x', 'sub_n' || n, now(), now(), now() FROM generate_series(1, 450) n`)
	require.Len(t, r.parked(t, billing.ParkedFilter{}), 453)
	seenIDs, after := map[string]bool{}, billing.ParkedKey{}
	for {
		page, err := billing.ListDue(t.Context(), r.db.Reader(), after, billing.PageSize)
		require.NoError(t, err)
		for _, d := range page {
			require.False(t, seenIDs[d.ObjectID], d.ObjectID)
			seenIDs[d.ObjectID] = true
			after = d.ParkedKey
		}
		if len(page) < billing.PageSize {
			break
		}
	}
	require.Len(t, seenIDs, 450)
}
