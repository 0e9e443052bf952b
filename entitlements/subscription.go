package entitlements

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// ConvergeSubscription makes the positions of a subscription those of its items: adds what is new, takes over another
// quantity or product, ends what has no item any more, and settles every pool touched. They confer, or, of a suspended
// subscription, are suspended: then they confer nothing and keep their place, so that nothing below them on their ladder
// confers instead and no floor is restored. What is resumed is the same position, so that its place is what it was. An
// item whose product's tier was removed while it was held holds what stands in its place, or nothing. The
// outcome depends on sub alone, not on what was seen of the subscription before. The caller holds the subscription's key and
// the rows of sub.Pool and of all pools that PoolsOfSubscription names.
func ConvergeSubscription(ctx context.Context, tx *lockorder.Tx, act Act, sub Subscription) (Changes, error) {
	if err := sub.check(); err != nil {
		return Changes{}, err
	}
	c, err := openSubscription(ctx, tx, act, sub.ID, sub.Pool)
	if err != nil {
		return Changes{}, err
	}
	live := make(map[string]entitlementsdb.ListSubscriptionPositionsRow, len(c.positions))
	for _, p := range c.positions {
		live[p.ItemID] = p
	}
	status := statusActive
	if sub.Suspended {
		status = statusSuspended
	}
	change := func(p entitlementsdb.ListSubscriptionPositionsRow, quantity int64) error {
		if p.Quantity == quantity && p.Status == status {
			return nil
		}
		err := c.q.UpdateItemPosition(ctx, entitlementsdb.UpdateItemPositionParams{ID: p.ID, Quantity: quantity, Status: status})
		if err != nil {
			return fmt.Errorf("changing the position of item %s: %w", p.ItemID, err)
		}
		c.changes.Changed++
		return nil
	}
	wanted := map[string]bool{}
	for _, id := range sub.Keep {
		wanted[id] = true
		if p, held := live[id]; held && sub.Suspended {
			if err := change(p, p.Quantity); err != nil {
				return Changes{}, err
			}
		}
	}
	products := make([]uuid.UUID, len(sub.Items))
	for i, item := range sub.Items {
		products[i] = item.Product
	}
	inPlaceOf, err := loadSuccessions(ctx, tx, products)
	if err != nil {
		return Changes{}, err
	}
	var removed, replaced, withdrawn []uuid.UUID
	var confer []entitlementsdb.InsertItemPositionParams
	for _, item := range sub.Items {
		if item.Quantity <= 0 {
			continue
		}
		wanted[item.ID] = true
		p, held := live[item.ID]
		product, any := inPlaceOf.heldFor(item.Product)
		switch {
		case !any:
			c.changes.Withheld++
			if held {
				withdrawn = append(withdrawn, p.ID)
			}
			continue
		case product != item.Product:
			c.changes.Succeeded++
		}
		if held && p.ProductID == product {
			if err := change(p, item.Quantity); err != nil {
				return Changes{}, err
			}
			continue
		}
		pool := sub.Pool
		if held {
			replaced = append(replaced, p.ID)
			pool = p.PoolID
		}
		confer = append(confer, entitlementsdb.InsertItemPositionParams{
			PoolID: pool, ProductID: product, SubscriptionID: sub.ID, ItemID: item.ID, Quantity: item.Quantity,
			Status: status, StartsAt: c.now, Act: act.Name,
		})
	}
	for _, p := range c.positions {
		if !wanted[p.ItemID] {
			removed = append(removed, p.ID)
		}
	}
	// An item has one live position at most, so what makes room comes first.
	if err := c.end(ctx, EndItemRemoved, removed); err != nil {
		return Changes{}, err
	}
	if err := c.end(ctx, EndProductChanged, replaced); err != nil {
		return Changes{}, err
	}
	if err := c.end(ctx, EndTierRemoved, withdrawn); err != nil {
		return Changes{}, err
	}
	for _, params := range confer {
		if err := c.q.InsertItemPosition(ctx, params); err != nil {
			return Changes{}, fmt.Errorf("conferring item %s: %w", params.ItemID, err)
		}
		c.changes.Conferred++
	}
	return c.settle(ctx, sub.Pool)
}

// EndSubscription ends the live positions of a subscription for the reason given (EndSubscriptionEnded), and settles
// their pools: what they outranked confers again, and the floor returns where nothing else is held. The caller holds the
// subscription's key and the rows of all pools that PoolsOfSubscription names.
func EndSubscription(ctx context.Context, tx *lockorder.Tx, act Act, subscriptionID, reason string) (Changes, error) {
	if reason == "" {
		return Changes{}, fmt.Errorf("%w: subscription %s is to end without a reason", ErrInvalid, subscriptionID)
	}
	c, err := openSubscription(ctx, tx, act, subscriptionID)
	if err != nil {
		return Changes{}, err
	}
	ids := make([]uuid.UUID, 0, len(c.positions))
	for _, p := range c.positions {
		ids = append(ids, p.ID)
	}
	if err := c.end(ctx, reason, ids); err != nil {
		return Changes{}, err
	}
	return c.settle(ctx)
}

// opened is one act on one subscription, its positions read under its locks.
type opened struct {
	now       time.Time
	tx        *lockorder.Tx
	q         *entitlementsdb.Queries
	act       Act
	positions []entitlementsdb.ListSubscriptionPositionsRow
	changes   Changes
}

// openSubscription requires what every act on a subscription relies on, and reads its positions under it.
func openSubscription(ctx context.Context, tx *lockorder.Tx, act Act, subscriptionID string, pools ...uuid.UUID) (*opened, error) {
	if err := act.check(); err != nil {
		return nil, err
	}
	if err := tx.RequireKind(lockorder.Materializing); err != nil {
		return nil, err
	}
	if err := tx.Require(lockorder.SubscriptionKey(subscriptionID)); err != nil {
		return nil, err
	}
	if err := requirePools(tx, pools); err != nil {
		return nil, err
	}
	c := &opened{tx: tx, q: entitlementsdb.New(tx), act: act}
	var err error
	if c.positions, err = c.q.ListSubscriptionPositions(ctx, subscriptionID); err != nil {
		return nil, fmt.Errorf("reading the positions of subscription %s: %w", subscriptionID, err)
	}
	if err := requirePools(tx, c.pools()); err != nil {
		return nil, err
	}
	c.now, err = tx.Now(ctx)
	return c, err
}

// pools returns the pools of the positions that were live when the act began.
func (c *opened) pools() []uuid.UUID {
	pools := make([]uuid.UUID, 0, len(c.positions))
	for _, p := range c.positions {
		pools = append(pools, p.PoolID)
	}
	return pools
}

func (c *opened) end(ctx context.Context, reason string, ids []uuid.UUID) error {
	if len(ids) == 0 {
		return nil
	}
	n, err := c.q.EndPositions(ctx, entitlementsdb.EndPositionsParams{At: c.now, Act: c.act.Name, Reason: reason, Ids: ids})
	if err != nil {
		return fmt.Errorf("ending %d positions (%s): %w", len(ids), reason, err)
	}
	c.changes.Ended += int(n)
	return nil
}

func (c *opened) settle(ctx context.Context, more ...uuid.UUID) (Changes, error) {
	n, err := Settle(ctx, c.tx, c.act, slices.Concat(more, c.pools())...)
	c.changes.Entitlements = n
	return c.changes, err
}
