package entitlements_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/lockorder"
)

// changer is a change of what products give.
type changer interface {
	Do(ctx context.Context, tx *lockorder.Tx, act entitlements.Act) (entitlements.Outcome, error)
}

func (h *house) tryChange(path string, kind lockorder.Kind, c changer) (entitlements.Outcome, error) {
	var out entitlements.Outcome
	err := h.db.Run(h.t.Context(), lockorder.Spec{Path: path, Kind: kind}, func(ctx context.Context, tx *lockorder.Tx) (err error) {
		out, err = c.Do(ctx, tx, act)
		return err
	})
	return out, err
}

func (h *house) ladder(path string, c changer) entitlements.Outcome {
	h.t.Helper()
	out, err := h.tryChange(path, lockorder.RuleChange, c)
	require.NoError(h.t, err)
	return out
}

// tiers prints a ladder, the floor first.
func (h *house) tiers() string {
	h.t.Helper()
	return h.one(`SELECT string_agg(p.slug || ':' || t.rank, ' ' ORDER BY t.rank) FROM core.tiers t JOIN core.products p ON p.id = t.product_id`)
}

// drain settles all that is owed, pool after pool.
func (h *house) drain() {
	h.t.Helper()
	for {
		pool := h.one(`SELECT min(pool_id::text) FROM core.change_obligations WHERE state = 'open'`)
		if pool == "" {
			return
		}
		require.NoError(h.t, h.db.Run(h.t.Context(), lockorder.Spec{Path: "rule-change-drain", Kind: lockorder.Materializing}, func(ctx context.Context, tx *lockorder.Tx) error {
			return entitlements.LockPools(ctx, tx, uuid.MustParse(pool))
		}))
	}
}

// reads returns what a pool may use as it is read, "speed=5 storage=10".
func (h *house) reads(pool uuid.UUID) string {
	h.t.Helper()
	return h.one(`SELECT coalesce(string_agg(resource_key || '=' || coalesce(numeric_value::text, boolean_value::text), ' ' ORDER BY resource_key), '')
		FROM core.aggregate_pool($1, core.clock())`, pool)
}

func TestATierIsAdded(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	pool := h.org("acme", "club").DefaultPool
	h.converge("sub_1", pool, item{"si_1", "turbo", 1})
	h.converge("sub_2", pool, item{"si_2", "silver", 1})
	require.Equal(t, "speed=9 storage=10", h.has(pool))

	// Off the ladder it adds; on it the higher of the two is used.
	one := 1
	out := h.ladder("tier-add", entitlements.AddTier{Change: uuid.New(), Product: "turbo", Ladder: "membership", Rank: &one})
	require.Equal(t, 1, out.Pools)
	require.Equal(t, "free:0 turbo:1 silver:2 gold:3", h.tiers())
	require.Equal(t, "speed=5 storage=10", h.has(pool))
	require.Equal(t, []entitlements.Effect{{Organization: "acme", Pool: "default", Changes: []entitlements.ValueChange{
		{Key: "speed", From: entitlements.Number(9), To: entitlements.Number(5)}}}}, out.Effects)

	// Asked for again under its id it stands, and nothing is done.
	again := h.ladder("tier-add", entitlements.AddTier{Change: out.Change, Product: "turbo", Ladder: "membership", Rank: &one})
	require.True(t, again.Repeated)
	require.Equal(t, "free:0 turbo:1 silver:2 gold:3", h.tiers())

	// The floor gives way to what becomes a tier beside it.
	other := h.org("other", "club").DefaultPool
	h.converge("sub_3", other, item{"si_3", "disk", 1})
	require.Equal(t, "speed=1 storage=8", h.has(other))
	h.ladder("tier-add", entitlements.AddTier{Change: uuid.New(), Product: "disk", Ladder: "membership"})
	require.Equal(t, "storage=7", h.has(other))
	require.Equal(t, "disk si_3 active", h.holds(other))
}

