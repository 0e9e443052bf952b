package entitlements

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// successions are what is held in place of products whose tier was removed while they were held; uuid.Nil stands for nothing.
type successions map[uuid.UUID]uuid.UUID

// loadSuccessions returns the successions of the products. They change under the exclusive rendezvous only.
func loadSuccessions(ctx context.Context, q lockorder.Querier, products []uuid.UUID) (successions, error) {
	if len(products) == 0 {
		return nil, nil
	}
	rows, err := entitlementsdb.New(q).ListSuccessions(ctx, products)
	if err != nil {
		return nil, fmt.Errorf("reading what stands in place of removed tiers: %w", err)
	}
	s := make(successions, len(rows))
	for _, r := range rows {
		s[r.ProductID] = uuid.Nil
		if r.SuccessorID != nil {
			s[r.ProductID] = *r.SuccessorID
		}
	}
	return s, nil
}

// heldFor returns the product that is held for a product, and whether any is.
func (s successions) heldFor(product uuid.UUID) (held uuid.UUID, any bool) {
	successor, removed := s[product]
	if !removed {
		return product, true
	}
	return successor, successor != uuid.Nil
}
