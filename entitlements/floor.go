package entitlements

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// newFloor is a ladder that gets another floor: the types whose default is the old one have the new one for their default.
type newFloor struct {
	types    []entitlementsdb.ListTypeRowsRow
	old, new uuid.UUID
	slug     string // of the new floor
}

// followFloor finds the types whose default follows the floor of a ladder. Nobody follows where an earlier change of such a default has
// not reached everyone yet: the error wraps ErrInProgress.
func followFloor(ctx context.Context, q lockorder.Querier, tiers []entitlementsdb.ListTiersOfRow, floor uuid.UUID, slug string) (newFloor, error) {
	f := newFloor{new: floor, slug: slug}
	if len(tiers) == 0 || tiers[0].ID == floor {
		return f, nil
	}
	f.old = tiers[0].ID
	types, err := entitlementsdb.New(q).ListTypeRows(ctx)
	if err != nil {
		return f, fmt.Errorf("reading the organisation types: %w", err)
	}
	for _, t := range types {
		if t.DefaultProductID == nil || *t.DefaultProductID != f.old {
			continue
		}
		if err := noDefaultInProgress(ctx, q, t.ID, t.Slug); err != nil {
			return f, err
		}
		f.types = append(f.types, t)
	}
	return f, nil
}

// reach adds the default pools of the types that follow.
func (f newFloor) reach(r Reach) Reach {
	for _, t := range f.types {
		r.Types = append(r.Types, t.ID)
	}
	return r
}

// summary says which defaults follow.
func (f newFloor) summary(s string) string {
	if len(f.types) == 0 {
		return s
	}
	names := make([]string, len(f.types))
	for i, t := range f.types {
		names[i] = t.Slug
	}
	slices.Sort(names)
	return fmt.Sprintf("%s; %s is its floor, and the default of %s", s, f.slug, strings.Join(names, ", "))
}

// save makes the new floor the default of the types that follow.
func (f newFloor) save(ctx context.Context, q *entitlementsdb.Queries) error {
	for _, t := range f.types {
		err := q.SaveTypeDefault(ctx, entitlementsdb.SaveTypeDefaultParams{ID: t.ID, DefaultProductID: &f.new, Incumbents: IncumbentsMigrate})
		if err != nil {
			return fmt.Errorf("saving the default of %s: %w", t.Slug, err)
		}
	}
	return nil
}