func TestATierIsRemoved(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                 string
		remove               entitlements.RemoveTier
		has, holds, suspends string
	}{
		{"migrated to the floor", entitlements.RemoveTier{Disposition: entitlements.DispositionMigrate},
			"speed=1 storage=1", "free si_1 active", "free si_1 suspended"},
		{"migrated to another tier", entitlements.RemoveTier{Disposition: entitlements.DispositionMigrate, To: "silver"},
			"speed=5 storage=10", "silver si_1 active", "silver si_1 suspended"},
		{"ended", entitlements.RemoveTier{Disposition: entitlements.DispositionEnd},
			"speed=1 storage=1", "free default active", "free default active"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			pool := h.org("acme", "club").DefaultPool
			h.converge("sub_1", pool, item{"si_1", "gold", 1})
			c.remove.Change, c.remove.Product = uuid.New(), "gold"
			h.ladder("tier-remove", c.remove)
			require.Equal(t, "free:0 silver:1", h.tiers())
			require.Equal(t, c.has, h.has(pool))
			require.Equal(t, c.holds, h.holds(pool))

			// The subscription goes on for the same product, and what was decided stays.
			h.converge("sub_1", pool, item{"si_1", "gold", 1})
			require.Equal(t, c.holds, h.holds(pool))
			_, err := h.tryConverge(entitlements.Subscription{ID: "sub_1", Pool: pool, Items: h.items([]item{{"si_1", "gold", 1}}), Suspended: true})
			require.NoError(t, err)
			require.Equal(t, c.suspends, h.holds(pool))

			// A tier again, it is held itself again.
			h.ladder("tier-add", entitlements.AddTier{Change: uuid.New(), Product: "gold", Ladder: "membership"})
			h.converge("sub_1", pool, item{"si_1", "gold", 1})
			require.Equal(t, "gold si_1 active", h.holds(pool))
		})
	}
}

func TestRemovalsInTurnStayFlat(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	pool := h.org("acme", "club").DefaultPool
	h.converge("sub_1", pool, item{"si_1", "gold", 2})
	h.ladder("tier-remove", entitlements.RemoveTier{Change: uuid.New(), Product: "gold", Disposition: entitlements.DispositionMigrate, To: "silver"})
	h.ladder("tier-remove", entitlements.RemoveTier{Change: uuid.New(), Product: "silver", Disposition: entitlements.DispositionMigrate})
	require.Equal(t, "free×2 si_1 active", h.holds(pool))
	require.Equal(t, "gold>free silver>free", h.one(`SELECT string_agg(p.slug || '>' || s.slug, ' ' ORDER BY p.slug)
		FROM core.successions x JOIN core.products p ON p.id = x.product_id JOIN core.products s ON s.id = x.successor_id`))
	h.converge("sub_1", pool, item{"si_1", "gold", 2})
	require.Equal(t, "free×2 si_1 active", h.holds(pool))
}

func TestTiersAreReordered(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	pool := h.org("acme", "club").DefaultPool
	h.converge("sub_1", pool, item{"si_1", "gold", 1})
	h.converge("sub_2", pool, item{"si_2", "silver", 1})
	alone := h.org("alone", "club").DefaultPool
	h.converge("sub_3", alone, item{"si_3", "gold", 1})
	out := h.ladder("tier-reorder", entitlements.ReorderTiers{Change: uuid.New(), Ladder: "membership", Products: []string{"free", "gold", "silver"}})
	require.Equal(t, 1, out.Pools, "the order decides only where two of them are held")
	require.Equal(t, "free:0 gold:1 silver:2", h.tiers())
	require.Equal(t, "speed=5 storage=10", h.has(pool))
	require.Equal(t, "speed=20 storage=100 support=true", h.has(alone))
}

