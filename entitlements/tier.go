package entitlements

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// ErrInProgress is wrapped when a change waits for an earlier one to have reached every pool.
var ErrInProgress = errors.New("change in progress")

// What becomes of those who hold a product whose tier is removed.
const (
	DispositionMigrate = "migrate" // they hold another tier in its place
	DispositionEnd     = "end"     // they hold nothing in its place; the floor returns where its ladder is vacant
)

// AddTier is a product to be put on a ladder.
type AddTier struct {
	Change  uuid.UUID `json:"change"`
	Product string    `json:"product"`
	Ladder  string    `json:"ladder"`
	// Rank is its place, 0 for the floor; those at and above it move up by one. Nil is the top.
	Rank *int `json:"rank,omitempty"`
}

// Do puts the product on the ladder, and has every pool that holds it settled. As the new floor it becomes the default of the types
// whose default the old floor is, and their organisations' default pools are settled too. The transaction is a RuleChange that
// holds nothing else yet. Errors wrap ErrNotFound, ErrInvalid or ErrInProgress.
func (a AddTier) Do(ctx context.Context, tx *lockorder.Tx, act Act) (Outcome, error) {
	if done, yes, err := Committed(ctx, tx, a.Change); err != nil || yes {
		return done, err
	}
	if err := lockTypes(ctx, tx); err != nil {
		return Outcome{}, err
	}
	plan, err := a.plan(ctx, tx)
	if err != nil {
		return Outcome{}, err
	}
	product, ladder, rank, floor := plan.product, plan.ladder, plan.rank, plan.floor
	summary := floor.summary(fmt.Sprintf("%s becomes tier %d of %s", product.Slug, rank, ladder.Slug))
	change := ChangeRecord{ID: a.Change, Kind: ChangeTierAdd, Summary: summary}
	if err := noSuccessionOwed(ctx, tx, product.ID); err != nil {
		return Outcome{}, err
	}
	return CommitChange(ctx, tx, act, change, floor.reach(holdersOf(product.ID)), func(ctx context.Context) error {
		q := entitlementsdb.New(tx)
		err := errors.Join(
			q.ShiftTiers(ctx, entitlementsdb.ShiftTiersParams{LadderID: ladder.ID, FromRank: int32(rank), By: 1}),
			q.InsertTier(ctx, entitlementsdb.InsertTierParams{ProductID: product.ID, LadderID: ladder.ID, Rank: int32(rank)}),
			q.DeleteSuccession(ctx, product.ID),
			floor.save(ctx, q))
		if err != nil {
			return fmt.Errorf("adding tier %s to %s: %w", product.Slug, ladder.Slug, err)
		}
		return nil
	})
}

// addition is a tier that can be added.
type addition struct {
	product entitlementsdb.FindTierRow
	ladder  entitlementsdb.CoreLadder
	rank    int
	floor   newFloor
}

// Validate says what Do would refuse as things stand. It takes no lock, so this may change meanwhile. Errors are those of Do.
func (a AddTier) Validate(ctx context.Context, q lockorder.Querier) error {
	_, err := a.plan(ctx, q)
	return err
}

func (a AddTier) plan(ctx context.Context, q lockorder.Querier) (addition, error) {
	product, err := findProduct(ctx, q, a.Product)
	if err != nil {
		return addition{}, err
	}
	ladder, tiers, err := findLadder(ctx, q, a.Ladder)
	if err != nil {
		return addition{}, err
	}
	rank := len(tiers)
	switch {
	case product.LadderID != nil && *product.LadderID == ladder.ID:
		return addition{}, fmt.Errorf("%w: %s is tier %d of %s already; bursar tier reorder moves it", ErrInvalid, product.Slug, *product.Rank, ladder.Slug)
	case product.LadderID != nil:
		return addition{}, fmt.Errorf("%w: %s is a tier of %s, and a product sits on one ladder at most; remove it there first: bursar tier remove %s", ErrInvalid, product.Slug, product.Ladder, product.Slug)
	case a.Rank != nil && (*a.Rank < 0 || *a.Rank > len(tiers)):
		return addition{}, fmt.Errorf("%w: rank %d is not on %s, whose tiers are %s; give 0 to %d", ErrInvalid, *a.Rank, ladder.Slug, tierNames(tiers), len(tiers))
	case a.Rank != nil:
		rank = *a.Rank
	}
	var floor newFloor
	if rank == 0 {
		if floor, err = followFloor(ctx, q, tiers, product.ID, product.Slug); err != nil {
			return addition{}, err
		}
	}
	return addition{product, ladder, rank, floor}, nil
}

