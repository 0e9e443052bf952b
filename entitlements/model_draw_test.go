package entitlements_test

import (
	"fmt"

	"pgregory.net/rapid"
)

// draws is what acts are drawn from: what was named before can be named again.
type draws struct {
	rt     *rapid.T
	orgs   int
	days   int64 // the last day that there is
	grants int
	fresh  int
	last   map[string]worldAct // what a subscription was last converged to
}

func (d *draws) pick(what string, from ...string) string {
	return rapid.SampledFrom(from).Draw(d.rt, what)
}

func (d *draws) number(what string, least, most int) int {
	return rapid.IntRange(least, most).Draw(d.rt, what)
}

var modelSlugs = []string{"free", "silver", "gold", "disk", "turbo", "plain", "basic", "pro"}

func (d *draws) product() string { return d.pick("product", modelSlugs...) }

// grantKinds, tierKinds and usageKinds are acts by what they are on.
var (
	holdKinds  = []string{"converge", "converge", "converge", "suspend", "end"}
	grantKinds = []string{"issue", "issue", "issue", "extend", "manage", "manage", "revoke"}
	tierKinds  = []string{"tier-add", "tier-remove", "tier-reorder", "default", "default", "rules", "rules"}
	usageKinds = []string{"spend", "spend", "spend", "release", "raise", "bound"}
	timeKinds  = []string{"drain", "drain", "sweep", "pass"}
)

// act draws one of the kinds.
func (d *draws) act(kinds ...[]string) worldAct {
	a := worldAct{kind: d.pick("act", rapid.SampledFrom(kinds).Draw(d.rt, "kinds")...), org: d.number("organisation", 0, d.orgs-1)}
	d.fresh++
	a.fresh = fmt.Sprintf("c%d", d.fresh)
	day := func(what string) int64 { return max(int64(d.number(what, -2, int(d.days)+1)), 0) }
	switch a.kind {
	case "converge":
		a.sub, a.product, a.quantity = d.pick("subscription", "s1", "s2", "s3", "s4"), d.product(), int64(d.number("quantity", 0, 3))
		a.suspended = d.number("suspended", 0, 2) == 0
		d.last[a.sub] = a
	case "suspend":
		if had, ok := d.last[d.pick("subscription", "s1", "s2", "s3", "s4")]; ok {
			had.suspended, had.fresh = !had.suspended, a.fresh
			d.last[had.sub] = had
			return had
		}
		a.kind, a.org = "drain", -1
	case "end":
		a.sub = d.pick("subscription", "s1", "s2", "s3", "s4")
	case "issue", "extend", "manage", "revoke":
		d.grants++
		a.fresh = fmt.Sprintf("g%d", d.grants)
		if a.kind != "issue" {
			a.grant = fmt.Sprintf("g%d", d.number("grant", min(d.grants-1, 1), d.grants-1))
		}
		if a.kind == "issue" && d.number("assigned", 0, 4) == 0 || a.kind == "manage" && d.number("assigned", 0, 2) > 0 {
			a.org = -1
		}
		a.product, a.quantity, a.until = d.product(), int64(d.number("quantity", 1, 2)), day("until")
		if a.kind == "issue" {
			a.from = day("from")
		}
		if a.kind == "manage" {
			a.forever = a.until == 0 && d.number("forever", 0, 3) == 0
			if d.number("as many", 0, 1) == 0 {
				a.quantity = 0
			}
			if a.until == 0 && !a.forever && a.org < 0 && a.quantity == 0 {
				a.quantity = 2
			}
		}
	case "tier-add":
		a.product, a.ladder, a.rank = d.product(), d.pick("ladder", "membership", "help"), d.number("rank", 0, 2)
	case "tier-remove":
		a.product, a.to = d.product(), d.pick("disposition", "", "migrate", "migrate", "end", "end")
	case "tier-reorder":
		a.ladder = d.pick("ladder", "membership", "help")
		a.order = rapid.Permutation(map[string][]string{"membership": {"free", "silver", "gold"}, "help": {"basic", "pro"}}[a.ladder]).Draw(d.rt, "order")
	case "default":
		a.sub, a.product, a.suspended = d.pick("type", "club", "club", "bare", "circle"), d.pick("default", append([]string{"", "free"}, modelSlugs...)...), rapid.Bool().Draw(d.rt, "grandfather")
	case "rules":
		a.product, a.key, a.n = d.pick("set", "free", "silver", "gold", "disk", "turbo", "basic", "pro"), d.pick("key", "storage", "speed", "support", "calls", "seats"), int64(d.number("value", -1, 40))
		if a.key == "support" {
			a.n = min(a.n, 1)
		}
	case "spend", "release", "raise", "bound":
		a.key, a.sub, a.n, a.quantity = d.pick("key", "calls", "seats"), fmt.Sprint("u", d.number("spend", 1, 8)), int64(d.number("n", 1, 6)), int64(d.number("keep", 0, 3))
	case "drain":
		if d.number("all", 0, 1) == 0 {
			a.org = -1
		}
	}
	return a
}