// A type whose default is the floor has the new floor for its default, whether it comes by a new order or by a new tier.
func TestTheDefaultFollowsTheFloor(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	vacant, better, bare := h.org("vacant", "club").DefaultPool, h.org("better", "club").DefaultPool, h.org("none", "bare").DefaultPool
	h.converge("sub_1", better, item{"si_1", "gold", 1})
	out := h.ladder("tier-reorder", entitlements.ReorderTiers{Change: uuid.New(), Ladder: "membership", Products: []string{"silver", "free", "gold"}})
	require.Equal(t, "the tiers of membership are silver, free, gold; silver is its floor, and the default of club", out.Summary)
	require.Equal(t, 2, out.Pools)
	require.Equal(t, "silver default active", h.holds(vacant))
	require.Equal(t, "speed=5 storage=10", h.has(vacant))
	require.Equal(t, "gold si_1 active", h.holds(better))
	require.Equal(t, "", h.holds(bare))

	zero := 0
	h.ladder("tier-add", entitlements.AddTier{Change: uuid.New(), Product: "turbo", Ladder: "membership", Rank: &zero})
	require.Equal(t, "turbo default active", h.holds(vacant))
	h.end("sub_1")
	require.Equal(t, "turbo default active", h.holds(better))

	// A default that sits elsewhere follows nothing.
	_, err := h.save(entitlements.SaveDefault{Type: "club", Product: "disk", Incumbents: entitlements.IncumbentsGrandfather})
	require.NoError(t, err)
	h.ladder("tier-reorder", entitlements.ReorderTiers{Change: uuid.New(), Ladder: "membership", Products: []string{"free", "turbo", "silver", "gold"}})
	h.drain()
	require.Equal(t, "disk default active, turbo grant active", h.holds(vacant))

	// While a default has not reached everyone, it cannot follow.
	_, err = h.save(entitlements.SaveDefault{Type: "club", Product: "free", Incumbents: entitlements.IncumbentsMigrate})
	require.NoError(t, err)
	_, err = h.tryChange("tier-reorder", lockorder.RuleChange, entitlements.ReorderTiers{Change: uuid.New(), Ladder: "membership", Products: []string{"turbo", "free", "silver", "gold"}})
	require.ErrorIs(t, err, entitlements.ErrInProgress)
}

func TestTierRefusals(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	pool := h.org("acme", "club").DefaultPool
	h.converge("sub_1", pool, item{"si_1", "silver", 1})
	minus, four := -1, 4
	id := uuid.New()
	h.one(`WITH made AS (INSERT INTO core.ladders (slug, name) VALUES ('bare', 'Bare') RETURNING slug) SELECT slug FROM made`)
	before := h.rows(pool) + h.tiers()
	for name, c := range map[string]struct {
		do   changer
		says string
		is   error
	}{
		"no such product":          {entitlements.AddTier{Change: id, Product: "gol", Ladder: "membership"}, `no product is called "gol"; near it: gold`, entitlements.ErrNotFound},
		"no such ladder":           {entitlements.AddTier{Change: id, Product: "disk", Ladder: "member"}, `near it: membership`, entitlements.ErrNotFound},
		"a tier already":           {entitlements.AddTier{Change: id, Product: "gold", Ladder: "membership"}, "gold is tier 2 of membership already", entitlements.ErrInvalid},
		"a negative rank":          {entitlements.AddTier{Change: id, Product: "disk", Ladder: "membership", Rank: &minus}, "give 0 to 3", entitlements.ErrInvalid},
		"a rank beyond the top":    {entitlements.AddTier{Change: id, Product: "disk", Ladder: "membership", Rank: &four}, "whose tiers are free, silver, gold; give 0 to 3", entitlements.ErrInvalid},
		"no tier":                  {entitlements.RemoveTier{Change: id, Product: "disk", Disposition: "end"}, "disk is no tier", entitlements.ErrInvalid},
		"a default":                {entitlements.RemoveTier{Change: id, Product: "free", Disposition: "end"}, "free is the default of club; change that first", entitlements.ErrInvalid},
		"held and nothing said":    {entitlements.RemoveTier{Change: id, Product: "silver"}, "1 pool holds silver; say what becomes of them", entitlements.ErrInvalid},
		"to a stranger":            {entitlements.RemoveTier{Change: id, Product: "silver", Disposition: "migrate", To: "disk"}, "disk is no tier of membership; holders can be migrated to free, gold", entitlements.ErrInvalid},
		"to itself":                {entitlements.RemoveTier{Change: id, Product: "silver", Disposition: "migrate", To: "silver"}, "cannot be migrated to itself", entitlements.ErrInvalid},
		"ended and to another":     {entitlements.RemoveTier{Change: id, Product: "silver", Disposition: "end", To: "gold"}, "not to be migrated", entitlements.ErrInvalid},
		"another disposition":      {entitlements.RemoveTier{Change: id, Product: "silver", Disposition: "forget"}, `disposition "forget" is neither migrate nor end`, entitlements.ErrInvalid},
		"a stranger in the order":  {entitlements.ReorderTiers{Change: id, Ladder: "membership", Products: []string{"free", "silver", "disk"}}, "disk is no tier of membership", entitlements.ErrInvalid},
		"one twice in the order":   {entitlements.ReorderTiers{Change: id, Ladder: "membership", Products: []string{"free", "free", "gold"}}, "free is no tier of membership, or is named twice", entitlements.ErrInvalid},
		"one missing in the order": {entitlements.ReorderTiers{Change: id, Ladder: "membership", Products: []string{"free", "gold"}}, "names 2 of the 3 tiers", entitlements.ErrInvalid},
		"a ladder without tiers":   {entitlements.ReorderTiers{Change: id, Ladder: "bare"}, "bare has no tiers yet", entitlements.ErrInvalid},
	} {
		_, err := h.tryChange("test-tier-refused", lockorder.RuleChange, c.do)
		require.ErrorIs(t, err, c.is, name)
		require.ErrorContains(t, err, c.says, name)
		require.Equal(t, before, h.rows(pool)+h.tiers(), name)

		// It is told beforehand too, without a lock.
		err = c.do.(interface {
			Validate(ctx context.Context, q lockorder.Querier) error
		}).Validate(t.Context(), h.db.Reader())
		require.ErrorIs(t, err, c.is, name)
		require.ErrorContains(t, err, c.says, name)
	}
	require.Equal(t, "0", h.one(`SELECT count(*)::text FROM core.changes`))
	require.NoError(t, entitlements.AddTier{Product: "disk", Ladder: "membership"}.Validate(t.Context(), h.db.Reader()))
}

