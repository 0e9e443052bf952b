package entitlements_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The world says in memory, and by another way than the tables', what acts come to. Its time is counted in moments: a day has a
// billion, every act takes one, and what is agreed for a day begins or ends a little before it.
type world struct {
	now    int64
	ranks  map[string][]string // the tiers of each ladder, the floor first
	from   map[string]string   // the change that removed a tier, by product
	floors map[string]bool     // changes of a ladder that may change its floor
	heirs  map[string]string   // what stands in place of a removed tier, "" for nothing
	rules  map[string]map[string]int64
	types  map[string]*worldType
	orgs   []*worldOrg
	grants map[string]*worldGrant // by name; those that a settlement makes go by a number
	spends map[string]*worldSpend
	used   map[string]int64 // by organisation, key and day
	made   int
}

type worldType struct {
	product     string
	grandfather bool
}

type worldOrg struct {
	kind string
	held []*worldPosition
	has  map[string]int64
	owed map[string]bool // the changes that have not reached it; of a default where true
}

type worldPosition struct {
	product, source, item string
	grant                 string
	quantity              int64
	suspended             bool
	start, end            int64 // end is 0 for never
}

type worldGrant struct {
	org                      int // -1 for none
	product, state           string
	quantity, start, end     int64
	line, extends, next      string
	begun, conferred, closed bool
	grandfathered            bool
}

type worldSpend struct {
	org, day         int64
	key              string
	n, released, top int64
}

const aDay = int64(1_000_000_000)

func (w *world) day() int64 { return w.now / aDay }

func (p *worldPosition) in(at int64) bool { return p.start <= at && (p.end == 0 || p.end > at) }

func (w *world) place(product string) (ladder string, rank int) {
	for ladder, tiers := range w.ranks {
		if rank := slices.Index(tiers, product); rank >= 0 {
			return ladder, rank
		}
	}
	return "", 0
}

// heldFor returns what is held for a product, "" for nothing.
func (w *world) heldFor(product string) string {
	if heir, removed := w.heirs[product]; removed {
		return heir
	}
	return product
}

// conferring returns what confers now of what an organisation holds, a floor that is due with it.
func (w *world) conferring(o *worldOrg) []*worldPosition {
	var all []*worldPosition
	occupied, floored := map[string]*worldPosition{}, false
	for _, p := range o.held {
		if !p.in(w.now) {
			continue
		}
		if p.source != "default" {
			heir := w.heldFor(p.product)
			if heir == "" {
				continue
			}
			if heir != p.product {
				moved := *p
				moved.product = heir
				p = &moved
			}
		} else {
			floored = true
		}
		ladder, rank := w.place(p.product)
		if ladder == "" {
			all = append(all, p)
			continue
		}
		top := occupied[ladder]
		if top != nil {
			_, other := w.place(top.product)
			if cmp.Or(cmp.Compare(other, rank), cmp.Compare(p.start, top.start)) >= 0 {
				continue
			}
		}
		occupied[ladder] = p
	}
	if floor := w.types[o.kind].product; floor != "" && !floored {
		if ladder, _ := w.place(floor); ladder == "" || occupied[ladder] == nil {
			all = append(all, &worldPosition{product: floor, source: "default", quantity: 1})
		}
	}
	all = append(all, slices.Collect(maps.Values(occupied))...)
	return slices.DeleteFunc(all, func(p *worldPosition) bool { return p.suspended })
}

// may returns what an organisation may use now.
func (w *world) may(o *worldOrg) map[string]int64 {
	sum := map[string]int64{}
	for _, p := range w.conferring(o) {
		for key, n := range w.rules[p.product] {
			switch key {
			case "speed", "support":
				sum[key] = max(sum[key], n)
			default:
				sum[key] += n * p.quantity
			}
		}
	}
	return sum
}

