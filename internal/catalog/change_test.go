package catalog_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/catalog"
	"github.com/bursarhq/bursar/lockorder"
)

func TestApplyAndAgain(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	p := h.mustApply(base)
	require.Contains(t, p.Changes, entitlements.Change{Op: entitlements.Added, Object: "resource key", Name: "storage", To: "numeric, sum"})
	require.Contains(t, p.Changes, entitlements.Change{Op: entitlements.Added, Object: "set", Name: "gold", What: "support", To: "yes"})
	require.Contains(t, p.Changes, entitlements.Change{Op: entitlements.Added, Object: "ladder", Name: "membership", What: "tiers", To: "free < silver < gold"})
	require.Contains(t, p.Changes, entitlements.Change{Op: entitlements.Added, Object: "organisation type", Name: "club", What: "default", To: "free"})
	require.Contains(t, p.Changes, entitlements.Change{Op: entitlements.Added, Object: "Stripe product", Name: "prod_gold", What: "product", To: "gold"})
	require.Zero(t, p.Pools)
	require.Equal(t, "free 0, silver 1, gold 2", h.one(`SELECT string_agg(p.slug || ' ' || t.rank, ', ' ORDER BY t.rank) FROM core.tiers t JOIN core.products p ON p.id = t.product_id`))
	require.Equal(t, "price_gold gold, price_gold_year gold, price_silver silver",
		h.one(`SELECT string_agg(m.stripe_price_id || ' ' || p.slug, ', ' ORDER BY 1) FROM stripe.price_mappings m JOIN core.products p ON p.id = m.product_id`))
	require.Equal(t, "Silver rules", h.one(`SELECT name FROM core.entitlement_sets WHERE slug = 'silver'`))
	require.Equal(t, "free", h.one(`SELECT name FROM core.entitlement_sets WHERE slug = 'free'`), "without a name the id is the name")

	before := h.everything()
	again := h.mustApply(base)
	require.Empty(t, again.Changes)
	require.Equal(t, before, h.everything(), "again it writes nothing")
}

func TestAChangeIsSettledInTheSameTransaction(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.mustApply(base)
	acme, other := h.org("acme"), h.org("other")
	h.subscribe(acme, "1", "price_gold", "prod_gold", "gold", "active")
	require.Equal(t, "speed=20 storage=200 support=true", h.has(acme))
	ledger := h.one(`SELECT max(id)::text FROM core.ledger`)

	text := with(t, "storage: 100", "storage: 150", "      support: true\n", "")
	before := h.everything()
	shown, err := h.plan(text)
	require.NoError(t, err)
	require.Equal(t, before, h.everything(), "a look changes nothing")
	require.Equal(t, 1, shown.Pools)
	require.Equal(t, []catalog.Effect{{Organization: "acme", Pool: "default", Changes: []catalog.ValueChange{
		{Key: "storage", From: entitlements.Number(200), To: entitlements.Number(300)},
		{Key: "support", From: entitlements.Yes(true)},
	}}}, shown.Effects)
	require.Equal(t, []entitlements.Change{
		{Op: entitlements.Changed, Object: "set", Name: "gold", What: "storage", From: "100", To: "150"},
		{Op: entitlements.Removed, Object: "set", Name: "gold", What: "support", From: "yes"},
	}, shown.Changes)

	done := h.mustApply(text)
	require.Equal(t, "catalog 0", h.one(`SELECT kind || ' ' || owed FROM core.changes WHERE id = $1::uuid`, done.Change))
	done.Change = ""
	require.Equal(t, shown, done)
	require.Equal(t, "speed=20 storage=300", h.has(acme))
	require.Equal(t, "speed=1 storage=1", h.has(other))
	require.Equal(t, "storage 200 → 300 (catalog-apply), support true →  (catalog-apply)",
		h.one(`SELECT string_agg(concat(resource_key, ' ', from_value, ' → ', to_value, ' (', act, ')'), ', ' ORDER BY id) FROM core.ledger WHERE id > $1::bigint`, ledger))
}

