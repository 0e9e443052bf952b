package catalog

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements"
)

// state is what the database says.
type state struct {
	catalogue entitlements.Catalogue
	prices    map[string]uuid.UUID // Stripe price → product
	products  map[string]uuid.UUID // Stripe product → product
}

// overlay returns the catalogue as it would be: what the file names as the file has it, all else as it is.
func (f *File) overlay(from entitlements.Catalogue) entitlements.Catalogue {
	to := from.Clone()
	defer func() { // what has no id is a problem of its own, and nothing to refer to
		delete(to.Keys, "")
		delete(to.Sets, "")
		delete(to.Products, "")
		delete(to.Ladders, "")
		delete(to.Types, "")
	}()
	for _, k := range f.keys {
		to.Keys[k.Key] = k.ResourceKey
	}
	for _, s := range f.sets {
		set := entitlements.Set{ID: from.Sets[s.id.value].ID, Slug: s.id.value, Name: s.name.value, Rules: map[string]entitlements.Value{}}
		for _, r := range s.rules {
			set.Rules[r.key.value] = r.value
		}
		to.Sets[s.id.value] = set
	}
	for _, p := range f.products {
		sets := values(p.sets)
		slices.Sort(sets)
		to.Products[p.id.value] = entitlements.Product{
			ID: from.Products[p.id.value].ID, Slug: p.id.value, Name: p.name.value, Sets: slices.Compact(sets)}
	}
	for _, l := range f.ladders {
		to.Ladders[l.id.value] = entitlements.Ladder{
			ID: from.Ladders[l.id.value].ID, Slug: l.id.value, Name: l.name.value, Tiers: values(l.tiers)}
	}
	for _, t := range f.types {
		to.Types[t.id.value] = entitlements.OrganizationType{
			ID: from.Types[t.id.value].ID, Slug: t.id.value, Name: t.name.value, Default: t.standard.value}
	}
	return to
}

func values(texts []text) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = t.value
	}
	return out
}

// checker looks for what is wrong with a file beside what the database has.
type checker struct {
	*File
	problems
	from, to entitlements.Catalogue
}

// check returns what is wrong with the file, reading included. holders tells how many pools hold a product that leaves its
// ladder, succeeded what stands in place of a default whose tier was removed.
func (f *File) check(from, to entitlements.Catalogue, holders map[string]int, succeeded map[string]string) problems {
	c := &checker{File: f, problems: slices.Clone(f.problems), from: from, to: to}
	c.keysAndRules()
	c.productsAndMappings()
	c.tiers(holders)
	c.defaults(succeeded)
	return c.problems
}

// once reports what a list names twice.
func (c *checker) once(seen map[string]int, t text, what string) {
	if t.value == "" {
		return
	}
	if first, twice := seen[t.value]; twice {
		c.add(t.line, "%s %s is here a second time; the first is in line %d: keep one", what, t.value, first)
		return
	}
	seen[t.value] = t.line
}

// unknown reports a reference to what neither the file nor the database has.
func (c *checker) unknown(t text, what string, names []string, field string) {
	hint := ""
	if near := entitlements.Near(t.value, names); len(near) > 0 {
		hint = "; near it: " + strings.Join(near, ", ")
	}
	c.add(t.line, "no %s is called %q%s; add it under %s or mend the name", what, t.value, hint, field)
}

func (c *checker) keysAndRules() {
	seen := map[string]int{}
	for _, k := range c.keys {
		c.once(seen, text{k.line, k.Key}, "resource key")
		old, known := c.from.Keys[k.Key]
		if sets := c.from.SetsUsing(k.Key); known && old.Kind != k.Kind && len(sets) > 0 {
			c.add(k.line, "resource key %s is %s and sets use it (%s), so its kind cannot change; take it out of these sets and apply that first, or use another key",
				k.Key, old.Kind, strings.Join(sets, ", "))
		}
	}
	seen = map[string]int{}
	for _, s := range c.sets {
		c.once(seen, s.id, "set")
		for _, r := range s.rules {
			key, known := c.to.Keys[r.key.value]
			switch {
			case !known:
				c.unknown(r.key, "resource key", slices.Sorted(maps.Keys(c.to.Keys)), "resource_keys")
			case r.value.Kind != "" && r.value.Kind != key.Kind:
				want := "a whole number"
				if key.Kind == entitlements.Boolean {
					want = "true or false"
				}
				c.add(r.key.line, "resource key %s is %s, so its value in set %s is %s, not %s", r.key.value, key.Kind, s.id.value, want, r.value)
			}
		}
	}
}