// More pools than the cap are owed; reads follow the new rules at once, and what is materialized does when each is drained.
func TestATierRemovedAboveTheCap(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	var pools []uuid.UUID
	for i := range entitlements.SyncCap + 1 {
		pool := h.org(fmt.Sprintf("org-%02d", i), "club").DefaultPool
		h.converge(fmt.Sprintf("sub_%d", i), pool, item{fmt.Sprintf("si_%d", i), "gold", 1})
		pools = append(pools, pool)
	}
	out := h.ladder("tier-remove", entitlements.RemoveTier{Change: uuid.New(), Product: "gold", Disposition: entitlements.DispositionMigrate, To: "silver"})
	require.Equal(t, len(pools), out.Owed)
	require.Equal(t, "speed=20 storage=100 support=true", h.has(pools[0]))
	require.Equal(t, "speed=5 storage=10", h.reads(pools[0]))

	// Whoever changes a pool first settles what it is owed, in the name of the change.
	h.converge("sub_disk", pools[1], item{"si_disk", "disk", 1})
	require.Equal(t, "speed=5 storage=17", h.has(pools[1]))
	require.Equal(t, "50", h.one(`SELECT count(*)::text FROM core.change_obligations WHERE state = 'open'`))
	h.drain()
	for _, pool := range pools {
		require.Equal(t, h.reads(pool), h.has(pool))
	}
	require.Equal(t, "silver si_0 active", h.holds(pools[0]))
}

