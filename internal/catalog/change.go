package catalog

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/lockpath"
	"github.com/bursarhq/bursar/lockorder"
)

// act is what the ledger says of a catalogue change.
var act = entitlements.Act{Name: "catalog-apply"}

// Preview is what applying a file does.
type Preview struct {
	// Changes are the differences of the catalogue and of the mappings.
	Changes []entitlements.Change `json:"changes"`
	// Left is what the database has and the file does not name. It stays.
	Left []Left `json:"left"`
	// Pools is how many pools the change reaches; they are settled.
	Pools int `json:"pools"`
	// Moved is how many positions take another product because the mapping of their price changes.
	Moved int `json:"moved"`
	// Effects are the pools whose entitlements change, by organisation.
	Effects []Effect `json:"effects"`
}

// Left is an object that the file does not name.
type Left struct {
	Object string `json:"object"`
	Name   string `json:"name"`
}

// Effect is what changes in one pool.
type Effect struct {
	Organization string        `json:"organization"`
	Pool         string        `json:"pool"`
	Changes      []ValueChange `json:"changes"`
}

// ValueChange is one entitlement before and after.
type ValueChange struct {
	Key  string             `json:"key"`
	From entitlements.Value `json:"from"`
	To   entitlements.Value `json:"to"`
}

// Plan returns what applying the file would do: it is done, looked at, and rolled back. Errors are *Problems,
// *TooManyPools, or the database's.
func Plan(ctx context.Context, db *lockorder.DB, f *File) (Preview, error) {
	return change(ctx, db, f, func(Preview) error { return errShown })
}

// Apply applies the file if it does what was shown, and otherwise changes nothing and answers ErrDrift. Errors are
// those of Plan too. Applied again it does nothing.
func Apply(ctx context.Context, db *lockorder.DB, f *File, shown Preview) (Preview, error) {
	return change(ctx, db, f, func(now Preview) error {
		if !reflect.DeepEqual(now, shown) {
			return ErrDrift
		}
		return nil
	})
}

// change makes the change and lets decide see what it did before it is committed.
func change(ctx context.Context, db *lockorder.DB, f *File, decide func(Preview) error) (Preview, error) {
	// A first look without the exclusive rendezvous: a file that changes nothing, or is wrong, holds nobody up.
	c := &changer{file: f}
	if err := c.look(ctx, db.Reader(), entitlements.LoadCatalogue); err != nil {
		return Preview{}, err
	}
	if len(c.preview.Changes) == 0 {
		if err := decide(c.preview); !errors.Is(err, errShown) {
			return c.preview, err
		}
		return c.preview, nil
	}
	err := db.Run(ctx, lockpath.CatalogApply.Spec(), func(ctx context.Context, tx *lockorder.Tx) error {
		if err := c.make(ctx, tx); err != nil {
			return err
		}
		return decide(c.preview)
	})
	if errors.Is(err, errShown) {
		err = nil
	}
	return c.preview, err
}

// changer is one change under way.
type changer struct {
	file    *File
	from    state
	to      entitlements.Catalogue
	prices  map[string]string // Stripe price → slug, those that change
	objects map[string]string // Stripe product → slug, those that change
	preview Preview
}

// look reads the state, checks the file against it, and finds the differences.
func (c *changer) look(ctx context.Context, q lockorder.Querier, load func(context.Context, lockorder.Querier) (entitlements.Catalogue, error)) error {
	var err error
	if c.from.catalogue, err = load(ctx, q); err != nil {
		return err
	}
	if c.from.prices, c.from.products, err = billing.Mappings(ctx, q); err != nil {
		return err
	}
	from := c.from.catalogue
	c.to = c.file.overlay(from)
	var lost []string
	for _, l := range c.file.ladders {
		lost = append(lost, leaving(from, c.to, l.id.value)...)
	}
	holders := map[string]int{}
	if len(lost) > 0 {
		if holders, err = entitlements.Holders(ctx, q, from, lost); err != nil {
			return err
		}
	}
	if err := c.file.check(from, c.to, holders).err(c.file.Name); err != nil {
		return err
	}
	c.preview = Preview{Changes: entitlements.DiffCatalogues(from, c.to), Left: c.left(), Effects: []Effect{}}
	c.mappings()
	if c.preview.Changes == nil {
		c.preview.Changes = []entitlements.Change{}
	}
	return nil
}

// mappings finds the mappings that change.
func (c *changer) mappings() {
	slugs := map[uuid.UUID]string{}
	for slug, p := range c.from.catalogue.Products {
		slugs[p.ID] = slug
	}
	c.prices, c.objects = map[string]string{}, map[string]string{}
	for _, p := range c.file.products {
		for _, id := range p.prices {
			c.mapping("Stripe price", id.value, slugs[c.from.prices[id.value]], p.id.value, c.prices)
		}
		for _, id := range p.stripeProducts {
			c.mapping("Stripe product", id.value, slugs[c.from.products[id.value]], p.id.value, c.objects)
		}
	}
}

func (c *changer) mapping(object, id, from, to string, changed map[string]string) {
	op := entitlements.Changed
	switch from {
	case to:
		return
	case "":
		op = entitlements.Added
	}
	changed[id] = to
	c.preview.Changes = append(c.preview.Changes, entitlements.Change{Op: op, Object: object, Name: id, What: "product", From: from, To: to})
}

