package entitlements

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// Why a position ended, as it is stored in positions.end_reason. A floor that gives way says "displaced", one that is
// no longer its type's default "default_changed".
const (
	EndItemRemoved       = "item_removed"       // the subscription no longer has the item
	EndProductChanged    = "product_changed"    // the item is now for another product
	EndMappingChanged    = "mapping_changed"    // the item's price now stands for another product
	EndSubscriptionEnded = "subscription_ended" // the subscription is over
	EndTierRemoved       = "tier_removed"       // the product's tier was removed while it was held
)

const (
	statusActive    = "active"
	statusSuspended = "suspended"
)

// Act says why something changes. It is written to the ledger and to the positions.
type Act struct {
	// Name is the kind of act: "subscription-reconcile", "catalog-apply". It must not be empty.
	Name string
	// Workflow is the id of the workflow that acts, empty for a command.
	Workflow string
}

// Item is one item of a subscription that confers a product.
type Item struct {
	// ID is Stripe's id of the item.
	ID string
	// Product is the product that the item's price stands for.
	Product uuid.UUID
	// Quantity is how many times the product is held. Of 0 or less the item counts as absent.
	Quantity int64
}

// MaxQuantity is the largest quantity that a position may have.
const MaxQuantity = 1_000_000

// Subscription is what a subscription that is not over confers, or would confer if it were not suspended.
type Subscription struct {
	// ID is Stripe's id of the subscription.
	ID string
	// Pool takes the positions of items that have none yet. A live position stays in the pool it is in.
	Pool uuid.UUID
	// Items are the items that are converged.
	Items []Item
	// Keep are the ids of items whose positions stay as they are: neither changed nor ended. Of a suspended subscription
	// they are suspended with the rest.
	Keep []string
	// Suspended says that nothing of it confers for now.
	Suspended bool
}

// Changes counts what a function did.
type Changes struct {
	// Conferred, Changed and Ended count positions of the subscription. An item that changed its product counts once as
	// ended and once as conferred; Changed are new quantities, suspensions and resumptions.
	Conferred, Changed, Ended int
	// Entitlements counts the rows of pool_entitlements that changed.
	Entitlements int
	// Succeeded counts the items that hold another product in place of one whose tier was removed, Withheld those that hold
	// nothing because of it. They tell what stands, whether or not it changed now.
	Succeeded, Withheld int
}

// Any says whether anything changed.
func (c Changes) Any() bool {
	return c.Conferred != 0 || c.Changed != 0 || c.Ended != 0 || c.Entitlements != 0
}

// PoolsOfSubscription returns the pools that hold live positions of a subscription, ascending.
func PoolsOfSubscription(ctx context.Context, q lockorder.Querier, subscriptionID string) ([]uuid.UUID, error) {
	pools, err := entitlementsdb.New(q).ListSubscriptionPools(ctx, subscriptionID)
	if err != nil {
		return nil, fmt.Errorf("reading the pools of subscription %s: %w", subscriptionID, err)
	}
	return pools, nil
}

// DefaultPool returns the default pool of an organisation. It answers an error that wraps ErrNotFound when there is no
// such organisation.
func DefaultPool(ctx context.Context, q lockorder.Querier, organization uuid.UUID) (uuid.UUID, error) {
	pool, err := entitlementsdb.New(q).GetDefaultPool(ctx, organization)
	switch {
	case isNoRows(err):
		return uuid.Nil, &notFoundError{what: "organisation", asked: organization.String()}
	case err != nil:
		return uuid.Nil, fmt.Errorf("reading the default pool of organisation %s: %w", organization, err)
	}
	return pool, nil
}

func (a Act) check() error {
	if a.Name == "" {
		return fmt.Errorf("%w: an act has no name", ErrInvalid)
	}
	return nil
}

// check refuses what no position can hold, before anything is written.
func (s Subscription) check() error {
	var errs []error
	seen := map[string]bool{}
	for _, item := range s.Items {
		switch {
		case item.ID == "":
			errs = append(errs, fmt.Errorf("%w: subscription %s has an item without an id", ErrInvalid, s.ID))
		case seen[item.ID]:
			errs = append(errs, fmt.Errorf("%w: subscription %s names item %s twice", ErrInvalid, s.ID, item.ID))
		case item.Quantity > MaxQuantity:
			errs = append(errs, fmt.Errorf("%w: item %s has the quantity %d; the most is %d", ErrInvalid, item.ID, item.Quantity, MaxQuantity))
		}
		seen[item.ID] = true
	}
	for _, id := range s.Keep {
		if seen[id] {
			errs = append(errs, fmt.Errorf("%w: item %s is to be converged and to be kept", ErrInvalid, id))
		}
	}
	return errors.Join(errs...)
}
