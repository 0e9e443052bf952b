package entitlements

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// ChangeProgress is a committed change and how far it has come.
type ChangeProgress struct {
	ID uuid.UUID `json:"id"`
	// Kind is one of the Change… constants.
	Kind    string `json:"kind"`
	Summary string `json:"summary"`
	// Act and Workflow say who made it. Workflow is empty for a command.
	Act         string    `json:"act"`
	Workflow    string    `json:"workflow,omitempty"`
	CommittedAt time.Time `json:"committed_at"`
	// Owed is how many pools it left to be settled; of these Settled are, Open are not yet, and Parked failed too often.
	Owed    int `json:"owed"`
	Settled int `json:"settled"`
	Open    int `json:"open"`
	Parked  int `json:"parked"`
}

// RecentChanges returns at most limit changes, the last first.
func RecentChanges(ctx context.Context, q lockorder.Querier, limit int) ([]ChangeProgress, error) {
	return listChanges(ctx, q, entitlementsdb.ListChangesParams{Most: int32(limit)})
}

// Progress returns how far a change has come. Where there is no such change the error wraps ErrNotFound.
func Progress(ctx context.Context, q lockorder.Querier, change uuid.UUID) (ChangeProgress, error) {
	found, err := listChanges(ctx, q, entitlementsdb.ListChangesParams{ID: &change, Most: 1})
	switch {
	case err != nil:
		return ChangeProgress{}, err
	case len(found) == 0:
		return ChangeProgress{}, &notFoundError{what: "change", asked: change.String(), hint: "bursar rule status lists the last ones"}
	}
	return found[0], nil
}

func listChanges(ctx context.Context, q lockorder.Querier, params entitlementsdb.ListChangesParams) ([]ChangeProgress, error) {
	rows, err := entitlementsdb.New(q).ListChanges(ctx, params)
	if err != nil {
		return nil, fmt.Errorf("reading the changes: %w", err)
	}
	list := make([]ChangeProgress, len(rows))
	for i, r := range rows {
		list[i] = ChangeProgress{ID: r.ID, Kind: r.Kind, Summary: r.Summary, Act: r.Act, Workflow: r.Workflow, CommittedAt: r.CommittedAt.UTC(),
			Owed: int(r.Owed), Settled: int(int64(r.Owed) - r.Open - r.Parked), Open: int(r.Open), Parked: int(r.Parked)}
	}
	return list, nil
}

// OpenChanges returns the changes that owe pools still. What is parked waits for a person, and does not count.
func OpenChanges(ctx context.Context, q lockorder.Querier) ([]uuid.UUID, error) {
	ids, err := entitlementsdb.New(q).ListOpenChanges(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the changes that owe pools: %w", err)
	}
	return ids, nil
}
