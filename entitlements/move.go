package entitlements

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// Move is a live position of an item that is to hold another product. To is uuid.Nil where it is to hold nothing: the tier of the
// product was removed, and nothing stands in its place.
type Move struct {
	Position       uuid.UUID
	Pool           uuid.UUID
	SubscriptionID string
	ItemID         string
	Quantity       int64
	From, To       uuid.UUID
	status         string
}

// PlanMoves returns the moves after which the items hold the products given, by item id. Items without a live position,
// or that hold their product already, or what stands in its place, need none.
func PlanMoves(ctx context.Context, q lockorder.Querier, products map[string]uuid.UUID) ([]Move, error) {
	if len(products) == 0 {
		return nil, nil
	}
	ids := make([]string, 0, len(products))
	for id := range products {
		ids = append(ids, id)
	}
	rows, err := entitlementsdb.New(q).ListItemPositions(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("reading the positions of %d items: %w", len(ids), err)
	}
	inPlaceOf, err := loadSuccessions(ctx, q, slices.Collect(maps.Values(products)))
	if err != nil {
		return nil, err
	}
	var moves []Move
	for _, r := range rows {
		if to, _ := inPlaceOf.heldFor(products[r.ItemID]); to != r.ProductID {
			moves = append(moves, Move{
				Position: r.ID, Pool: r.PoolID, SubscriptionID: r.SubscriptionID, ItemID: r.ItemID, Quantity: r.Quantity,
				From: r.ProductID, To: to, status: r.Status,
			})
		}
	}
	return moves, nil
}

// MoveItems ends the positions of moves and confers the other product in their place, in the same pool, suspended where
// the old one was. The transaction is a RuleChange that planned the moves itself: nobody else changes positions while it holds the
// rendezvous. It settles nothing: the pools are among those that the change reaches.
func MoveItems(ctx context.Context, tx *lockorder.Tx, act Act, moves []Move) error {
	if err := act.check(); err != nil {
		return err
	}
	if err := tx.RequireKind(lockorder.RuleChange); err != nil {
		return err
	}
	if len(moves) == 0 {
		return nil
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	params := entitlementsdb.MoveItemPositionsParams{At: now, Act: act.Name}
	ids := make([]uuid.UUID, len(moves))
	for i, m := range moves {
		ids[i] = m.Position
		if m.To != uuid.Nil {
			params.Ids, params.Products, params.Statuses = append(params.Ids, m.Position), append(params.Products, m.To), append(params.Statuses, m.status)
		}
	}
	q := entitlementsdb.New(tx)
	ended, err := q.EndPositions(ctx, entitlementsdb.EndPositionsParams{At: now, Act: act.Name, Reason: EndMappingChanged, Ids: ids})
	if err == nil && int(ended) != len(ids) {
		err = errors.New("the others are not live any more")
	}
	if err != nil {
		return fmt.Errorf("ending %d positions whose mapping changed, %d ended: %w", len(ids), ended, err)
	}
	if err := q.MoveItemPositions(ctx, params); err != nil {
		return fmt.Errorf("conferring %d items under their new mapping: %w", len(params.Ids), err)
	}
	return nil
}

// PoolState is what a pool may use.
type PoolState struct {
	Pool         uuid.UUID
	PoolName     string
	Organization string
	Values       map[string]Value
}

// PoolStates returns what pools may use, as materialized, by organisation and pool name.
func PoolStates(ctx context.Context, q lockorder.Querier, pools []uuid.UUID) ([]PoolState, error) {
	rows, err := entitlementsdb.New(q).ListPoolEntitlements(ctx, pools)
	if err != nil {
		return nil, fmt.Errorf("reading the entitlements of %d pools: %w", len(pools), err)
	}
	var states []PoolState
	for _, r := range rows {
		if n := len(states); n == 0 || states[n-1].Pool != r.PoolID {
			states = append(states, PoolState{Pool: r.PoolID, PoolName: r.Pool, Organization: r.Organization, Values: map[string]Value{}})
		}
		if r.ResourceKey != nil {
			states[len(states)-1].Values[*r.ResourceKey] = valueOf(r.NumericValue, r.BooleanValue)
		}
	}
	return states, nil
}