func (c *checker) productsAndMappings() {
	seen, prices, products := map[string]int{}, map[string]int{}, map[string]int{}
	for _, p := range c.products {
		c.once(seen, p.id, "product")
		carried := map[string]int{}
		for _, set := range p.sets {
			c.once(carried, set, "set")
			if _, known := c.to.Sets[set.value]; !known {
				c.unknown(set, "set", slices.Sorted(maps.Keys(c.to.Sets)), "sets")
			}
		}
		for _, price := range p.prices {
			c.once(prices, price, "Stripe price")
		}
		for _, product := range p.stripeProducts {
			c.once(products, product, "Stripe product")
		}
	}
}

func (c *checker) tiers(holders map[string]int) {
	seen := map[string]int{}
	placed := map[string]text{} // product → the ladder of the file that has it
	for _, l := range c.ladders {
		c.once(seen, l.id, "ladder")
		for _, t := range l.tiers {
			if other, twice := placed[t.value]; twice {
				c.add(t.line, "product %s is already a tier of ladder %s (line %d); a product sits on one ladder, once", t.value, other.value, other.line)
				continue
			}
			placed[t.value] = text{t.line, l.id.value}
			if _, known := c.to.Products[t.value]; !known {
				c.unknown(t, "product", slices.Sorted(maps.Keys(c.to.Products)), "products")
			}
		}
	}
	named := map[string]bool{}
	for _, l := range c.ladders {
		named[l.id.value] = true
		for _, product := range leaving(c.from, c.to, l.id.value) {
			if n := holders[product]; n > 0 {
				c.add(l.id.line, "ladder %s loses tier %s, and pools hold that (%d); end or move what they hold first, or keep the tier", l.id.value, product, n)
			}
		}
	}
	for slug, ladder := range c.from.Ladders {
		if named[slug] {
			continue
		}
		for _, product := range ladder.Tiers {
			if at, moved := placed[product]; moved {
				c.add(at.line, "product %s is a tier of ladder %s, which the file does not name; a product sits on one ladder: name ladder %s too, without it", product, slug, slug)
			}
		}
	}
}

// leaving returns the products that a ladder loses.
func leaving(from, to entitlements.Catalogue, ladder string) []string {
	var out []string
	for _, product := range from.Ladders[ladder].Tiers {
		if !slices.Contains(to.Ladders[ladder].Tiers, product) {
			out = append(out, product)
		}
	}
	return out
}

// defaults holds that a type's default is known and, where it sits on a ladder, that it is the floor. What an operator made
// otherwise, and the file leaves so, is not the file's.
func (c *checker) defaults(succeeded map[string]string) {
	ladderLine := map[string]int{}
	for _, l := range c.ladders {
		ladderLine[l.id.value] = l.id.line
	}
	seen, typeLine := map[string]int{}, map[string]int{}
	for _, t := range c.types {
		c.once(seen, t.id, "organisation type")
		typeLine[t.id.value] = t.id.line
		if _, known := c.to.Products[t.standard.value]; !known && t.standard.value != "" {
			c.unknown(t.standard, "product", slices.Sorted(maps.Keys(c.to.Products)), "products")
		} else if t.standard.value != "" {
			typeLine[t.id.value] = t.standard.line
		}
		if other, yes := succeeded[t.standard.value]; yes {
			c.add(t.standard.line, "the tier of product %s was removed, and %s stands in its place, so it can be no default; put it on a ladder again, or name another", t.standard.value, other)
		}
	}
	for _, slug := range slices.Sorted(maps.Keys(c.to.Types)) {
		standard := c.to.Types[slug].Default
		ladder, rank, on := c.to.LadderOf(standard)
		_, known := c.to.Products[standard]
		if standard == "" || !known || !on || rank == 0 || c.stood(slug, standard, ladder) {
			continue
		}
		line := typeLine[slug]
		if line == 0 {
			line = max(ladderLine[ladder], 1)
		}
		c.add(line, "product %s is the default of organisation type %s and sits on ladder %s above its floor; a default is the floor of its ladder: put it first among the tiers, or make %s the default",
			standard, slug, ladder, c.to.Ladders[ladder].Tiers[0])
	}
}

// stood tells whether a default sat on the ladder above its floor before.
func (c *checker) stood(kind, standard, ladder string) bool {
	was, rank, on := c.from.LadderOf(standard)
	return c.from.Types[kind].Default == standard && on && was == ladder && rank > 0
}
