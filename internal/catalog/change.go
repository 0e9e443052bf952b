package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

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
	// Pools is how many pools the change reaches. They are settled with it; where they are too many for that they are Owed, and
	// settled one after another once it is committed.
	Pools int `json:"pools"`
	Owed  int `json:"owed,omitempty"`
	// Moved is how many positions take another product because the mapping of their price changes.
	Moved int `json:"moved"`
	// Effects are the pools whose entitlements change, by organisation. Of pools that are owed it is not known yet.
	Effects []Effect `json:"effects"`
	// Change is the id of the committed change; empty before.
	Change string `json:"change,omitempty"`
}

// same says whether two previews show the same. Where pools are owed, how many they are moves with every conferral, and nobody
// relies on it.
func (p Preview) same(other Preview) bool {
	p.Change, other.Change = "", ""
	if p.Owed > 0 && other.Owed > 0 {
		p.Pools, p.Owed, p.Moved = other.Pools, other.Owed, other.Moved
	}
	return reflect.DeepEqual(p, other)
}

// Left is an object that the file does not name.
type Left struct {
	Object string `json:"object"`
	Name   string `json:"name"`
}

// Effect is what changes in one pool.
type Effect = entitlements.Effect

// ValueChange is one entitlement before and after.
type ValueChange = entitlements.ValueChange

// Plan returns what applying the file would do: it is done, looked at, and rolled back; where it would leave pools owed, they are
// counted only. Errors are *Problems, entitlements.ErrInProgress, or the database's.
func Plan(ctx context.Context, db *lockorder.DB, f *File) (Preview, error) {
	return change(ctx, db, f, true, func(Preview) error { return errShown })
}

// Apply applies the file if it does what was shown, and otherwise changes nothing and answers ErrDrift. Errors are
// those of Plan too. Applied again it does nothing. Pools that it leaves owed are settled by the drain of Preview.Change, which
// somebody has to start.
func Apply(ctx context.Context, db *lockorder.DB, f *File, shown Preview) (Preview, error) {
	return change(ctx, db, f, false, func(now Preview) error {
		if !now.same(shown) {
			return ErrDrift
		}
		return nil
	})
}

// change makes the change and lets decide see what it did before it is committed.
func change(ctx context.Context, db *lockorder.DB, f *File, look bool, decide func(Preview) error) (Preview, error) {
	// A first look without the exclusive rendezvous: a file that changes nothing, or is wrong, holds nobody up.
	c := &changer{file: f, id: uuid.New(), looks: look}
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
	if err != nil {
		c.preview.Change = ""
	}
	if errors.Is(err, errShown) {
		err = nil
	}
	return c.preview, err
}

// changer is one change under way.
type changer struct {
	file    *File
	id      uuid.UUID // of the change
	looks   bool      // it is only shown
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
	succeeded, err := entitlements.Successors(ctx, q, from, c.defaults())
	if err != nil {
		return err
	}
	if err := c.file.check(from, c.to, holders, succeeded).err(c.file.Name); err != nil {
		return err
	}
	c.preview = Preview{Changes: entitlements.DiffCatalogues(from, c.to), Left: c.left(), Effects: []Effect{}}
	c.mappings()
	if c.preview.Changes == nil {
		c.preview.Changes = []entitlements.Change{}
	}
	return nil
}

// defaults returns the defaults that the file names and that no ladder has.
func (c *changer) defaults() []string {
	var products []string
	for _, t := range c.file.types {
		if _, _, tier := c.to.LadderOf(t.standard.value); t.standard.value != "" && !tier {
			products = append(products, t.standard.value)
		}
	}
	return products
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
	if err := entitlements.NoneInProgress(ctx, tx, from, c.to); err != nil {
		return err
	}
	reach := entitlements.Reached(from, c.to)
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
		reach.Pools = append(reach.Pools, m.Pool)
	}
	c.preview.Moved = len(moves)
	if c.looks {
		if c.preview.Pools, err = reach.Size(ctx, tx); err != nil {
			return err
		}
		if c.preview.Pools > entitlements.SyncCap {
			c.preview.Owed = c.preview.Pools
			return nil
		}
	}
	record := entitlements.ChangeRecord{ID: c.id, Kind: entitlements.ChangeCatalog, Summary: c.summary()}
	out, err := entitlements.CommitChange(ctx, tx, act, record, reach, func(ctx context.Context) error {
		if err := tx.Lock(ctx, entitlements.KeyRows(from, c.to)...); err != nil {
			return err
		}
		if err := entitlements.WriteCatalogue(ctx, tx, from, c.to); err != nil {
			return err
		}
		return entitlements.MoveItems(ctx, tx, act, moves)
	})
	if err != nil {
		return err
	}
	c.preview.Pools, c.preview.Owed, c.preview.Change = out.Pools, out.Owed, c.id.String()
	if out.Effects != nil {
		c.preview.Effects = out.Effects
	}
	return nil
}

// summary tells the change in one line: "catalogue: set gold, ladder membership and 2 more".
func (c *changer) summary() string {
	const shown = 3
	var names []string
	for _, one := range c.preview.Changes {
		if name := one.Object + " " + one.Name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if more := len(names) - shown; more > 0 {
		return fmt.Sprintf("catalogue: %s and %d more", strings.Join(names[:shown], ", "), more)
	}
	return "catalogue: " + strings.Join(names, ", ")
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