// settle makes an organisation what the present rules, successions and defaults say, and owed nothing.
func (w *world) settle(o *worldOrg) {
	clear(o.owed)
	kind := w.types[o.kind]
	if kind.grandfather {
		for _, p := range o.held {
			if p.source != "default" || p.product == kind.product {
				continue
			}
			w.made++
			p.source, p.grant = "grant", fmt.Sprint(w.made)
			w.grants[p.grant] = &worldGrant{org: slices.Index(w.orgs, o), product: p.product, state: "waiting", quantity: 1, start: p.start,
				line: p.grant, begun: true, grandfathered: true}
		}
	}
	var kept []*worldPosition
	for _, p := range o.held {
		if p.source != "default" {
			heir := w.heldFor(p.product)
			if heir == "" {
				if g := w.grants[p.grant]; g != nil {
					g.state, g.closed = "revoked", true
				}
				continue
			}
			p.product = heir
		}
		kept = append(kept, p)
	}
	o.held = kept
	ladder, _ := w.place(kind.product)
	taken := ladder != "" && slices.ContainsFunc(o.held, func(p *worldPosition) bool {
		on, _ := w.place(p.product)
		return p.source != "default" && on == ladder && p.in(w.now)
	})
	o.held = slices.DeleteFunc(o.held, func(p *worldPosition) bool { return p.source == "default" && (taken || p.product != kind.product) })
	if kind.product != "" && !taken && !slices.ContainsFunc(o.held, func(p *worldPosition) bool { return p.source == "default" }) {
		o.held = append(o.held, &worldPosition{product: kind.product, source: "default", quantity: 1, start: w.now})
	}
	confers := map[string]bool{}
	for _, p := range w.conferring(o) {
		confers[p.grant] = true
	}
	for _, p := range o.held {
		if g := w.grants[p.grant]; g != nil && p.in(w.now) {
			g.begun = true
			switch {
			case confers[p.grant]:
				g.state, g.conferred = "active", true
			case g.conferred:
				g.state = "replaced"
			default:
				g.state = "waiting"
			}
		}
	}
	o.has = w.may(o)
}

// lock is what locking a pool does: it is settled where it is owed something.
func (w *world) lock(org int) {
	if o := w.orgs[org]; len(o.owed) > 0 {
		w.settle(o)
	}
}

// clone returns a world of its own.
func (w *world) clone() *world {
	c := *w
	c.ranks, c.heirs, c.used = map[string][]string{}, maps.Clone(w.heirs), maps.Clone(w.used)
	c.from, c.floors = maps.Clone(w.from), maps.Clone(w.floors)
	for l, tiers := range w.ranks {
		c.ranks[l] = slices.Clone(tiers)
	}
	c.rules = map[string]map[string]int64{}
	for s, r := range w.rules {
		c.rules[s] = maps.Clone(r)
	}
	c.types, c.grants, c.spends = cloned(w.types), cloned(w.grants), cloned(w.spends)
	c.orgs = make([]*worldOrg, len(w.orgs))
	for i, o := range w.orgs {
		d := *o
		d.has, d.owed, d.held = maps.Clone(o.has), maps.Clone(o.owed), make([]*worldPosition, len(o.held))
		for j, p := range o.held {
			q := *p
			d.held[j] = &q
		}
		c.orgs[i] = &d
	}
	return &c
}

func cloned[K comparable, V any](m map[K]*V) map[K]*V {
	c := make(map[K]*V, len(m))
	for k, v := range m {
		d := *v
		c[k] = &d
	}
	return c
}

// print renders what the tables are compared by.
func (w *world) print() string {
	var lines []string
	line := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for i, o := range w.orgs {
		for _, p := range o.held {
			name := p.item
			if g := w.grants[p.grant]; g != nil {
				name = p.grant
				if g.grandfathered {
					name = "grandfathered"
				}
			}
			status := "active"
			if p.suspended {
				status = "suspended"
			}
			line("%d holds %s×%d %s %s %s", i, p.product, p.quantity, p.source, name, status)
		}
		for key, n := range o.has {
			line("%d has %s=%d", i, key, n)
		}
		for key, n := range w.may(o) {
			line("%d reads %s=%d", i, key, n)
		}
		if len(o.owed) > 0 {
			line("%d is owed %d", i, len(o.owed))
		}
	}
	for name, g := range w.grants {
		extends := g.extends
		if g.grandfathered {
			name, extends = "grandfathered", "grandfathered"
			if g.extends == "" {
				extends = ""
			}
		}
		if old := w.grants[g.extends]; old != nil && old.grandfathered {
			extends = "grandfathered"
		}
		line("grant %s of %d: %s×%d %s until %d after %q", name, g.org, g.product, g.quantity, g.state, (g.end+aDay-1)/aDay, extends)
	}
	for counter, n := range w.used {
		if n > 0 {
			line("used %s: %d", counter, n)
		}
	}
	for name, s := range w.spends {
		line("spend %s: %d of which %d back", name, s.n, s.released)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
