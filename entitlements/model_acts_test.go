package entitlements_test

import (
	"fmt"
	"slices"
)

// worldAct is an act as it is drawn: the same is done to the tables and to the world.
type worldAct struct {
	kind         string
	org          int // -1 for none
	sub          string
	product, to  string
	quantity     int64
	suspended    bool
	grant, fresh string // an existing grant, the name of the new one
	from, until  int64  // days, 0 for none
	forever      bool
	ladder, key  string
	order        []string
	rank         int
	n            int64
}

// boundary is the moment at which what is agreed for a day begins or ends.
func boundary(day, nth int64) int64 {
	if day == 0 {
		return 0
	}
	return day*aDay - 1_000_000 + nth
}

// nth is the number in the name of a grant.
func nth(name string) (n int64) {
	_, _ = fmt.Sscanf(name, "g%d", &n)
	return n
}

// do does an act, or answers why not, and then nothing has changed. limit stands in place of what the world allows, where it is
// not negative.
func (w *world) do(a worldAct, limit int64) string {
	before := w.clone()
	w.now++
	refused := w.act(a, limit)
	if refused != "" {
		now := w.now
		*w = *before
		w.now = now
	}
	return refused
}

func (w *world) act(a worldAct, limit int64) string {
	switch a.kind {
	case "converge", "end":
		w.converge(a)
	case "issue":
		return w.issue(a)
	case "extend", "manage", "revoke":
		return w.onLine(a)
	case "tier-add":
		return w.addTier(a)
	case "tier-remove":
		return w.removeTier(a)
	case "tier-reorder":
		return w.reorder(a)
	case "default":
		return w.saveDefault(a)
	case "rules":
		return w.alter(a)
	case "spend", "release", "raise", "bound":
		return w.count(a, limit)
	case "drain":
		for i := range w.orgs {
			if a.org < 0 || a.org == i {
				w.lock(i)
			}
		}
	case "sweep":
		w.sweep()
	case "pass":
		w.now = (w.day() + 1) * aDay
	default:
		panic(a.kind)
	}
	return ""
}

func (w *world) converge(a worldAct) {
	at := a.org
	find := func() (*worldOrg, int) {
		for i, o := range w.orgs {
			if j := slices.IndexFunc(o.held, func(p *worldPosition) bool { return p.item == a.sub }); j >= 0 {
				at = i
				return o, j
			}
		}
		return nil, -1
	}
	o, j := find()
	if o != nil {
		w.lock(at)
	}
	if a.kind == "converge" {
		w.lock(a.org)
	}
	if o, j = find(); a.kind == "end" {
		if o != nil {
			o.held = slices.Delete(o.held, j, j+1)
			w.settle(o)
		}
		return
	}
	product := w.heldFor(a.product)
	switch {
	case a.quantity == 0 || product == "":
		if o != nil {
			o.held = slices.Delete(o.held, j, j+1)
		}
	case o == nil:
		w.orgs[a.org].held = append(w.orgs[a.org].held, &worldPosition{product: product, source: "subscription", item: a.sub, quantity: a.quantity, suspended: a.suspended, start: w.now})
	default:
		p := o.held[j]
		if p.product != product {
			p.product, p.start = product, w.now
		}
		p.quantity, p.suspended = a.quantity, a.suspended
	}
	w.settle(w.orgs[a.org])
	if at != a.org {
		w.settle(w.orgs[at])
	}
}

func (w *world) issue(a worldAct) string {
	if _, removed := w.heirs[a.product]; removed {
		return "invalid"
	}
	g := &worldGrant{org: a.org, product: a.product, state: "waiting", quantity: a.quantity, start: w.now, line: a.fresh}
	if a.from > 0 {
		g.start = boundary(a.from, nth(a.fresh))
	}
	if g.end = boundary(a.until, nth(a.fresh)); g.end > 0 && (g.end <= g.start || g.end <= w.now) {
		return "invalid"
	}
	if a.org >= 0 {
		w.lock(a.org)
	}
	w.grants[a.fresh] = g
	w.confer(a.fresh, g, g.product)
	return ""
}

// confer gives a grant its position, and settles.
func (w *world) confer(name string, g *worldGrant, product string) {
	if g.org >= 0 {
		o := w.orgs[g.org]
		o.held = append(o.held, &worldPosition{product: product, source: "grant", grant: name, quantity: g.quantity, start: g.start, end: g.end})
		w.settle(o)
	}
}

