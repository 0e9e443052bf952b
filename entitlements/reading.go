package entitlements

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// Entitlement is what a pool may use of one resource key at an instant, and why. Times are UTC.
type Entitlement struct {
	PoolID uuid.UUID `json:"pool_id"`
	Key    string    `json:"key"`
	// Value is nothing where the pool has nothing of the key.
	Value Value     `json:"value"`
	At    time.Time `json:"at"`
	// Until is when the first of the reasons ends that have an end, nil where none has.
	Until *time.Time `json:"until,omitempty"`
	// Reasons are the conferring positions that give the key, the highest tier first.
	Reasons []Reason `json:"reasons,omitempty"`
	// Act and Workflow are set where the pool has changed since the instant: what made the value so. There are no reasons then.
	Act      string `json:"act,omitempty"`
	Workflow string `json:"workflow,omitempty"`
}

// Entitled answers what the default pool of an organisation may use of a resource key at an instant, the zero time being
// now, and why. What is held counts by its bounds: from its last instant a position confers nothing, and what is next on its
// ladder does, whether or not anything has settled the pool since. An organisation or key that does not exist wraps ErrNotFound.
func Entitled(ctx context.Context, q lockorder.Querier, organization uuid.UUID, key string, at time.Time) (Entitlement, error) {
	e, err := entitled(ctx, q, entitlementsdb.EntitledToParams{OrganizationID: &organization, ResourceKey: key, At: instant(at)})
	if err == nil && e.PoolID == uuid.Nil {
		err = &notFoundError{what: "organisation", asked: organization.String()}
	}
	return e, err
}

// EntitledPool is Entitled for any pool.
func EntitledPool(ctx context.Context, q lockorder.Querier, pool uuid.UUID, key string, at time.Time) (Entitlement, error) {
	e, err := entitled(ctx, q, entitlementsdb.EntitledToParams{PoolID: &pool, ResourceKey: key, At: instant(at)})
	if err == nil && e.PoolID == uuid.Nil {
		err = &notFoundError{what: "pool", asked: pool.String()}
	}
	return e, err
}

func instant(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// entitled leaves PoolID zero where there is no such pool.
func entitled(ctx context.Context, q lockorder.Querier, asked entitlementsdb.EntitledToParams) (Entitlement, error) {
	db := entitlementsdb.New(q)
	rows, err := db.EntitledTo(ctx, asked)
	if err != nil {
		return Entitlement{}, fmt.Errorf("reading resource key %s: %w", asked.ResourceKey, err)
	}
	if len(rows) == 0 {
		return Entitlement{}, nil
	}
	first := rows[0]
	e := Entitlement{PoolID: first.PoolID, Key: asked.ResourceKey, At: first.At.UTC()}
	switch {
	case first.Kind == "":
		return Entitlement{}, missingKey(ctx, q, asked.ResourceKey, "")
	case first.Past:
		err := e.fromLedger(ctx, db)
		return e, err
	}
	for _, r := range rows {
		if r.Product != nil {
			e.add(r)
		}
	}
	return e, nil
}

func (e *Entitlement) add(r entitlementsdb.EntitledToRow) {
	given := Number(r.NumericValue)
	if r.Kind == Boolean {
		given = Yes(r.BooleanValue)
	}
	reason := Reason{Contributes: given, Position: Position{
		Product: *r.Product, ProductName: deref(r.ProductName), Ladder: deref(r.Ladder), Source: r.Source,
		SubscriptionID: deref(r.SubscriptionID), ItemID: deref(r.ItemID), Grant: grantSource(r.GrantID, r.Line, r.GrantState, r.Note, r.Origin),
		Quantity: r.Quantity, Status: statusActive, Since: r.StartsAt.UTC(), Until: utc(r.EndsAt),
	}}
	if r.PositionID != nil {
		reason.ID = *r.PositionID
	}
	if r.Rank != nil {
		reason.Rank = int(*r.Rank)
	}
	if e.Value.IsNothing() {
		e.Value = given
	} else {
		e.Value = combine(e.Value, given, r.Aggregation == "sum")
	}
	if reason.Until != nil && (e.Until == nil || reason.Until.Before(*e.Until)) {
		e.Until = reason.Until
	}
	e.Reasons = append(e.Reasons, reason)
}

// fromLedger tells the value from what was written last before the instant.
func (e *Entitlement) fromLedger(ctx context.Context, db *entitlementsdb.Queries) error {
	lines, err := db.LedgerLineAt(ctx, entitlementsdb.LedgerLineAtParams{PoolID: e.PoolID, ResourceKey: e.Key, At: e.At})
	if err != nil {
		return fmt.Errorf("reading the ledger of pool %s: %w", e.PoolID, err)
	}
	if len(lines) == 0 {
		return nil // it had never had any of it
	}
	e.Act, e.Workflow = lines[0].Act, lines[0].Workflow
	if lines[0].ToValue == nil {
		return nil
	}
	if err := e.Value.UnmarshalJSON(lines[0].ToValue); err != nil {
		return fmt.Errorf("reading the ledger of pool %s: %w", e.PoolID, err)
	}
	return nil
}