func TestReach(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text     func(t *testing.T) string
		pools    int
		has      string // of the organisation with gold
		floorHas string // of the organisation with the default
	}{
		"a rule of the floor": {func(t *testing.T) string { return with(t, "{storage: 1, speed: 1}", "{storage: 2, speed: 1}") },
			1, "speed=20 storage=200 support=true", "speed=1 storage=2"},
		"a product's sets": {func(t *testing.T) string { return with(t, "sets: [gold]", "sets: [gold, silver]") },
			1, "speed=20 storage=220 support=true", "speed=1 storage=1"},
		"a key's aggregation": {func(t *testing.T) string {
			return with(t, "kind: numeric, description", "kind: numeric, aggregation: max, description")
		},
			2, "speed=20 storage=100 support=true", "speed=1 storage=1"},
		"a type's default": {func(t *testing.T) string {
			return with(t, "products:\n", "products:\n  - {id: basic, sets: [silver]}\n", "default: free", "default: basic", "tiers: [free, silver, gold]", "tiers: [free, silver, gold]")
		}, 2, "speed=20 storage=210 support=true", "speed=5 storage=10"},
		"no default any more": {func(t *testing.T) string { return with(t, ", default: free", "") }, 2, "speed=20 storage=200 support=true", ""},
		"a new floor under the old": {func(t *testing.T) string {
			return with(t, "products:\n", "products:\n  - {id: basic, sets: [silver]}\n", "default: free", "default: basic", "tiers: [free,", "tiers: [basic, free,")
		}, 2, "speed=20 storage=200 support=true", "speed=5 storage=10"},
		"a description": {func(t *testing.T) string { return with(t, "Gigabytes", "GB") }, 0, "speed=20 storage=200 support=true", "speed=1 storage=1"},
		"names": {func(t *testing.T) string {
			return with(t, "name: Gold", "name: Golden", "name: Club", "name: Clubs", "name: Membership", "name: M")
		}, 0, "speed=20 storage=200 support=true", "speed=1 storage=1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.mustApply(base)
			acme, other := h.org("acme"), h.org("other")
			h.subscribe(acme, "1", "price_gold", "prod_gold", "gold", "active")
			text := c.text(t)
			require.Equal(t, c.pools, h.mustApply(text).Pools)
			require.Equal(t, c.has, h.has(acme))
			require.Equal(t, c.floorHas, h.has(other))
			require.Empty(t, h.mustApply(text).Changes)
		})
	}
}

func TestReRankingWithHoldersIsSettled(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.mustApply(base)
	acme := h.org("acme")
	h.subscribe(acme, "1", "price_gold", "prod_gold", "gold", "active")
	h.subscribe(acme, "2", "price_silver", "prod_silver", "silver", "active")
	require.Equal(t, "speed=20 storage=200 support=true", h.has(acme))
	h.mustApply(with(t, "tiers: [free, silver, gold]", "tiers: [free, gold, silver]"))
	require.Equal(t, "speed=5 storage=20", h.has(acme), "silver is above gold now")
}

func TestALadderWithoutADefaultIsSettledToo(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.mustApply(with(t, ", default: free", ""))
	acme, idle := h.org("acme"), h.org("idle")
	h.subscribe(acme, "1", "price_gold", "prod_gold", "gold", "active")
	h.subscribe(acme, "2", "price_silver", "prod_silver", "silver", "active")
	p := h.mustApply(with(t, ", default: free", "", "tiers: [free, silver, gold]", "tiers: [free, gold, silver]"))
	require.Equal(t, 1, p.Pools)
	require.Equal(t, "speed=5 storage=20", h.has(acme))
	require.Empty(t, h.has(idle))

	// What was on no ladder adds up; on one, only the highest counts.
	h.mustApply(with(t, ", default: free", "", "tiers: [free, silver, gold]", "tiers: [free, gold, silver]",
		"products:\n", "products:\n  - {id: disk, sets: [free]}\n"))
	h.subscribe(acme, "3", "price_disk", "prod_disk", "disk", "active")
	require.Equal(t, "speed=5 storage=22", h.has(acme))
	p = h.mustApply(with(t, ", default: free", "", "tiers: [free, silver, gold]", "tiers: [free, gold, silver, disk]",
		"products:\n", "products:\n  - {id: disk, sets: [free]}\n"))
	require.Equal(t, 1, p.Pools)
	require.Equal(t, "speed=1 storage=2", h.has(acme))
}