// onLine extends, changes or revokes the head of a line.
func (w *world) onLine(a worldAct) string {
	head := w.grants[a.grant]
	name := a.grant
	if head == nil {
		return "not found"
	}
	for head.next != "" {
		name = head.next
		head = w.grants[name]
	}
	if a.kind == "manage" && a.org >= 0 {
		w.lock(a.org)
	}
	if head.org >= 0 {
		w.lock(head.org)
	}
	if head.closed || head.end > 0 && head.end <= w.now {
		return "invalid"
	}
	product := w.heldFor(head.product)
	if head.org >= 0 {
		o := w.orgs[head.org]
		j := slices.IndexFunc(o.held, func(p *worldPosition) bool { return p.grant == name })
		product = o.held[j].product
	}
	next := *head
	next.extends, next.grandfathered = name, false
	until := boundary(a.until, nth(a.fresh))
	switch a.kind {
	case "extend":
		if name != a.grant || head.end == 0 || until > 0 && until <= head.end {
			return "invalid"
		}
		next.end = until
	case "manage":
		if until > 0 || a.forever {
			next.end = until
		}
		if a.quantity > 0 {
			next.quantity = a.quantity
		}
		if a.org >= 0 {
			if head.org >= 0 && head.org != a.org {
				return "invalid"
			}
			next.org = a.org
		}
		if next.end == head.end && next.quantity == head.quantity && next.org == head.org || until > 0 && until <= w.now {
			return "invalid"
		}
	}
	if a.kind != "revoke" {
		if product == "" {
			return "invalid"
		}
		if head.org < 0 && next.org >= 0 {
			next.start = max(next.start, w.now)
		}
		if next.end > 0 && next.end <= next.start {
			return "invalid"
		}
		next.product = product
		head.next = a.fresh
		w.close(name, head, "extended")
		w.grants[a.fresh] = &next
		w.confer(a.fresh, &next, product)
		return ""
	}
	w.close(name, head, "revoked")
	if head.org >= 0 {
		w.settle(w.orgs[head.org])
	}
	return ""
}

func (w *world) close(name string, g *worldGrant, state string) {
	g.state, g.closed = state, true
	if g.org >= 0 {
		o := w.orgs[g.org]
		o.held = slices.DeleteFunc(o.held, func(p *worldPosition) bool { return p.grant == name })
	}
}

func (w *world) sweep() {
	for name, g := range w.grants {
		if !g.closed && g.end > 0 && g.end <= w.now {
			if g.org >= 0 {
				w.lock(g.org)
			}
			if g.closed {
				continue
			}
			w.close(name, g, "expired")
			if g.org >= 0 {
				w.settle(w.orgs[g.org])
			}
		}
	}
	for _, g := range w.grants {
		if !g.closed && g.org >= 0 && !g.begun && g.start <= w.now {
			w.settle(w.orgs[g.org])
		}
	}
}

// count spends, releases, raises or bounds.
func (w *world) count(a worldAct, limit int64) string {
	day := w.day()
	if a.key == "seats" {
		day = -1
	}
	counter := func(day int64) string { return fmt.Sprintf("%d %s %d", a.org, a.key, day) }
	if a.kind == "spend" || a.kind == "release" {
		name := fmt.Sprintf("%d %s %s", a.org, a.key, a.sub)
		s := w.spends[name]
		if a.kind == "spend" {
			if s != nil {
				if s.n != a.n {
					return "invalid"
				}
				return ""
			}
			if limit < 0 {
				limit = w.may(w.orgs[a.org])[a.key]
			}
			if w.used[counter(day)]+a.n > limit {
				return "exhausted"
			}
			w.used[counter(day)] += a.n
			w.spends[name] = &worldSpend{key: a.key, day: day, n: a.n}
			return ""
		}
		switch {
		case s == nil:
			return "not found"
		case a.quantity > s.n:
			return "invalid"
		}
		if gone := s.n - s.released - a.quantity; gone > 0 {
			s.released += gone
			w.used[counter(s.day)] = max(w.used[counter(s.day)]-gone, 0)
		}
		return ""
	}
	if a.kind == "raise" {
		w.used[counter(day)] = max(w.used[counter(day)], a.n)
	} else {
		w.used[counter(day)] = min(w.used[counter(day)], a.n)
	}
	return ""
}