// RemoveTier is a product to be taken off its ladder.
type RemoveTier struct {
	Change  uuid.UUID `json:"change"`
	Product string    `json:"product"`
	// Disposition is one of the Disposition… words; empty refuses a product that is held.
	Disposition string `json:"disposition,omitempty"`
	// To is the tier that holders take with DispositionMigrate; empty is the floor of the ladder.
	To string `json:"to,omitempty"`
}

// Check says what is wrong with the request by itself.
func (r RemoveTier) Check() error {
	switch r.Disposition {
	case "", DispositionEnd:
		if r.To != "" {
			return fmt.Errorf("%w: a tier to migrate to is named, and holders are not to be migrated", ErrInvalid)
		}
	case DispositionMigrate:
	default:
		return fmt.Errorf("%w: disposition %q is neither %s nor %s", ErrInvalid, r.Disposition, DispositionMigrate, DispositionEnd)
	}
	if r.To != "" && r.To == r.Product {
		return fmt.Errorf("%w: holders of %s cannot be migrated to itself", ErrInvalid, r.Product)
	}
	return nil
}

// Do takes the product off its ladder and has every pool that holds it settled: its position ends, and another stands in its
// place where holders are migrated. From then on whatever would confer the product confers what stands in its place. The
// transaction is a RuleChange that holds nothing else yet. Errors wrap ErrNotFound or ErrInvalid.
func (r RemoveTier) Do(ctx context.Context, tx *lockorder.Tx, act Act) (Outcome, error) {
	if err := r.Check(); err != nil {
		return Outcome{}, err
	}
	if done, yes, err := Committed(ctx, tx, r.Change); err != nil || yes {
		return done, err
	}
	if err := lockTypes(ctx, tx); err != nil {
		return Outcome{}, err
	}
	plan, err := r.plan(ctx, tx)
	if err != nil {
		return Outcome{}, err
	}
	change := ChangeRecord{ID: r.Change, Kind: ChangeTierRemove, Summary: plan.summary}
	return CommitChange(ctx, tx, act, change, holdersOf(plan.product.ID), func(ctx context.Context) error {
		q := entitlementsdb.New(tx)
		err := errors.Join(
			q.DeleteTier(ctx, plan.product.ID),
			q.ShiftTiers(ctx, entitlementsdb.ShiftTiersParams{LadderID: plan.ladder, FromRank: *plan.product.Rank + 1, By: -1}))
		if err == nil && plan.succeeds {
			err = errors.Join(
				q.RewriteSuccessions(ctx, entitlementsdb.RewriteSuccessionsParams{ProductID: plan.product.ID, SuccessorID: plan.successor}),
				q.InsertSuccession(ctx, entitlementsdb.InsertSuccessionParams{ProductID: plan.product.ID, SuccessorID: plan.successor, ChangeID: r.Change}))
		}
		if err != nil {
			return fmt.Errorf("removing tier %s: %w", plan.product.Slug, err)
		}
		return nil
	})
}

// lockTypes locks the row of every organisation type. A default is saved without the rendezvous, under its type's row: while all
// of these are held, none is saved.
func lockTypes(ctx context.Context, tx *lockorder.Tx) error {
	types, err := entitlementsdb.New(tx).ListTypeRows(ctx)
	if err != nil {
		return fmt.Errorf("reading the organisation types: %w", err)
	}
	rows := make([]lockorder.Lock, len(types))
	for i, t := range types {
		rows[i] = lockorder.OrganizationTypeRow(t.ID)
	}
	return tx.Lock(ctx, rows...)
}

// removal is a removal that can be done.
type removal struct {
	product   entitlementsdb.FindTierRow
	ladder    uuid.UUID
	succeeds  bool
	successor *uuid.UUID
	summary   string
}

// Validate says what Do would refuse as things stand. It takes no lock, so this may change meanwhile. Errors are those of Do.
func (r RemoveTier) Validate(ctx context.Context, q lockorder.Querier) error {
	if err := r.Check(); err != nil {
		return err
	}
	_, err := r.plan(ctx, q)
	return err
}

