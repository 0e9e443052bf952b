package billing_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/lockorder"
)

func (r *rig) mapPrice(t *testing.T, price string, product uuid.UUID) {
	t.Helper()
	require.NoError(t, r.run(t.Context(), lockorder.RuleChange, func(ctx context.Context, tx *lockorder.Tx) error {
		return billing.SetPriceMapping(ctx, tx, price, product)
	}))
}

func (r *rig) mapProduct(t *testing.T, stripeProduct string, product uuid.UUID) {
	t.Helper()
	require.NoError(t, r.run(t.Context(), lockorder.RuleChange, func(ctx context.Context, tx *lockorder.Tx) error {
		return billing.SetProductMapping(ctx, tx, stripeProduct, product)
	}))
}

func TestPriceMappingsGoBeforeProductMappings(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.mapProduct(t, "prod_a", r.gold)
	r.mapPrice(t, "price_mug", r.mug)
	r.mapPrice(t, "price_mug", r.mug)
	items := []billing.Item{
		{ID: "si_1", Price: "price_none", Product: "prod_none", Quantity: 1},
		{ID: "si_2", Price: "price_any", Product: "prod_a", Quantity: 1},
		{ID: "si_3", Price: "price_mug", Product: "prod_a", Quantity: 2},
		{ID: "si_4", Price: "price_mug", Product: "prod_a", Quantity: 3},
	}
	mapped, unmapped, err := billing.MapItems(t.Context(), r.db.Reader(), items)
	require.NoError(t, err)
	require.Equal(t, items[:1], unmapped)
	require.Equal(t, []billing.Mapped{
		{Item: items[1], ProductID: r.gold, ProductSlug: "gold"},
		{Item: items[2], ProductID: r.mug, ProductSlug: "mug"},
		{Item: items[3], ProductID: r.mug, ProductSlug: "mug"},
	}, mapped)

	prices, products, err := billing.Mappings(t.Context(), r.db.Reader())
	require.NoError(t, err)
	require.Equal(t, map[string]uuid.UUID{"price_mug": r.mug}, prices)
	require.Equal(t, map[string]uuid.UUID{"prod_a": r.gold}, products)

	err = r.run(t.Context(), lockorder.RuleChange, func(ctx context.Context, tx *lockorder.Tx) error {
		return billing.SetPriceMapping(ctx, tx, "price with blanks", r.gold)
	})
	require.ErrorIs(t, err, billing.ErrInvalid)
}

func TestMappedItemsAreTheLiveOnes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.mapPrice(t, "price_gold", r.gold)
	paid, unpaid, ended, gone, none, other := seen("sub_1"), seen("sub_2"), seen("sub_3"), seen("sub_4"), seen("sub_5"), seen("sub_6")
	unpaid.Status, unpaid.Standing = "unpaid", billing.Suspends
	ended.Status, ended.Standing = "canceled", billing.Ends
	none.Items[0].Quantity = 0
	other.Items[0].Price = "price_other"
	for _, s := range []billing.Seen{paid, unpaid, ended, gone, none, other} {
		_, _, err := r.record(t.Context(), s)
		require.NoError(t, err)
	}
	gone.Items = nil
	_, _, err := r.record(t.Context(), gone)
	require.NoError(t, err)

	want := []billing.MappedItem{{"sub_1", "si_sub_1", r.gold, 1}, {"sub_2", "si_sub_2", r.gold, 1}}
	items, err := billing.ItemsUsing(t.Context(), r.db.Reader(), []string{"price_gold", "price_other"}, nil)
	require.NoError(t, err)
	require.Equal(t, want, items)
	items, err = billing.MappedItems(t.Context(), r.db.Reader(), "si_sub_2", "si_sub_3", "si_sub_6")
	require.NoError(t, err)
	require.Equal(t, want[1:], items)
	items, err = billing.MappedItems(t.Context(), r.db.Reader())
	require.NoError(t, err)
	require.Empty(t, items)

	r.mapProduct(t, "prod_gold", r.mug)
	items, err = billing.ItemsUsing(t.Context(), r.db.Reader(), nil, []string{"prod_gold"})
	require.NoError(t, err)
	require.Equal(t, append(want, billing.MappedItem{SubscriptionID: "sub_6", ItemID: "si_sub_6", Product: r.mug, Quantity: 1}), items,
		"a price that has no mapping of its own falls to that of its Stripe product")
}
