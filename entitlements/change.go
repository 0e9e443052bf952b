package entitlements

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// Kinds of changes, as core.changes keeps them.
const (
	ChangeRules       = "rules"
	ChangeTierAdd     = "tier-add"
	ChangeTierRemove  = "tier-remove"
	ChangeTierReorder = "tier-reorder"
	ChangeDefault     = "default"
	ChangeCatalog     = "catalog"
)

// ChangeRecord is a change of what products give, as it is recorded.
type ChangeRecord struct {
	// ID is given by who asks for the change, so that asking again makes no second one.
	ID uuid.UUID
	// Kind is one of the Change… constants.
	Kind string
	// Summary is one line for a person.
	Summary string
	// Type is the organisation type of a default change, uuid.Nil otherwise.
	Type uuid.UUID
}

// Outcome is what a change did.
type Outcome struct {
	Change uuid.UUID `json:"change"`
	// Summary is the change in one line.
	Summary string `json:"summary"`
	// Repeated is true where the change had been committed before: nothing was done now, and the counts below but Owed are 0.
	Repeated bool `json:"repeated,omitempty"`
	// Pools is how many pools the change reaches, Owed how many of them are left to be settled afterwards.
	Pools int `json:"pools"`
	Owed  int `json:"owed"`
	// Entitlements is how many entitlements changed at once, Effects which, by organisation and pool.
	Entitlements int      `json:"entitlements"`
	Effects      []Effect `json:"effects,omitempty"`
}

// Sentence tells a person what the change did.
func (o Outcome) Sentence() string {
	s := o.Summary
	switch {
	case o.Repeated:
		return s + "; it was committed before"
	case o.Owed > 0:
		return fmt.Sprintf("%s; committed, and %d pools are still to be settled", s, o.Owed)
	case o.Pools == 0:
		return s + "; no pool holds anything that it reaches"
	}
	return fmt.Sprintf("%s; settled %d pools, %d entitlements changed", s, o.Pools, o.Entitlements)
}

// Committed returns what a committed change did as far as it is kept, and whether there is such a change.
func Committed(ctx context.Context, q lockorder.Querier, change uuid.UUID) (Outcome, bool, error) {
	row, err := entitlementsdb.New(q).GetChange(ctx, change)
	switch {
	case isNoRows(err):
		return Outcome{}, false, nil
	case err != nil:
		return Outcome{}, false, fmt.Errorf("reading change %s: %w", change, err)
	}
	return Outcome{Change: row.ID, Summary: row.Summary, Repeated: true, Pools: int(row.Owed), Owed: int(row.Owed)}, true, nil
}

// recordChange writes that a change is committed, with how many pools it owes. The transaction holds every lock it needs.
func recordChange(ctx context.Context, tx *lockorder.Tx, act Act, c ChangeRecord, at time.Time, owed int) error {
	var kind *uuid.UUID
	if c.Type != uuid.Nil {
		kind = &c.Type
	}
	err := entitlementsdb.New(tx).InsertChange(ctx, entitlementsdb.InsertChangeParams{
		ID: c.ID, Kind: c.Kind, Summary: c.Summary, TypeID: kind, Act: act.Name, Workflow: act.Workflow, CommittedAt: at, Owed: int32(owed),
	})
	if err != nil {
		return fmt.Errorf("recording change %s: %w", c.ID, err)
	}
	return nil
}

// reach says which pools a change reaches.
type reach struct {
	// count, list and owe count them, list them ascending, and write an obligation for each.
	count func(ctx context.Context, q *entitlementsdb.Queries) (int64, error)
	list  func(ctx context.Context, q *entitlementsdb.Queries) ([]uuid.UUID, error)
	owe   func(ctx context.Context, q *entitlementsdb.Queries, change uuid.UUID) (int64, error)
}

// holdersOf reaches the pools that hold one of the products.
func holdersOf(products ...uuid.UUID) reach {
	return reach{
		count: func(ctx context.Context, q *entitlementsdb.Queries) (int64, error) {
			return q.CountHoldingPools(ctx, products)
		},
		list: func(ctx context.Context, q *entitlementsdb.Queries) ([]uuid.UUID, error) {
			return q.ListCarryingPools(ctx, products)
		},
		owe: func(ctx context.Context, q *entitlementsdb.Queries, change uuid.UUID) (int64, error) {
			return q.OweHolders(ctx, entitlementsdb.OweHoldersParams{ChangeID: change, ProductIds: products})
		},
	}
}

// exactly reaches the pools given, ascending.
func exactly(pools []uuid.UUID) reach {
	return reach{
		count: func(context.Context, *entitlementsdb.Queries) (int64, error) { return int64(len(pools)), nil },
		list:  func(context.Context, *entitlementsdb.Queries) ([]uuid.UUID, error) { return pools, nil },
		owe: func(ctx context.Context, q *entitlementsdb.Queries, change uuid.UUID) (int64, error) {
			return q.OwePools(ctx, entitlementsdb.OwePoolsParams{Pools: pools, ChangeID: change})
		},
	}
}

// commitChange makes a change under the exclusive rendezvous. Up to SyncCap pools are locked before write runs and settled
// after it; more are owed, and settled by a drain.
func commitChange(ctx context.Context, tx *lockorder.Tx, act Act, c ChangeRecord, r reach, write func(ctx context.Context, q *entitlementsdb.Queries) error) (Outcome, error) {
	if err := tx.RequireKind(lockorder.RuleChange); err != nil {
		return Outcome{}, err
	}
	q := entitlementsdb.New(tx)
	count, err := r.count(ctx, q)
	if err != nil {
		return Outcome{}, fmt.Errorf("counting the pools that the change reaches: %w", err)
	}
	out := Outcome{Change: c.ID, Summary: c.Summary, Pools: int(count)}
	var pools []uuid.UUID
	var before []PoolState
	if count <= SyncCap {
		if pools, err = r.list(ctx, q); err != nil {
			return Outcome{}, fmt.Errorf("reading the pools that the change reaches: %w", err)
		}
		if err := LockPools(ctx, tx, pools...); err != nil {
			return Outcome{}, err
		}
		if before, err = PoolStates(ctx, tx, pools); err != nil {
			return Outcome{}, err
		}
	} else {
		out.Owed = int(count)
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return Outcome{}, err
	}
	if err := recordChange(ctx, tx, act, c, now, out.Owed); err != nil {
		return Outcome{}, err
	}
	if out.Owed > 0 {
		// Before the write: it may change who holds what.
		if n, err := r.owe(ctx, q, c.ID); err != nil || n != count {
			return Outcome{}, fmt.Errorf("owing %d of %d pools: %w", n, count, err)
		}
	}
	if err := write(ctx, q); err != nil {
		return Outcome{}, err
	}
	if out.Owed > 0 {
		return out, nil
	}
	if out.Entitlements, err = Settle(ctx, tx, act, pools...); err != nil {
		return Outcome{}, err
	}
	after, err := PoolStates(ctx, tx, pools)
	if err != nil {
		return Outcome{}, err
	}
	out.Effects = Effects(before, after)
	return out, nil
}
