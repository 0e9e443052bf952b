package entitlements_test

import (
	"slices"

	"github.com/bursarhq/bursar/entitlements"
)

// commit makes a change that reaches organisations: it settles them, or owes them where they are many.
func (w *world) commit(name string, reached []bool, write func()) {
	n := 0
	for _, yes := range reached {
		if yes {
			n++
		}
	}
	write()
	for i, yes := range reached {
		switch {
		case !yes:
		case n > entitlements.SyncCap:
			w.orgs[i].owed[name] = false
		default:
			w.settle(w.orgs[i])
		}
	}
}

// reach says which organisations hold one of the products, or are of one of the types.
func (w *world) reach(products []string, types ...string) []bool {
	reached := make([]bool, len(w.orgs))
	for i, o := range w.orgs {
		reached[i] = slices.Contains(types, o.kind) || slices.ContainsFunc(o.held, func(p *worldPosition) bool { return slices.Contains(products, p.product) })
	}
	return reached
}

// inProgress says that a new default of a type, "" for any, has yet to reach somebody.
func (w *world) inProgress(kind string) bool {
	return slices.ContainsFunc(w.orgs, func(o *worldOrg) bool {
		if kind != "" && o.kind != kind {
			return false
		}
		for change, ofDefault := range o.owed {
			if ofDefault || kind != "" && w.floors[change] {
				return true
			}
		}
		return false
	})
}

// followers are the types whose default a new floor becomes.
func (w *world) followers(ladder, floor string) (types []string, refused string) {
	tiers := w.ranks[ladder]
	if len(tiers) == 0 || tiers[0] == floor {
		return nil, ""
	}
	for name, kind := range w.types {
		if kind.product == tiers[0] {
			if w.inProgress(name) {
				return nil, "in progress"
			}
			types = append(types, name)
		}
	}
	return types, ""
}

func (w *world) follow(types []string, floor string) {
	for _, name := range types {
		*w.types[name] = worldType{product: floor}
	}
}

func (w *world) addTier(a worldAct) string {
	if on, _ := w.place(a.product); on != "" || a.rank > len(w.ranks[a.ladder]) {
		return "invalid"
	}
	var types []string
	if a.rank == 0 {
		var refused string
		if types, refused = w.followers(a.ladder, a.product); refused != "" {
			return refused
		}
	}
	if removal, was := w.from[a.product]; was {
		for _, o := range w.orgs {
			if _, owed := o.owed[removal]; owed {
				return "in progress"
			}
		}
	}
	w.floors[a.fresh] = true
	w.commit(a.fresh, w.reach([]string{a.product}, types...), func() {
		delete(w.from, a.product)
		w.ranks[a.ladder] = slices.Insert(w.ranks[a.ladder], a.rank, a.product)
		delete(w.heirs, a.product)
		w.follow(types, a.product)
	})
	return ""
}

func (w *world) removeTier(a worldAct) string {
	ladder, rank := w.place(a.product)
	if ladder == "" {
		return "invalid"
	}
	for _, kind := range w.types {
		if kind.product == a.product {
			return "invalid"
		}
	}
	reached := w.reach([]string{a.product})
	rest := slices.Delete(slices.Clone(w.ranks[ladder]), rank, rank+1)
	heir := ""
	switch a.to {
	case "":
		if slices.Contains(reached, true) {
			return "invalid"
		}
	case "migrate":
		if len(rest) == 0 {
			return "invalid"
		}
		heir = rest[0]
	}
	w.commit(a.fresh, reached, func() {
		w.ranks[ladder] = rest
		if a.to == "" {
			return
		}
		for product, to := range w.heirs {
			if to == a.product {
				w.heirs[product] = heir
			}
		}
		w.heirs[a.product], w.from[a.product] = heir, a.fresh
	})
	return ""
}

func (w *world) reorder(a worldAct) string {
	have := slices.Sorted(slices.Values(w.ranks[a.ladder]))
	if len(have) == 0 || !slices.Equal(have, slices.Sorted(slices.Values(a.order))) {
		return "invalid"
	}
	types, refused := w.followers(a.ladder, a.order[0])
	if refused != "" {
		return refused
	}
	reached := w.reach(nil, types...)
	for i, o := range w.orgs {
		on := map[string]bool{}
		for _, p := range o.held {
			if slices.Contains(have, p.product) {
				on[p.product] = true
			}
		}
		reached[i] = reached[i] || len(on) > 1
	}
	w.floors[a.fresh] = true
	w.commit(a.fresh, reached, func() {
		w.ranks[a.ladder] = slices.Clone(a.order)
		w.follow(types, a.order[0])
	})
	return ""
}

func (w *world) saveDefault(a worldAct) string {
	kind := w.types[a.sub]
	if _, removed := w.heirs[a.product]; removed {
		return "invalid"
	}
	if w.inProgress(a.sub) {
		return "in progress"
	}
	if kind.product == a.product {
		return "invalid"
	}
	kind.product, kind.grandfather = a.product, a.suspended
	for _, o := range w.orgs {
		if o.kind == a.sub {
			o.owed[a.fresh] = true
		}
	}
	return ""
}

// alter sets what a product's set gives of a key, or takes it away with -1.
func (w *world) alter(a worldAct) string {
	if w.inProgress("") {
		return "in progress"
	}
	had, has := w.rules[a.product][a.key]
	if a.n < 0 && !has || has && had == a.n {
		return "invalid"
	}
	carriers := []string{a.product}
	for product, heir := range w.heirs {
		if heir == a.product {
			carriers = append(carriers, product)
		}
	}
	w.commit(a.fresh, w.reach(carriers), func() {
		if a.n < 0 {
			delete(w.rules[a.product], a.key)
		} else {
			w.rules[a.product][a.key] = a.n
		}
	})
	return ""
}
