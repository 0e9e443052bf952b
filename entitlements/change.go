package entitlements

import (
	"context"
	"fmt"

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
		return fmt.Sprintf("%s; committed, and %s still to be settled", s, counted(o.Owed, "pool is", "pools are"))
	case o.Pools == 0:
		return s + "; no pool holds anything that it reaches"
	}
	return fmt.Sprintf("%s; settled %s, %s changed", s, counted(o.Pools, "pool", "pools"), counted(o.Entitlements, "entitlement", "entitlements"))
}

// counted returns "1 pool", "2 pools".
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
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

// recordChange writes that a change is committed, with how many pools it owes. Its time is the clock's, not the transaction's, which
// is fixed only when all locks are held.
func recordChange(ctx context.Context, tx *lockorder.Tx, act Act, c ChangeRecord, owed int) error {
	var kind *uuid.UUID
	if c.Type != uuid.Nil {
		kind = &c.Type
	}
	err := entitlementsdb.New(tx).InsertChange(ctx, entitlementsdb.InsertChangeParams{
		ID: c.ID, Kind: c.Kind, Summary: c.Summary, TypeID: kind, Act: act.Name, Workflow: act.Workflow, Owed: int32(owed),
	})
	if err != nil {
		return fmt.Errorf("recording change %s: %w", c.ID, err)
	}
	return nil
}

// Reach says which pools a change reaches: those that hold one of the products, the default pools of the types, and the pools
// named. Each counts once. The zero Reach is none.
type Reach struct {
	Products, Types, Pools []uuid.UUID
}

// holdersOf reaches the pools that hold one of the products.
func holdersOf(products ...uuid.UUID) Reach { return Reach{Products: products} }

// exactly reaches the pools given.
func exactly(pools []uuid.UUID) Reach { return Reach{Pools: pools} }

// Size returns how many pools there are.
func (r Reach) Size(ctx context.Context, q lockorder.Querier) (int, error) {
	n, err := entitlementsdb.New(q).CountReached(ctx, entitlementsdb.CountReachedParams{ProductIds: r.Products, TypeIds: r.Types, Pools: r.Pools})
	if err != nil {
		return 0, fmt.Errorf("counting the pools that the change reaches: %w", err)
	}
	return int(n), nil
}

// list returns the pools, ascending.
func (r Reach) list(ctx context.Context, q lockorder.Querier) ([]uuid.UUID, error) {
	pools, err := entitlementsdb.New(q).ListReached(ctx, entitlementsdb.ListReachedParams{ProductIds: r.Products, TypeIds: r.Types, Pools: r.Pools})
	if err != nil {
		return nil, fmt.Errorf("reading the pools that the change reaches: %w", err)
	}
	return pools, nil
}

// owe leaves every pool to be settled for the change's sake.
func (r Reach) owe(ctx context.Context, q lockorder.Querier, change uuid.UUID, expected int) error {
	n, err := entitlementsdb.New(q).OweReached(ctx, entitlementsdb.OweReachedParams{ChangeID: change, ProductIds: r.Products, TypeIds: r.Types, Pools: r.Pools})
	switch {
	case err != nil:
		return fmt.Errorf("owing %d pools: %w", expected, err)
	case int(n) != expected:
		return fmt.Errorf("owing %d pools: %d were found", expected, n)
	}
	return nil
}

// CommitChange makes a change under the exclusive rendezvous, and records it. Up to SyncCap pools are locked before write runs and
// settled after it, with whatever earlier changes left them owed; more are owed, and settled by a drain. write may lock
// what ranks above the obligations, and writes what the pools are settled by.
func CommitChange(ctx context.Context, tx *lockorder.Tx, act Act, c ChangeRecord, r Reach, write func(context.Context) error) (Outcome, error) {
	if err := act.check(); err != nil {
		return Outcome{}, err
	}
	if err := tx.RequireKind(lockorder.RuleChange); err != nil {
		return Outcome{}, err
	}
	size, err := r.Size(ctx, tx)
	if err != nil {
		return Outcome{}, err
	}
	out := Outcome{Change: c.ID, Summary: c.Summary, Pools: size}
	if size > SyncCap {
		out.Owed = size
		return out, commitOwing(ctx, tx, act, c, r, size, write)
	}
	pools, err := r.list(ctx, tx)
	if err != nil {
		return Outcome{}, err
	}
	// What is owed is settled by this change, after it: a change that mends what cannot be settled has to get through.
	owed, err := lockOwing(ctx, tx, pools)
	if err != nil {
		return Outcome{}, err
	}
	before, err := PoolStates(ctx, tx, pools)
	if err != nil {
		return Outcome{}, err
	}
	// Before the write, which may refer to it.
	if err := recordChange(ctx, tx, act, c, 0); err != nil {
		return Outcome{}, err
	}
	if err := write(ctx); err != nil {
		return Outcome{}, err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return Outcome{}, err
	}
	if out.Entitlements, err = Settle(ctx, tx, act, pools...); err != nil {
		if !passing(err) {
			return Outcome{}, fmt.Errorf("%w: not every pool that holds what changes can be settled by it: %w", ErrInvalid, err)
		}
		return Outcome{}, err
	}
	if len(owed) > 0 {
		err := entitlementsdb.New(tx).SettleObligations(ctx, entitlementsdb.SettleObligationsParams{Pools: pools, At: now, Act: act.Name})
		if err != nil {
			return Outcome{}, fmt.Errorf("noting that nothing is owed to %d pools any more: %w", len(pools), err)
		}
	}
	after, err := PoolStates(ctx, tx, pools)
	if err != nil {
		return Outcome{}, err
	}
	out.Effects = Effects(before, after)
	return out, nil
}

// commitOwing makes a change and leaves the pools that it reaches to be settled.
func commitOwing(ctx context.Context, tx *lockorder.Tx, act Act, c ChangeRecord, r Reach, size int, write func(context.Context) error) error {
	// Who holds what is read before the write, which may change it.
	if err := recordChange(ctx, tx, act, c, size); err != nil {
		return err
	}
	if err := r.owe(ctx, tx, c.ID, size); err != nil {
		return err
	}
	return write(ctx)
}
