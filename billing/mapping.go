package billing

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/billing/internal/billingdb"
	"github.com/bursarhq/bursar/lockorder"
)

// Mappings returns every mapping: which product a Stripe price stands for, and which one all prices of a Stripe product
// stand for that have no mapping of their own.
func Mappings(ctx context.Context, q lockorder.Querier) (prices, products map[string]uuid.UUID, err error) {
	db := billingdb.New(q)
	priceRows, err := db.ListPriceMappings(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the price mappings: %w", err)
	}
	productRows, err := db.ListProductMappings(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the product mappings: %w", err)
	}
	prices, products = make(map[string]uuid.UUID, len(priceRows)), make(map[string]uuid.UUID, len(productRows))
	for _, r := range priceRows {
		prices[r.StripePriceID] = r.ProductID
	}
	for _, r := range productRows {
		products[r.StripeProductID] = r.ProductID
	}
	return prices, products, nil
}

// SetPriceMapping makes a Stripe price stand for a product. Only a RuleChange transaction may: a reconcile sees one set
// of mappings from its beginning to its end. Positions conferred under another mapping are the caller's to move.
func SetPriceMapping(ctx context.Context, tx *lockorder.Tx, price string, product uuid.UUID) error {
	if err := checkMapping(tx, "price", price); err != nil {
		return err
	}
	if _, err := billingdb.New(tx).WritePriceMapping(ctx, billingdb.WritePriceMappingParams{Price: price, ProductID: product}); err != nil {
		return fmt.Errorf("mapping price %s: %w", price, err)
	}
	return nil
}

// SetProductMapping makes every price of a Stripe product that has no mapping of its own stand for a product. What
// SetPriceMapping says of transactions and positions holds here too.
func SetProductMapping(ctx context.Context, tx *lockorder.Tx, stripeProduct string, product uuid.UUID) error {
	if err := checkMapping(tx, "product", stripeProduct); err != nil {
		return err
	}
	if _, err := billingdb.New(tx).WriteProductMapping(ctx, billingdb.WriteProductMappingParams{StripeProduct: stripeProduct, ProductID: product}); err != nil {
		return fmt.Errorf("mapping Stripe product %s: %w", stripeProduct, err)
	}
	return nil
}

func checkMapping(tx *lockorder.Tx, what, id string) error {
	if !catalogueID.MatchString(id) {
		return fmt.Errorf("%w: %q is not the id of a Stripe %s", ErrInvalid, id, what)
	}
	return tx.RequireKind(lockorder.RuleChange)
}

// Mapped is an item and the product it stands for.
type Mapped struct {
	Item
	ProductID uuid.UUID
	// ProductSlug is the product's slug.
	ProductSlug string
}

// MapItems splits items into those whose price is mapped, with their product, and the rest, both in the order given.
// A price's own mapping goes before the mapping of its Stripe product.
func MapItems(ctx context.Context, q lockorder.Querier, items []Item) (mapped []Mapped, unmapped []Item, err error) {
	if len(items) == 0 {
		return nil, nil, nil
	}
	type key struct{ price, product string }
	params, asked := billingdb.MapPricesParams{}, map[key]bool{}
	for _, i := range items {
		if k := (key{i.Price, i.Product}); !asked[k] {
			asked[k] = true
			params.Prices, params.StripeProducts = append(params.Prices, i.Price), append(params.StripeProducts, i.Product)
		}
	}
	rows, err := billingdb.New(q).MapPrices(ctx, params)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the mappings of %d prices: %w", len(params.Prices), err)
	}
	found := make(map[key]billingdb.MapPricesRow, len(rows))
	for _, r := range rows {
		found[key{r.PriceID, r.StripeProductID}] = r
	}
	for _, i := range items {
		if r, ok := found[key{i.Price, i.Product}]; ok {
			mapped = append(mapped, Mapped{Item: i, ProductID: r.ProductID, ProductSlug: r.ProductSlug})
		} else {
			unmapped = append(unmapped, i)
		}
	}
	return mapped, unmapped, nil
}

// MappedItem is a mirrored item of a subscription in force, and the product that its price stands for now.
type MappedItem struct {
	SubscriptionID, ItemID string
	Product                uuid.UUID
	Quantity               int64
}

// MappedItems returns, by item id, those of the items that are live and mapped: not removed, of a quantity above 0, of
// a subscription whose last status is active or suspended, their price mapped now.
func MappedItems(ctx context.Context, q lockorder.Querier, itemIDs ...string) ([]MappedItem, error) {
	return listMappedItems(ctx, q, billingdb.ListMappedItemsParams{ItemIds: itemIDs})
}

// ItemsUsing returns, by item id, the live and mapped items, as MappedItems tells them, whose price or Stripe product is
// one of those given: the items that a change of these mappings reaches. Called after the mappings were set, it tells what
// the items stand for from then on.
func ItemsUsing(ctx context.Context, q lockorder.Querier, prices, stripeProducts []string) ([]MappedItem, error) {
	return listMappedItems(ctx, q, billingdb.ListMappedItemsParams{Prices: prices, StripeProducts: stripeProducts})
}

func listMappedItems(ctx context.Context, q lockorder.Querier, params billingdb.ListMappedItemsParams) ([]MappedItem, error) {
	params.Statuses = liveStatuses()
	rows, err := billingdb.New(q).ListMappedItems(ctx, params)
	if err != nil {
		return nil, fmt.Errorf("reading the mapped items: %w", err)
	}
	items := make([]MappedItem, 0, len(rows))
	for _, r := range rows {
		items = append(items, MappedItem{SubscriptionID: r.SubscriptionID, ItemID: r.ItemID, Product: r.ProductID, Quantity: r.Quantity})
	}
	return items, nil
}
