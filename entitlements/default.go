package entitlements

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// What becomes of those who hold a default that is no longer their type's.
const (
	IncumbentsMigrate     = "migrate"     // they hold the new default instead
	IncumbentsGrandfather = "grandfather" // they keep the old one, as a grant without an end
)

// SaveDefault is a new default of an organisation type.
type SaveDefault struct {
	Change uuid.UUID `json:"change"`
	Type   string    `json:"type"`
	// Product is the new default, "" for none.
	Product string `json:"product"`
	// Incumbents is one of the Incumbents… words.
	Incumbents string `json:"incumbents"`
}

// Check says what is wrong with the request by itself.
func (s SaveDefault) Check() error {
	switch s.Incumbents {
	case IncumbentsMigrate, IncumbentsGrandfather:
		return nil
	}
	return fmt.Errorf("%w: what becomes of those who hold the old default is %q; say %s or %s", ErrInvalid, s.Incumbents, IncumbentsMigrate, IncumbentsGrandfather)
}

// Buckets are what a new default finds, in default pools of its type's organisations.
type Buckets struct {
	// Vacant get the new default at once, Incumbents hold another one and are migrated or grandfathered, Untouched hold
	// something on the new default's ladder, or it already.
	Vacant     int `json:"vacant"`
	Incumbents int `json:"incumbents"`
	Untouched  int `json:"untouched"`
}

// Preview returns what saving would find, or refuses what Do would. It writes nothing and takes no lock, so what it finds may
// change meanwhile. Errors are those of Do.
func (s SaveDefault) Preview(ctx context.Context, q lockorder.Querier) (Buckets, error) {
	if err := s.Check(); err != nil {
		return Buckets{}, err
	}
	kind, product, err := s.plan(ctx, q)
	if err != nil {
		return Buckets{}, err
	}
	b, err := entitlementsdb.New(q).CountBuckets(ctx, entitlementsdb.CountBucketsParams{TypeID: kind.ID, ProductID: product})
	if err != nil {
		return Buckets{}, fmt.Errorf("counting what the default of %s finds: %w", kind.Slug, err)
	}
	return Buckets{Vacant: int(b.Vacant), Incumbents: int(b.Incumbents), Untouched: int(b.Untouched)}, nil
}

// Do saves the default, and leaves the default pool of every organisation of the type to be settled. The transaction is Plain and
// holds nothing yet; it takes the type's row, so that an organisation that is being made has the new default or is among those left
// to be settled. Errors wrap ErrNotFound, ErrInvalid, or ErrInProgress while an earlier default has not reached everyone.
func (s SaveDefault) Do(ctx context.Context, tx *lockorder.Tx, act Act) (Outcome, error) {
	if err := s.Check(); err != nil {
		return Outcome{}, err
	}
	if err := act.check(); err != nil {
		return Outcome{}, err
	}
	kind, _, err := s.find(ctx, tx)
	if err != nil {
		return Outcome{}, err
	}
	if err := tx.Lock(ctx, lockorder.OrganizationTypeRow(kind.ID)); err != nil {
		return Outcome{}, err
	}
	if done, yes, err := Committed(ctx, tx, s.Change); err != nil || yes {
		return done, err
	}
	kind, product, err := s.plan(ctx, tx)
	if err != nil {
		return Outcome{}, err
	}
	q := entitlementsdb.New(tx)
	owed, err := q.CountDefaultPools(ctx, kind.ID)
	if err != nil {
		return Outcome{}, fmt.Errorf("counting the organisations of type %s: %w", kind.Slug, err)
	}
	summary := fmt.Sprintf("the default of %s is %s instead of %s; who holds that is %s", kind.Slug, orNothing(s.Product), orNothing(kind.DefaultProduct), past(s.Incumbents))
	if err := recordChange(ctx, tx, act, ChangeRecord{ID: s.Change, Kind: ChangeDefault, Summary: summary, Type: kind.ID}, int(owed)); err != nil {
		return Outcome{}, err
	}
	if err := q.SaveTypeDefault(ctx, entitlementsdb.SaveTypeDefaultParams{ID: kind.ID, DefaultProductID: product, Incumbents: s.Incumbents}); err != nil {
		return Outcome{}, fmt.Errorf("saving the default of %s: %w", kind.Slug, err)
	}
	n, err := q.OweDefaultPools(ctx, entitlementsdb.OweDefaultPoolsParams{TypeID: kind.ID, ChangeID: s.Change})
	if err != nil || n != owed {
		return Outcome{}, fmt.Errorf("owing %d of %d pools: %w", n, owed, err)
	}
	return Outcome{Change: s.Change, Summary: summary, Pools: int(owed), Owed: int(owed)}, nil
}

// plan is find for a default that can be saved.
func (s SaveDefault) plan(ctx context.Context, q lockorder.Querier) (entitlementsdb.FindTypeDefaultRow, *uuid.UUID, error) {
	kind, product, err := s.find(ctx, q)
	if err != nil {
		return kind, nil, err
	}
	if err := noDefaultInProgress(ctx, q, kind.ID, kind.Slug); err != nil {
		return kind, nil, err
	}
	if sameProduct(product, kind.DefaultProductID) {
		return kind, nil, fmt.Errorf("%w: the default of %s is %s already", ErrInvalid, kind.Slug, orNothing(kind.DefaultProduct))
	}
	return kind, product, nil
}

// find resolves the names. The product is nil for none.
func (s SaveDefault) find(ctx context.Context, q lockorder.Querier) (entitlementsdb.FindTypeDefaultRow, *uuid.UUID, error) {
	kind, err := entitlementsdb.New(q).FindTypeDefault(ctx, s.Type)
	switch {
	case isNoRows(err):
		return kind, nil, missingType(ctx, q, s.Type)
	case err != nil:
		return kind, nil, fmt.Errorf("reading organisation type %q: %w", s.Type, err)
	}
	if s.Product == "" {
		return kind, nil, nil
	}
	product, err := findProduct(ctx, q, s.Product)
	switch {
	case err != nil:
		return kind, nil, err
	case product.Succeeded:
		return kind, nil, fmt.Errorf("%w: the tier of %s was removed, and %s stands in its place; it can be no default", ErrInvalid, product.Slug, orNothing(product.Successor))
	}
	return kind, &product.ID, nil
}

// noDefaultInProgress refuses to change a default while an earlier change of it has not reached everyone: whom it has not reached
// yet would be treated as the later one says.
func noDefaultInProgress(ctx context.Context, q lockorder.Querier, kind uuid.UUID, slug string) error {
	open, err := entitlementsdb.New(q).FindOpenDefaultChange(ctx, kind)
	switch {
	case isNoRows(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading the changes of type %s: %w", slug, err)
	}
	hint := "try again when it is through: bursar rule status " + open.ID.String()
	if open.Parked > 0 {
		hint = counted(int(open.Parked), "of them is", "of them are") + " parked: bursar parked shows why"
	}
	return fmt.Errorf("%w: change %s has yet to reach %s of type %s; %s",
		ErrInProgress, open.ID, counted(int(open.Open+open.Parked), "organisation", "organisations"), slug, hint)
}

func sameProduct(a, b *uuid.UUID) bool { return a == b || a != nil && b != nil && *a == *b }

func orNothing(name string) string {
	if name == "" {
		return "nothing"
	}
	return name
}

func past(incumbents string) string {
	if incumbents == IncumbentsGrandfather {
		return "grandfathered"
	}
	return "migrated"
}
