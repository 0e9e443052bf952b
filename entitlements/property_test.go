package entitlements_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bursarhq/bursar/entitlements"
)

// The model says in memory what the database must come to: positions by item, and what they add up to.
type model struct {
	positions map[string]*modelPosition // by item
	clock     int
}

type modelPosition struct {
	subscription, product string
	pool, quantity, since int
	suspended             bool
}

var modelRank = map[string]int{"free": 0, "silver": 1, "gold": 2}

type modelRules struct {
	storage, speed int
	support        bool
}

var modelProducts = map[string]modelRules{
	"free": {1, 1, false}, "silver": {10, 5, false}, "gold": {100, 20, true}, "disk": {7, 0, false}, "turbo": {0, 9, false}, "plain": {},
}

func (m *model) converge(subscription string, pool int, suspended bool, items []item) {
	m.clock++
	wanted := map[string]bool{}
	for _, it := range items {
		if it.quantity == 0 {
			continue
		}
		wanted[it.id] = true
		p := m.positions[it.id]
		switch {
		case p == nil:
			m.positions[it.id] = &modelPosition{subscription: subscription, product: it.product, pool: pool, quantity: int(it.quantity), since: m.clock, suspended: suspended}
		case p.product != it.product:
			m.positions[it.id] = &modelPosition{subscription: subscription, product: it.product, pool: p.pool, quantity: int(it.quantity), since: m.clock, suspended: suspended}
		default:
			p.quantity, p.suspended = int(it.quantity), suspended
		}
	}
	maps.DeleteFunc(m.positions, func(id string, p *modelPosition) bool { return p.subscription == subscription && !wanted[id] })
}

func (m *model) suspend(subscription string) {
	for _, p := range m.positions {
		p.suspended = p.suspended || p.subscription == subscription
	}
}

func (m *model) end(subscription string) {
	maps.DeleteFunc(m.positions, func(_ string, p *modelPosition) bool { return p.subscription == subscription })
}

// holds and has render what house.holds and house.has read.
func (m *model) holds(pool int) string {
	var out []string
	floor := true
	for id, p := range m.positions {
		if p.pool != pool {
			continue
		}
		if _, ranked := modelRank[p.product]; ranked {
			floor = false
		}
		times, status := "", "active"
		if p.quantity > 1 {
			times = fmt.Sprintf("×%d", p.quantity)
		}
		if p.suspended {
			status = "suspended"
		}
		out = append(out, fmt.Sprintf("%s%s %s %s", p.product, times, id, status))
	}
	if floor {
		out = append(out, "free default active")
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func (m *model) has(pool int) string {
	var top *modelPosition
	var conferring []*modelPosition
	for _, p := range m.positions {
		if p.pool != pool {
			continue
		}
		rank, ranked := modelRank[p.product]
		switch {
		case !ranked && !p.suspended:
			conferring = append(conferring, p)
		case ranked && (top == nil || cmp.Or(cmp.Compare(rank, modelRank[top.product]), cmp.Compare(top.since, p.since)) > 0):
			top = p
		}
	}
	switch {
	case top == nil:
		conferring = append(conferring, &modelPosition{product: "free", quantity: 1})
	case !top.suspended:
		conferring = append(conferring, top)
	}
	storage, speed, support := 0, 0, false
	for _, p := range conferring {
		r := modelProducts[p.product]
		storage += r.storage * p.quantity
		speed = max(speed, r.speed)
		support = support || r.support
	}
	var out []string
	if speed > 0 {
		out = append(out, fmt.Sprintf("speed=%d", speed))
	}
	if storage > 0 {
		out = append(out, fmt.Sprintf("storage=%d", storage))
	}
	if support {
		out = append(out, "support=true")
	}
	return strings.Join(out, " ")
}

// replayed is what the ledger says that a pool may use, with a mark where a line does not go on from the one before.
const replayed = `
	SELECT coalesce(string_agg(resource_key || '=' || (to_value #>> '{}') || CASE WHEN broken THEN ' BROKEN' ELSE '' END, ' ' ORDER BY resource_key), '')
	FROM (SELECT DISTINCT ON (resource_key) resource_key, to_value, bool_or(gap) OVER (PARTITION BY resource_key) AS broken
	      FROM (SELECT *, from_value IS DISTINCT FROM lag(to_value) OVER (PARTITION BY resource_key ORDER BY id) AS gap
	            FROM core.ledger WHERE pool_id = $1) l
	      ORDER BY resource_key, id DESC) last
	WHERE to_value IS NOT NULL OR broken`

// Whatever is done in whatever order: positions, entitlements and ledger are those of the model, and doing the last
// thing again writes nothing.
func TestAnyActsComeToWhatTheModelSays(t *testing.T) {
	t.Parallel()
	shared := newHouse(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		h := *shared
		h.t = rt
		run++
		name := func(s string) string { return fmt.Sprintf("%s_%d", s, run) }
		pools := []uuid.UUID{h.org(fmt.Sprintf("a-%d", run), "club").DefaultPool, h.org(fmt.Sprintf("b-%d", run), "club").DefaultPool}
		m := &model{positions: map[string]*modelPosition{}}
		check := func() {
			for i, pool := range pools {
				require.Equal(rt, m.holds(i), h.holds(pool))
				require.Equal(rt, m.has(i), h.has(pool))
				require.Equal(rt, m.has(i), h.one(replayed, pool), "the ledger replays to what the pool has")
			}
		}
		check()
		for range rapid.IntRange(1, 10).Draw(rt, "acts") {
			sub := rapid.IntRange(1, 3).Draw(rt, "subscription")
			id := name(fmt.Sprintf("sub_%d", sub))
			var act func()
			switch rapid.SampledFrom([]string{"converge", "converge", "converge", "suspend", "end"}).Draw(rt, "act") {
			case "converge":
				pool := rapid.IntRange(0, 1).Draw(rt, "pool")
				// One product of the ladder for each subscription: of two that begin at one instant either may confer.
				var items []item
				if rapid.Bool().Draw(rt, "ladder") {
					items = append(items, item{name(fmt.Sprintf("it_%d_ladder", sub)), rapid.SampledFrom([]string{"free", "silver", "gold"}).Draw(rt, "tier"), rapid.Int64Range(0, 3).Draw(rt, "quantity")})
				}
				if rapid.Bool().Draw(rt, "more") {
					items = append(items, item{name(fmt.Sprintf("it_%d_more", sub)), rapid.SampledFrom([]string{"disk", "turbo", "plain"}).Draw(rt, "product"), rapid.Int64Range(0, 3).Draw(rt, "quantity")})
				}
				suspended := rapid.IntRange(0, 3).Draw(rt, "suspended") == 0
				act = func() {
					_, err := h.tryConverge(entitlements.Subscription{ID: id, Pool: pools[pool], Items: h.items(items), Suspended: suspended})
					require.NoError(rt, err)
				}
				m.converge(id, pool, suspended, items)
			case "suspend":
				act = func() { h.suspend(id) }
				m.suspend(id)
			case "end":
				act = func() { h.end(id) }
				m.end(id)
			}
			act()
			check()
			before := []string{h.rows(pools[0]), h.rows(pools[1])}
			act()
			require.Equal(rt, before, []string{h.rows(pools[0]), h.rows(pools[1])}, "the second time nothing is written")
		}
	})
}