func (r RemoveTier) plan(ctx context.Context, q lockorder.Querier) (removal, error) {
	product, err := findProduct(ctx, q, r.Product)
	if err != nil {
		return removal{}, err
	}
	if product.LadderID == nil {
		return removal{}, fmt.Errorf("%w: %s is no tier of a ladder", ErrInvalid, product.Slug)
	}
	_, tiers, err := findLadder(ctx, q, product.Ladder)
	if err != nil {
		return removal{}, err
	}
	at := slices.IndexFunc(tiers, func(t entitlementsdb.ListTiersOfRow) bool { return t.ID == product.ID })
	tier := tiers[at]
	if tier.DefaultOf != "" {
		return removal{}, fmt.Errorf("%w: %s is the default of %s; change that first: bursar default change", ErrInvalid, product.Slug, tier.DefaultOf)
	}
	plan := removal{product: product, ladder: *product.LadderID, summary: fmt.Sprintf("%s is no tier of %s any more", product.Slug, product.Ladder)}
	if r.Disposition == "" {
		if tier.Holders > 0 {
			return removal{}, fmt.Errorf("%w: %s %s; say what becomes of them: bursar tier remove %s --migrate or --end",
				ErrInvalid, counted(int(tier.Holders), "pool holds", "pools hold"), product.Slug, product.Slug)
		}
		return plan, nil
	}
	plan.succeeds = true
	if r.Disposition == DispositionEnd {
		plan.summary += "; who held it holds nothing in its place"
		return plan, nil
	}
	rest := slices.Delete(slices.Clone(tiers), at, at+1)
	to := slices.IndexFunc(rest, func(t entitlementsdb.ListTiersOfRow) bool { return r.To == "" || t.Slug == r.To })
	switch {
	case len(rest) == 0:
		return removal{}, fmt.Errorf("%w: %s is the only tier of %s, so nobody can be migrated; end it instead: --end", ErrInvalid, product.Slug, product.Ladder)
	case to < 0:
		return removal{}, fmt.Errorf("%w: %s is no tier of %s; holders can be migrated to %s", ErrInvalid, r.To, product.Ladder, tierNames(rest))
	}
	plan.successor = &rest[to].ID
	plan.summary += "; who held it holds " + rest[to].Slug
	return plan, nil
}

// ReorderTiers is a new order of a ladder's tiers.
type ReorderTiers struct {
	Change uuid.UUID `json:"change"`
	Ladder string    `json:"ladder"`
	// Products are all its tiers, the floor first.
	Products []string `json:"products"`
}

// Do puts the tiers into the order, and has every pool settled that holds more than one of them. A new floor becomes the default
// of the types whose default the old one is, and their organisations' default pools are settled too. The transaction is a
// RuleChange that holds nothing else yet. Errors wrap ErrNotFound, ErrInvalid or ErrInProgress.
func (r ReorderTiers) Do(ctx context.Context, tx *lockorder.Tx, act Act) (Outcome, error) {
	if done, yes, err := Committed(ctx, tx, r.Change); err != nil || yes {
		return done, err
	}
	if err := lockTypes(ctx, tx); err != nil {
		return Outcome{}, err
	}
	plan, err := r.plan(ctx, tx)
	if err != nil {
		return Outcome{}, err
	}
	ladder, floor := plan.ladder, plan.floor
	contested, err := entitlementsdb.New(tx).ListContestedPools(ctx, ladder.ID)
	if err != nil {
		return Outcome{}, fmt.Errorf("reading the pools in which the order of %s decides: %w", ladder.Slug, err)
	}
	summary := floor.summary(fmt.Sprintf("the tiers of %s are %s", ladder.Slug, strings.Join(r.Products, ", ")))
	change := ChangeRecord{ID: r.Change, Kind: ChangeTierReorder, Summary: summary}
	return CommitChange(ctx, tx, act, change, floor.reach(exactly(contested)), func(ctx context.Context) error {
		q := entitlementsdb.New(tx)
		if err := q.RankTiers(ctx, entitlementsdb.RankTiersParams{LadderID: ladder.ID, Products: plan.order}); err != nil {
			return fmt.Errorf("reordering %s: %w", ladder.Slug, err)
		}
		return floor.save(ctx, q)
	})
}

// reordering is an order that can be made.
type reordering struct {
	ladder entitlementsdb.CoreLadder
	order  []uuid.UUID
	floor  newFloor
}

// Validate says what Do would refuse as things stand. It takes no lock, so this may change meanwhile. Errors are those of Do.
func (r ReorderTiers) Validate(ctx context.Context, q lockorder.Querier) error {
	_, err := r.plan(ctx, q)
	return err
}