// A tier that is put back before its removal has reached every pool would end differently for each: it waits. So does a default
// while a floor that it follows has not reached everyone.
func TestWhatHasNotReachedEveryoneIsNotTurnedBack(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for i := range entitlements.SyncCap + 1 {
		pool := h.org(fmt.Sprintf("org-%02d", i), "club").DefaultPool
		h.converge(fmt.Sprintf("sub_%d", i), pool, item{fmt.Sprintf("si_%d", i), "gold", 1})
	}
	h.ladder("tier-remove", entitlements.RemoveTier{Change: uuid.New(), Product: "gold", Disposition: entitlements.DispositionEnd})
	back := entitlements.AddTier{Change: uuid.New(), Product: "gold", Ladder: "membership"}
	_, err := h.tryChange("tier-add", lockorder.RuleChange, back)
	require.ErrorIs(t, err, entitlements.ErrInProgress)
	h.drain()
	h.ladder("tier-add", back)

	out := h.ladder("tier-reorder", entitlements.ReorderTiers{Change: uuid.New(), Ladder: "membership", Products: []string{"silver", "free", "gold"}})
	require.Equal(t, entitlements.SyncCap+1, out.Owed)
	_, err = h.save(entitlements.SaveDefault{Type: "club", Product: "turbo", Incumbents: entitlements.IncumbentsGrandfather})
	require.ErrorIs(t, err, entitlements.ErrInProgress)
	h.drain()
	_, err = h.save(entitlements.SaveDefault{Type: "club", Product: "turbo", Incumbents: entitlements.IncumbentsGrandfather})
	require.NoError(t, err)
}

func (h *house) save(s entitlements.SaveDefault) (entitlements.Outcome, error) {
	s.Change = uuid.New()
	return h.tryChange("default-save", lockorder.Plain, s)
}

// A new default meets who holds nothing there, who holds another default, and who holds something better.
func TestADefaultIsChanged(t *testing.T) {
	t.Parallel()
	for incumbents, want := range map[string]struct{ incumbent, holds string }{
		entitlements.IncumbentsMigrate:     {"speed=5 storage=10", "silver default active"},
		entitlements.IncumbentsGrandfather: {"speed=1 storage=1", "free grant active"},
	} {
		t.Run(incumbents, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			incumbent, better := h.org("incumbent", "club").DefaultPool, h.org("better", "club").DefaultPool
			stranger := h.org("stranger", "bare").DefaultPool
			h.converge("sub_1", better, item{"si_1", "gold", 1})
			save := entitlements.SaveDefault{Type: "club", Product: "silver", Incumbents: incumbents}
			buckets, err := save.Preview(t.Context(), h.db.Reader())
			require.NoError(t, err)
			require.Equal(t, entitlements.Buckets{Incumbents: 1, Untouched: 1}, buckets)
			out, err := h.save(save)
			require.NoError(t, err)
			require.Equal(t, 2, out.Owed)
			require.Equal(t, "speed=1 storage=1", h.has(incumbent), "it is saved, and enacted for nobody yet")

			_, err = h.save(entitlements.SaveDefault{Type: "club", Product: "gold", Incumbents: incumbents})
			require.ErrorIs(t, err, entitlements.ErrInProgress)
			fresh := h.org("fresh", "club").DefaultPool
			require.Equal(t, "speed=5 storage=10", h.has(fresh), "who comes after it has the new one")

			h.drain()
			require.Equal(t, want.incumbent, h.has(incumbent))
			require.Equal(t, want.holds, h.holds(incumbent))
			require.Equal(t, "speed=20 storage=100 support=true", h.has(better))
			require.Equal(t, "", h.has(stranger))
			h.end("sub_1")
			require.Equal(t, "silver default active", h.holds(better))
		})
	}
}

// What is grandfathered is so for whoever settles the pool first, and keeps its place.
func TestAConferralBeforeTheDrainGrandfathers(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	pool := h.org("acme", "club").DefaultPool
	since := h.one(`SELECT starts_at::text FROM core.positions WHERE pool_id = $1`, pool)
	_, err := h.save(entitlements.SaveDefault{Type: "club", Product: "silver", Incumbents: entitlements.IncumbentsGrandfather})
	require.NoError(t, err)
	h.converge("sub_1", pool, item{"si_1", "gold", 1})
	require.Equal(t, "free grant active, gold si_1 active", h.holds(pool))
	require.Equal(t, since, h.one(`SELECT starts_at::text FROM core.positions WHERE pool_id = $1 AND source = 'grant'`, pool))
	require.Equal(t, "replaced grandfathered", h.one(`SELECT state || ' ' || origin FROM core.grants WHERE pool_id = $1`, pool))
	h.end("sub_1")
	h.drain()
	require.Equal(t, "free grant active", h.holds(pool))
	require.Equal(t, "active", h.one(`SELECT state FROM core.grants WHERE pool_id = $1`, pool))
}