func TestAHeldTierIsNotTakenOffItsLadder(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.mustApply(base)
	h.subscribe(h.org("acme"), "1", "price_gold", "prod_gold", "gold", "active")
	before := h.everything()
	_, err := h.apply(with(t, "tiers: [free, silver, gold]", "tiers: [free, silver]"))
	require.EqualError(t, err, "catalog.yaml:19: ladder membership loses tier gold, and pools hold that (1); end or move what they hold first, or keep the tier")
	require.Equal(t, before, h.everything())
	// Silver, which nobody holds, may go.
	h.mustApply(with(t, "tiers: [free, silver, gold]", "tiers: [free, gold]"))
}

func TestChangedMappingMovesPositions(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.mustApply(base)
	paid, suspended, byProduct := h.org("paid"), h.org("suspended"), h.org("by-product")
	h.subscribe(paid, "1", "price_silver", "prod_silver", "silver", "active")
	h.subscribe(suspended, "2", "price_silver", "prod_silver", "silver", "paused")
	h.subscribe(byProduct, "3", "price_other", "prod_gold", "gold", "active")
	p := h.mustApply(with(t, "prices: [price_silver]", "prices: []", "prices: [price_gold, ", "prices: [price_gold, price_silver, "))
	require.Equal(t, 2, p.Pools)
	require.Equal(t, 2, p.Moved)
	require.Equal(t, []entitlements.Change{{Op: entitlements.Changed, Object: "Stripe price", Name: "price_silver", What: "product", From: "silver", To: "gold"}}, p.Changes)
	require.Equal(t, "gold si_1 2 active", h.holds(paid))
	require.Equal(t, "speed=20 storage=200 support=true", h.has(paid))
	require.Equal(t, "gold si_2 2 suspended", h.holds(suspended), "what was suspended stays so")
	require.Empty(t, h.has(suspended))
	require.Equal(t, "gold si_3 2 active", h.holds(byProduct))
	require.Equal(t, "mapping_changed", h.one(`SELECT string_agg(DISTINCT end_reason, ',') FROM core.positions WHERE item_id IS NOT NULL AND status = 'ended'`))

	// A price's own mapping goes before its product's, also when it is new.
	p = h.mustApply(with(t, "prices: [price_silver]", "prices: [price_other]"))
	require.Equal(t, 1, p.Moved)
	require.Equal(t, "silver si_3 2 active", h.holds(byProduct))
	require.Contains(t, p.Left, catalog.Left{Object: "Stripe price", Name: "price_silver"}, "a mapping that the file does not list stays, and is told")
}

func TestAbsentObjectsAreLeftAsTheyAre(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.mustApply(base)
	before := h.everything()
	p := h.mustApply("sets:\n  - {id: gold, rules: {storage: 100, speed: 20, support: true}}\n")
	require.Empty(t, p.Changes)
	require.Equal(t, before, h.everything())
	for _, left := range []catalog.Left{
		{Object: "resource key", Name: "speed"}, {Object: "set", Name: "free"}, {Object: "product", Name: "gold"}, {Object: "ladder", Name: "membership"},
		{Object: "organisation type", Name: "club"}, {Object: "Stripe price", Name: "price_gold"}, {Object: "Stripe product", Name: "prod_gold"},
	} {
		require.Contains(t, p.Left, left)
	}
	require.NotContains(t, p.Left, catalog.Left{Object: "set", Name: "gold"})

	// References may name what only the database has.
	h.mustApply("products:\n  - {id: platinum, sets: [gold]}\n")
	require.Empty(t, h.mustApply("").Changes, "an empty file changes nothing")
}

// Above the cap a change commits at once and leaves every pool that it reaches owed; what it does to them is not shown before.
func TestAboveTheCapPoolsAreOwed(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.mustApply(base)
	for i := range entitlements.SyncCap {
		h.org(fmt.Sprintf("org-%d", i))
	}
	changed := with(t, "{storage: 1, speed: 1}", "{storage: 2, speed: 1}")
	shown, err := h.plan(changed)
	require.NoError(t, err)
	require.Equal(t, entitlements.SyncCap, shown.Pools, "as many as the cap are settled")
	require.Zero(t, shown.Owed)

	late := h.org("one-more")
	before := h.everything()
	shown, err = h.plan(changed)
	require.NoError(t, err)
	require.Equal(t, []int{51, 51}, []int{shown.Pools, shown.Owed})
	require.Empty(t, shown.Effects)
	require.Equal(t, before, h.everything(), "a look changes nothing")

	h.org("meanwhile")
	done, err := h.applyShown(changed, shown)
	require.NoError(t, err, "how many pools are owed may move between the look and the change")
	require.Equal(t, []int{52, 52}, []int{done.Pools, done.Owed})
	require.Equal(t, "catalog 52 catalogue: set free", h.one(`SELECT concat_ws(' ', kind, owed, summary) FROM core.changes WHERE id = $1::uuid`, done.Change))
	require.Equal(t, "52", h.one(`SELECT count(*)::text FROM core.change_obligations WHERE change_id = $1::uuid AND state = 'open'`, done.Change))
	require.Equal(t, "speed=1 storage=1", h.has(late))

	// A conferral settles what its pool is owed, before anything else.
	h.lockPools(late)
	require.Equal(t, "speed=1 storage=2", h.has(late))
	require.Equal(t, "catalog-apply", h.one(`SELECT settled_act FROM core.change_obligations WHERE pool_id = $1 AND state = 'settled'`, late.DefaultPool))
}