func (r ReorderTiers) plan(ctx context.Context, q lockorder.Querier) (reordering, error) {
	ladder, tiers, err := findLadder(ctx, q, r.Ladder)
	if err != nil {
		return reordering{}, err
	}
	ids := make(map[string]uuid.UUID, len(tiers))
	for _, t := range tiers {
		ids[t.Slug] = t.ID
	}
	var order []uuid.UUID
	for _, name := range r.Products {
		id, there := ids[name]
		if !there {
			return reordering{}, fmt.Errorf("%w: %s is no tier of %s, or is named twice; its tiers are %s", ErrInvalid, name, ladder.Slug, tierNames(tiers))
		}
		order = append(order, id)
		delete(ids, name)
	}
	if len(ids) > 0 {
		return reordering{}, fmt.Errorf("%w: the order names %d of the %d tiers of %s; name all of them: %s", ErrInvalid, len(order), len(tiers), ladder.Slug, tierNames(tiers))
	}
	if len(order) == 0 {
		return reordering{}, fmt.Errorf("%w: %s has no tiers yet; bursar tier add makes the first", ErrInvalid, ladder.Slug)
	}
	floor, err := followFloor(ctx, q, tiers, order[0], r.Products[0])
	if err != nil {
		return reordering{}, err
	}
	return reordering{ladder, order, floor}, nil
}

func tierNames(tiers []entitlementsdb.ListTiersOfRow) string {
	if len(tiers) == 0 {
		return "none"
	}
	names := make([]string, len(tiers))
	for i, t := range tiers {
		names[i] = t.Slug
	}
	return strings.Join(names, ", ")
}

// findProduct returns a product and its place. Where there is none the error wraps ErrNotFound and names those near.
func findProduct(ctx context.Context, q lockorder.Querier, slug string) (entitlementsdb.FindTierRow, error) {
	db := entitlementsdb.New(q)
	row, err := db.FindTier(ctx, slug)
	switch {
	case err == nil:
		return row, nil
	case !isNoRows(err):
		return row, fmt.Errorf("reading product %q: %w", slug, err)
	}
	products, err := db.ListProducts(ctx)
	if err != nil {
		return row, fmt.Errorf("reading the products: %w", err)
	}
	candidates := make([]candidate, len(products))
	for i, p := range products {
		candidates[i] = candidate{slug: p.Slug, name: p.Name}
	}
	missing := &notFoundError{what: "product", asked: slug, near: near(slug, candidates)}
	if len(missing.near) == 0 {
		missing.hint = "bursar product list shows them"
	}
	return row, missing
}

// findLadder returns a ladder and its tiers, the floor first.
func findLadder(ctx context.Context, q lockorder.Querier, slug string) (entitlementsdb.CoreLadder, []entitlementsdb.ListTiersOfRow, error) {
	db := entitlementsdb.New(q)
	ladder, err := db.FindLadder(ctx, slug)
	if isNoRows(err) {
		ladders, err := db.ListLadders(ctx)
		if err != nil {
			return ladder, nil, fmt.Errorf("reading the ladders: %w", err)
		}
		candidates := make([]candidate, len(ladders))
		for i, l := range ladders {
			candidates[i] = candidate{slug: l.Slug, name: l.Name}
		}
		return ladder, nil, &notFoundError{what: "ladder", asked: slug, near: near(slug, candidates), hint: "bursar ladder list shows them"}
	}
	if err != nil {
		return ladder, nil, fmt.Errorf("reading ladder %q: %w", slug, err)
	}
	tiers, err := db.ListTiersOf(ctx, ladder.ID)
	if err != nil {
		return ladder, nil, fmt.Errorf("reading the tiers of %s: %w", slug, err)
	}
	return ladder, tiers, nil
}

// noSuccessionOwed refuses to make products tiers again while their removal has yet to reach a pool: those that it has reached and
// those that it has not would end differently.
func noSuccessionOwed(ctx context.Context, q lockorder.Querier, products ...uuid.UUID) error {
	owed, err := entitlementsdb.New(q).IsSuccessionOwed(ctx, products)
	switch {
	case err != nil:
		return fmt.Errorf("reading whether removed tiers are owed to pools: %w", err)
	case owed:
		return fmt.Errorf("%w: the removal of the tier has not reached every pool yet; bursar rule status tells how far it is, and bursar parked what holds it up", ErrInProgress)
	}
	return nil
}