// left returns what the database has and the file does not name.
func (c *changer) left() []Left {
	from, left := c.from.catalogue, []Left{}
	named := map[Left]bool{}
	for _, k := range c.file.keys {
		named[Left{"resource key", k.Key}] = true
	}
	for _, s := range c.file.sets {
		named[Left{"set", s.id.value}] = true
	}
	for _, p := range c.file.products {
		named[Left{"product", p.id.value}] = true
		for _, id := range p.prices {
			named[Left{"Stripe price", id.value}] = true
		}
		for _, id := range p.stripeProducts {
			named[Left{"Stripe product", id.value}] = true
		}
	}
	for _, l := range c.file.ladders {
		named[Left{"ladder", l.id.value}] = true
	}
	for _, t := range c.file.types {
		named[Left{"organisation type", t.id.value}] = true
	}
	for _, group := range []struct {
		object string
		names  []string
	}{
		{"resource key", slices.Sorted(maps.Keys(from.Keys))}, {"set", slices.Sorted(maps.Keys(from.Sets))},
		{"product", slices.Sorted(maps.Keys(from.Products))}, {"ladder", slices.Sorted(maps.Keys(from.Ladders))},
		{"organisation type", slices.Sorted(maps.Keys(from.Types))},
		{"Stripe price", slices.Sorted(maps.Keys(c.from.prices))}, {"Stripe product", slices.Sorted(maps.Keys(c.from.products))},
	} {
		for _, name := range group.names {
			if one := (Left{group.object, name}); !named[one] {
				left = append(left, one)
			}
		}
	}
	return left
}

// make takes every lock, writes what differs and settles the pools reached.
func (c *changer) make(ctx context.Context, tx *lockorder.Tx) error {
	var sets, types []string
	for _, s := range c.file.sets {
		sets = append(sets, s.id.value)
	}
	for _, t := range c.file.types {
		types = append(types, t.id.value)
	}
	err := c.look(ctx, tx, func(ctx context.Context, _ lockorder.Querier) (entitlements.Catalogue, error) {
		return entitlements.LockCatalogue(ctx, tx, sets, types)
	})
	if err != nil || len(c.preview.Changes) == 0 {
		return err
	}
	from := c.from.catalogue
	pools, err := entitlements.ReachedPools(ctx, tx, from, c.to)
	if err != nil {
		return err
	}
	// Products and mappings are covered by the exclusive rendezvous, so they may be written before the pools are locked;
	// which pools the mappings reach shows once they stand.
	if c.to, err = entitlements.AddProducts(ctx, tx, from, c.to); err != nil {
		return err
	}
	moves, err := c.remap(ctx, tx)
	if err != nil {
		return err
	}
	for _, m := range moves {
		pools = append(pools, m.Pool)
	}
	slices.SortFunc(pools, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	pools = slices.Compact(pools)
	if len(pools) > entitlements.SyncCap {
		return &TooManyPools{Pools: len(pools), Cap: entitlements.SyncCap}
	}
	if err := tx.Lock(ctx, slices.Concat(entitlements.PoolRows(pools), entitlements.KeyRows(from, c.to))...); err != nil {
		return err
	}
	before, err := entitlements.PoolStates(ctx, tx, pools)
	if err != nil {
		return err
	}
	if err := entitlements.WriteCatalogue(ctx, tx, from, c.to); err != nil {
		return err
	}
	if err := entitlements.MoveItems(ctx, tx, act, moves); err != nil {
		return err
	}
	if _, err := entitlements.Settle(ctx, tx, act, pools...); err != nil {
		return err
	}
	after, err := entitlements.PoolStates(ctx, tx, pools)
	if err != nil {
		return err
	}
	c.preview.Pools, c.preview.Moved, c.preview.Effects = len(pools), len(moves), effects(before, after)
	return nil
}

// remap writes the mappings that change and returns the positions that take another product by it.
func (c *changer) remap(ctx context.Context, tx *lockorder.Tx) ([]entitlements.Move, error) {
	if len(c.prices)+len(c.objects) == 0 {
		return nil, nil
	}
	prices, objects := slices.Sorted(maps.Keys(c.prices)), slices.Sorted(maps.Keys(c.objects))
	for _, id := range prices {
		if err := billing.SetPriceMapping(ctx, tx, id, c.to.Products[c.prices[id]].ID); err != nil {
			return nil, err
		}
	}
	for _, id := range objects {
		if err := billing.SetProductMapping(ctx, tx, id, c.to.Products[c.objects[id]].ID); err != nil {
			return nil, err
		}
	}
	items, err := billing.ItemsUsing(ctx, tx, prices, objects)
	if err != nil {
		return nil, err
	}
	products := make(map[string]uuid.UUID, len(items))
	for _, i := range items {
		products[i.ItemID] = i.Product
	}
	return entitlements.PlanMoves(ctx, tx, products)
}

// effects compares the states of the same pools.
func effects(before, after []entitlements.PoolState) []Effect {
	out := []Effect{}
	for i, was := range before {
		is := after[i]
		e := Effect{Organization: was.Organization, Pool: was.PoolName}
		keys := maps.Clone(was.Values)
		maps.Copy(keys, is.Values)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if was.Values[key] != is.Values[key] {
				e.Changes = append(e.Changes, ValueChange{key, was.Values[key], is.Values[key]})
			}
		}
		if len(e.Changes) > 0 {
			out = append(out, e)
		}
	}
	return out
}
