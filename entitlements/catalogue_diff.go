package entitlements

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// Op says what a change does.
type Op string

// The operations.
const (
	Added   Op = "add"
	Changed Op = "change"
	Removed Op = "remove"
)

// Change is one difference between two catalogues, for a person.
type Change struct {
	Op Op `json:"op"`
	// Object is the kind of object: "resource key", "set", "product", "ladder", "organisation type".
	Object string `json:"object"`
	// Name is its slug.
	Name string `json:"name"`
	// What is the part of it that differs, empty for the object itself.
	What string `json:"what,omitempty"`
	// From and To are that part before and after, empty where it is added or removed.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

type changes struct {
	object, name string
	list         []Change
}

func (c *changes) of(object, name string) { c.object, c.name = object, name }

func (c *changes) add(op Op, what, from, to string) {
	c.list = append(c.list, Change{Op: op, Object: c.object, Name: c.name, What: what, From: from, To: to})
}

// differs adds a change of a part if it differs.
func (c *changes) differs(what, from, to string) {
	switch {
	case from == to:
	case from == "":
		c.add(Added, what, "", to)
	case to == "":
		c.add(Removed, what, from, "")
	default:
		c.add(Changed, what, from, to)
	}
}

// DiffCatalogues returns what to has that from has not, in the order of the catalogue: keys, sets, products, ladders,
// types, each by name. Objects that to lacks are not looked at: nothing is ever removed whole.
func DiffCatalogues(from, to Catalogue) []Change {
	c := &changes{}
	for _, name := range slices.Sorted(maps.Keys(to.Keys)) {
		c.of("resource key", name)
		k := to.Keys[name]
		old, known := from.Keys[name]
		if !known {
			c.add(Added, "", "", k.describe())
			continue
		}
		c.differs("kind", old.Kind, k.Kind)
		c.differs("aggregation", old.Aggregation, k.Aggregation)
		c.differs("window", old.Window, k.Window)
		c.differs("description", old.Description, k.Description)
	}
	for _, name := range slices.Sorted(maps.Keys(to.Sets)) {
		c.of("set", name)
		s := to.Sets[name]
		old, known := from.Sets[name]
		c.named(known, old.Name, s.Name)
		rules := maps.Clone(old.Rules)
		if rules == nil {
			rules = map[string]Value{}
		}
		maps.Copy(rules, s.Rules)
		for _, key := range slices.Sorted(maps.Keys(rules)) {
			before, had := old.Rules[key]
			after, has := s.Rules[key]
			switch {
			case !had:
				c.add(Added, key, "", after.String())
			case !has:
				c.add(Removed, key, before.String(), "")
			case before != after:
				c.add(Changed, key, before.String(), after.String())
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(to.Products)) {
		c.of("product", name)
		p := to.Products[name]
		old, known := from.Products[name]
		c.named(known, old.Name, p.Name)
		for _, set := range missingFrom(old.Sets, p.Sets) {
			c.add(Removed, "set", set, "")
		}
		for _, set := range missingFrom(p.Sets, old.Sets) {
			c.add(Added, "set", "", set)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(to.Ladders)) {
		c.of("ladder", name)
		l := to.Ladders[name]
		old, known := from.Ladders[name]
		c.named(known, old.Name, l.Name)
		c.differs("tiers", strings.Join(old.Tiers, " < "), strings.Join(l.Tiers, " < "))
	}
	for _, name := range slices.Sorted(maps.Keys(to.Types)) {
		c.of("organisation type", name)
		t := to.Types[name]
		old, known := from.Types[name]
		c.named(known, old.Name, t.Name)
		c.differs("default", old.Default, t.Default)
	}
	return c.list
}

func (c *changes) named(known bool, from, to string) {
	if known {
		c.differs("name", from, to)
	} else {
		c.add(Added, "", "", to)
	}
}

func (k ResourceKey) describe() string {
	s := k.Kind
	if k.Kind == Numeric {
		s += ", " + k.Aggregation
	}
	if k.Window != "none" {
		s += ", by " + k.Window
	}
	return s
}

// missingFrom returns what a has and b has not, in a's order.
func missingFrom(a, b []string) []string {
	var out []string
	for _, s := range a {
		if !slices.Contains(b, s) {
			out = append(out, s)
		}
	}
	return out
}

// Reached returns what a change from one catalogue to another reaches: the pools in which it may change something. These are
// those that hold a product whose rules or ladder change, and the default pools of types whose default changes. (A
// default pool of a type whose default's ladder changes holds that default, or something else on its ladder.)
func Reached(from, to Catalogue) Reach {
	products, types := reached(from, to)
	return Reach{Products: products, Types: types}
}

// reached returns the stored products and types that a change touches.
func reached(from, to Catalogue) (products, types []uuid.UUID) {
	changedSets := map[string]bool{}
	for name, s := range to.Sets {
		changedSets[name] = !maps.Equal(from.Sets[name].Rules, s.Rules)
	}
	for name, k := range to.Keys {
		if old, known := from.Keys[name]; known && (old.Aggregation != k.Aggregation || old.Kind != k.Kind) {
			for _, set := range slices.Concat(from.SetsUsing(name), to.SetsUsing(name)) {
				changedSets[set] = true
			}
		}
	}
	changed := map[string]bool{}
	for name, p := range to.Products {
		old := from.Products[name]
		if !slices.Equal(old.Sets, p.Sets) || slices.ContainsFunc(p.Sets, func(s string) bool { return changedSets[s] }) {
			changed[name] = true
		}
	}
	for name, l := range to.Ladders {
		old := from.Ladders[name]
		if !slices.Equal(old.Tiers, l.Tiers) {
			for _, product := range slices.Concat(old.Tiers, l.Tiers) {
				changed[product] = true
			}
		}
	}
	for name, t := range to.Types {
		if t.ID != uuid.Nil && from.Types[name].Default != t.Default {
			types = append(types, t.ID)
		}
	}
	for name := range changed {
		if id := from.Products[name].ID; id != uuid.Nil {
			products = append(products, id)
		}
	}
	return products, types
}

// NoneInProgress answers an error that wraps ErrInProgress where an earlier change has to have reached everyone before a change from one
// catalogue to another: of the default of a type that gets another one, or, where rules change, of any default.
func NoneInProgress(ctx context.Context, q lockorder.Querier, from, to Catalogue) error {
	products, types := reached(from, to)
	for _, slug := range slices.Sorted(maps.Keys(to.Types)) {
		if id := to.Types[slug].ID; slices.Contains(types, id) {
			if err := noDefaultInProgress(ctx, q, id, slug); err != nil {
				return err
			}
		}
	}
	if len(products) == 0 {
		return nil
	}
	return NoOpenDefault(ctx, q)
}

// Successors returns, by slug, what stands in place of those of the products whose tier was removed while it was held: another
// product's slug, or "nothing".
func Successors(ctx context.Context, q lockorder.Querier, c Catalogue, products []string) (map[string]string, error) {
	slugs, ids := map[uuid.UUID]string{}, []uuid.UUID(nil)
	for slug, p := range c.Products {
		slugs[p.ID] = slug
	}
	for _, slug := range products {
		if id := c.Products[slug].ID; id != uuid.Nil {
			ids = append(ids, id)
		}
	}
	found, err := loadSuccessions(ctx, q, ids)
	if err != nil {
		return nil, err
	}
	successors := map[string]string{}
	for id, successor := range found {
		successors[slugs[id]] = "nothing"
		if successor != uuid.Nil {
			successors[slugs[id]] = slugs[successor]
		}
	}
	return successors, nil
}

// Holders returns how many pools hold each of the products, by slug; products that none holds are left out.
func Holders(ctx context.Context, q lockorder.Querier, c Catalogue, products []string) (map[string]int, error) {
	slugs := map[uuid.UUID]string{}
	var ids []uuid.UUID
	for _, slug := range products {
		if p, ok := c.Products[slug]; ok && p.ID != uuid.Nil {
			slugs[p.ID] = slug
			ids = append(ids, p.ID)
		}
	}
	rows, err := entitlementsdb.New(q).CountHolders(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("counting the pools that hold products: %w", err)
	}
	holders := map[string]int{}
	for _, r := range rows {
		holders[slugs[r.ProductID]] = int(r.Pools)
	}
	return holders, nil
}
