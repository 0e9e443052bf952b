package entitlements

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// Ended is a position that is over. Times are UTC.
type Ended struct {
	Position
	EndedAt time.Time `json:"ended_at"`
	// EndReason is one of the End… words.
	EndReason string `json:"end_reason"`
}

// LastEnded returns the positions of an organisation that ended last, the latest first, at most so many. The floor's own
// are left out: they come and go with the others.
func LastEnded(ctx context.Context, q lockorder.Querier, organization uuid.UUID, most int) ([]Ended, error) {
	rows, err := entitlementsdb.New(q).ListEndedPositions(ctx, entitlementsdb.ListEndedPositionsParams{OrganizationID: organization, Most: int32(most)})
	if err != nil {
		return nil, fmt.Errorf("reading what organisation %s held before: %w", organization, err)
	}
	ended := make([]Ended, 0, len(rows))
	for _, r := range rows {
		ended = append(ended, Ended{
			Position: Position{ID: r.ID, Product: r.Product, ProductName: r.ProductName, Source: r.Source, SubscriptionID: r.SubscriptionID,
				Grant: grantSource(r.GrantID, r.Line, r.GrantState, r.Note, r.Origin), Quantity: r.Quantity, Since: r.StartsAt.UTC()},
			EndedAt: r.EndedAt.UTC(), EndReason: r.EndReason,
		})
	}
	return ended, nil
}