// Positions whose price is mapped anew move with the change, however many they are.
func TestAboveTheCapPositionsMove(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.mustApply(base)
	var orgs []entitlements.Organization
	for i := range entitlements.SyncCap + 1 {
		org := h.org(fmt.Sprintf("org-%d", i))
		h.subscribe(org, fmt.Sprint(i), "price_silver", "prod_silver", "silver", []string{"active", "paused"}[i%2])
		orgs = append(orgs, org)
	}
	done := h.mustApply(with(t, "[price_silver]", "[]", "[price_gold, price_gold_year]", "[price_gold, price_gold_year, price_silver]"))
	require.Equal(t, []int{51, 51, 51}, []int{done.Pools, done.Owed, done.Moved})
	require.Equal(t, "active gold 26, suspended gold 25", h.one(`SELECT string_agg(concat_ws(' ', status, slug, n), ', ' ORDER BY status) FROM (
		SELECT x.status, p.slug, count(*) AS n FROM core.positions x JOIN core.products p ON p.id = x.product_id
		WHERE x.source = 'subscription' AND x.status <> 'ended' GROUP BY 1, 2) held`))
	require.Equal(t, "speed=5 storage=20", h.has(orgs[0]), "it is owed")
	h.lockPools(orgs...)
	require.Equal(t, "speed=20 storage=200 support=true", h.has(orgs[0]))
	require.Empty(t, h.has(orgs[1]), "what is suspended confers nothing")
}

func TestDriftBetweenTheLookAndTheChangeStopsIt(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(h *house){
		"another change of the catalogue": func(h *house) { h.mustApply(with(h.t, "storage: 100", "storage: 120")) },
		"another holder":                  func(h *house) { h.subscribe(h.org("late"), "9", "price_gold", "prod_gold", "gold", "active") },
		"the same change":                 func(h *house) { h.mustApply(with(h.t, "storage: 100", "storage: 150")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			h.mustApply(base)
			h.subscribe(h.org("acme"), "1", "price_gold", "prod_gold", "gold", "active")
			f := parse(t, with(t, "storage: 100", "storage: 150"))
			shown, err := catalog.Plan(t.Context(), h.db, f)
			require.NoError(t, err)
			meanwhile(h)
			before := h.everything()
			_, err = catalog.Apply(t.Context(), h.db, f, shown)
			require.ErrorIs(t, err, catalog.ErrDrift)
			require.Equal(t, before, h.everything())
		})
	}
}

// A conferral under way is finished first; while it is, the change waits and then sees it.
func TestAChangeWaitsForConferrals(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.mustApply(base)
	acme := h.org("acme")
	inside, release, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- h.db.Run(context.WithoutCancel(t.Context()), lockorder.Spec{Path: "test", Kind: lockorder.Materializing}, func(ctx context.Context, tx *lockorder.Tx) error {
			err := tx.Lock(ctx, lockorder.PoolRow(acme.DefaultPool))
			close(inside)
			<-release
			return err
		})
	}()
	<-inside
	applied := make(chan error, 1)
	go func() {
		_, err := h.apply(with(t, "{storage: 1, speed: 1}", "{storage: 2, speed: 1}"))
		applied <- err
	}()
	require.Eventually(t, func() bool {
		return h.one(`SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) == "1"
	}, 10e9, 5e6)
	close(release)
	require.NoError(t, <-done)
	require.NoError(t, <-applied)
	require.Equal(t, "speed=1 storage=2", h.has(acme))
}