func TestDefaultRefusals(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.org("acme", "club")
	for name, c := range map[string]struct {
		do   entitlements.SaveDefault
		says string
		is   error
	}{
		"no such type":    {entitlements.SaveDefault{Type: "clubb", Product: "silver", Incumbents: "migrate"}, `no organisation type is called "clubb"`, entitlements.ErrNotFound},
		"no such product": {entitlements.SaveDefault{Type: "club", Product: "silvr", Incumbents: "migrate"}, "near it: silver", entitlements.ErrNotFound},
		"the same":        {entitlements.SaveDefault{Type: "club", Product: "free", Incumbents: "migrate"}, "the default of club is free already", entitlements.ErrInvalid},
		"unsaid":          {entitlements.SaveDefault{Type: "club", Product: "silver"}, "say migrate or grandfather", entitlements.ErrInvalid},
	} {
		_, err := h.save(c.do)
		require.ErrorIs(t, err, c.is, name)
		require.ErrorContains(t, err, c.says, name)
		_, err = c.do.Preview(t.Context(), h.db.Reader())
		require.ErrorIs(t, err, c.is, name)
		require.ErrorContains(t, err, c.says, name)
	}
	h.ladder("tier-delete", entitlements.RemoveTier{Change: uuid.New(), Product: "gold"})
	h.ladder("tier-remove", entitlements.RemoveTier{Change: uuid.New(), Product: "silver", Disposition: entitlements.DispositionEnd})
	_, err := h.save(entitlements.SaveDefault{Type: "club", Product: "silver", Incumbents: "migrate"})
	require.ErrorContains(t, err, "the tier of silver was removed, and nothing stands in its place")
	_, err = h.save(entitlements.SaveDefault{Type: "club", Incumbents: "migrate"})
	require.NoError(t, err, "no default is one too")
	_, err = entitlements.SaveDefault{Type: "club", Product: "free", Incumbents: "migrate"}.Preview(t.Context(), h.db.Reader())
	require.ErrorIs(t, err, entitlements.ErrInProgress)
	require.ErrorContains(t, err, "has yet to reach 1 organisation of type club; try again when it is through: bursar rule status")
	h.drain()
	require.Equal(t, "", h.one(`SELECT string_agg(resource_key, ' ') FROM core.pool_entitlements`))
}

func TestWhatCanBeHeldIsShown(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.converge("sub_1", h.org("acme", "club").DefaultPool, item{"si_1", "silver", 1})
	ladder, err := entitlements.ViewLadder(t.Context(), h.db.Reader(), "membership")
	require.NoError(t, err)
	require.Equal(t, []entitlements.TierView{
		{Rank: 0, Product: "free", Name: "Free", DefaultOf: "club"}, {Rank: 1, Product: "silver", Name: "Silver", Holders: 1}, {Rank: 2, Product: "gold", Name: "Gold"},
	}, ladder.Tiers)
	product, err := entitlements.ViewProduct(t.Context(), h.db.Reader(), "silver")
	require.NoError(t, err)
	require.Equal(t, 1, product.Holders)
	require.Equal(t, map[string]entitlements.Value{"storage": entitlements.Number(10), "speed": entitlements.Number(5)}, product.Gives)
	set, err := entitlements.ViewSet(t.Context(), h.db.Reader(), "silver")
	require.NoError(t, err)
	require.Equal(t, []string{"silver"}, set.Products)
	require.Equal(t, 1, set.Pools)
	_, err = entitlements.ViewSet(t.Context(), h.db.Reader(), "silvr")
	require.ErrorContains(t, err, "near it: silver")
}
