package entitlements_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/lockorder"
)

func TestANewOrganizationHoldsItsDefault(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	acme := h.org("acme", "club")
	require.Equal(t, "free default active", h.holds(acme.DefaultPool))
	require.Equal(t, "speed=1 storage=1", h.has(acme.DefaultPool))
	bare := h.org("bare", "bare")
	require.Empty(t, h.holds(bare.DefaultPool))
	require.Empty(t, h.has(bare.DefaultPool))
}

func TestUpgradeDisplacesTheLowerTierAndTheFloor(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	pool := h.org("acme", "club").DefaultPool

	require.Equal(t, entitlements.Changes{Conferred: 1, Entitlements: 2}, h.converge("sub_1", pool, item{"it_1", "silver", 1}))
	require.Equal(t, "silver it_1 active", h.holds(pool), "the floor gave way")
	require.Equal(t, "speed=5 storage=10", h.has(pool))

	require.Equal(t, entitlements.Changes{Conferred: 1, Ended: 1, Entitlements: 3}, h.converge("sub_1", pool, item{"it_1", "gold", 1}))
	require.Equal(t, "gold it_1 active", h.holds(pool))
	require.Equal(t, "speed=20 storage=100 support=true", h.has(pool))
	require.Equal(t, "product_changed", h.one(`SELECT end_reason FROM core.positions WHERE item_id = 'it_1' AND status = 'ended'`))

	// A second subscription to a lower tier confers nothing until the higher one ends.
	h.converge("sub_2", pool, item{"it_2", "silver", 1})
	require.Equal(t, "speed=20 storage=100 support=true", h.has(pool))
	h.end("sub_1")
	require.Equal(t, "silver it_2 active", h.holds(pool))
	require.Equal(t, "speed=5 storage=10", h.has(pool))
}

func TestCancellationRestoresTheFloor(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	pool := h.org("acme", "club").DefaultPool
	h.converge("sub_1", pool, item{"it_1", "gold", 1}, item{"it_2", "disk", 2})
	require.Equal(t, "speed=20 storage=114 support=true", h.has(pool))

	require.Equal(t, entitlements.Changes{Ended: 2, Entitlements: 3}, h.end("sub_1"))
	require.Equal(t, "free default active", h.holds(pool))
	require.Equal(t, "speed=1 storage=1", h.has(pool))
	require.Equal(t, "subscription_ended", h.one(`SELECT min(end_reason) FROM core.positions WHERE subscription_id = 'sub_1'`))

	before := h.rows(pool)
	require.Equal(t, entitlements.Changes{}, h.end("sub_1"), "again it is a no-op")
	require.Equal(t, before, h.rows(pool))
}

func TestSuspensionConfersNothingKeepsItsPlaceAndRecoversExactly(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	pool := h.org("acme", "club").DefaultPool
	h.converge("sub_low", pool, item{"it_low", "silver", 1})
	h.converge("sub_1", pool, item{"it_1", "gold", 1}, item{"it_2", "disk", 3})
	positions := `SELECT string_agg(concat_ws(' ', id, product_id, quantity, status, starts_at, created_act), E'\n' ORDER BY id) FROM core.positions WHERE pool_id = $1 AND status <> 'ended'`
	held, had := h.one(positions, pool), h.has(pool)
	require.Equal(t, "speed=20 storage=121 support=true", had)

	require.Equal(t, entitlements.Changes{Changed: 2, Entitlements: 3}, h.suspend("sub_1"))
	require.Equal(t, "disk×3 it_2 suspended, gold it_1 suspended, silver it_low active", h.holds(pool), "no floor is restored")
	require.Empty(t, h.has(pool), "the lower tier does not resume: gold keeps its place")
	before := h.rows(pool)
	require.Equal(t, entitlements.Changes{}, h.suspend("sub_1"), "again it is a no-op")
	require.Equal(t, before, h.rows(pool))

	require.Equal(t, entitlements.Changes{Changed: 2, Entitlements: 3}, h.converge("sub_1", pool, item{"it_1", "gold", 1}, item{"it_2", "disk", 3}))
	require.Equal(t, held, h.one(positions, pool), "the same positions with their beginnings")
	require.Equal(t, had, h.has(pool))
}

// What is held of a suspended subscription follows from what Stripe shows, not from what was read of it before.
func TestASuspendedSubscriptionConvergesToo(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	seen, unseen := h.org("seen", "club").DefaultPool, h.org("unseen", "club").DefaultPool
	suspended := func(id string, pool uuid.UUID, keep []string, items ...item) entitlements.Changes {
		changes, err := h.tryConverge(entitlements.Subscription{ID: id, Pool: pool, Items: h.items(items), Keep: keep, Suspended: true})
		require.NoError(t, err)
		return changes
	}
	h.converge("sub_1", seen, item{"it_1", "gold", 1})
	suspended("sub_1", seen, nil, item{"it_1", "gold", 1})
	suspended("sub_2", unseen, nil, item{"it_2", "gold", 1})
	require.Equal(t, "gold it_1 suspended", h.holds(seen))
	require.Equal(t, "gold it_2 suspended", h.holds(unseen), "first seen suspended, it takes the same place")
	require.Empty(t, h.has(unseen))

	suspended("sub_1", seen, nil, item{"it_1", "silver", 2})
	require.Equal(t, "silver×2 it_1 suspended", h.holds(seen), "another product and quantity are taken over")
	suspended("sub_1", seen, nil, item{"it_3", "disk", 1})
	require.Equal(t, "disk it_3 suspended, free default active", h.holds(seen), "an item that is gone gives its place up")

	h.converge("sub_1", seen, item{"it_3", "disk", 1})
	suspended("sub_1", seen, []string{"it_3"})
	require.Equal(t, "disk it_3 suspended, free default active", h.holds(seen), "what cannot be mapped is suspended with the rest")
}

func TestASuspendedSubscriptionAloneRestoresNoFloor(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	pool := h.org("acme", "club").DefaultPool
	h.converge("sub_1", pool, item{"it_1", "gold", 1})
	h.suspend("sub_1")
	require.Equal(t, "gold it_1 suspended", h.holds(pool))
	require.Empty(t, h.has(pool))
	h.end("sub_1")
	require.Equal(t, "free default active", h.holds(pool))
}

func TestQuantityAndProductsOffTheLadder(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	pool := h.org("acme", "club").DefaultPool
	h.converge("sub_1", pool, item{"it_1", "disk", 4}, item{"it_2", "turbo", 2})
	require.Equal(t, "disk×4 it_1 active, free default active, turbo×2 it_2 active", h.holds(pool), "off the ladder the floor stays")
	require.Equal(t, "speed=9 storage=29", h.has(pool), "storage adds up, four times 7 and the floor's 1; of speed the greatest counts, once")

	require.Equal(t, entitlements.Changes{Changed: 1, Entitlements: 1}, h.converge("sub_1", pool, item{"it_1", "disk", 5}, item{"it_2", "turbo", 2}))
	require.Equal(t, "speed=9 storage=36", h.has(pool))

	require.Equal(t, entitlements.Changes{Ended: 1, Entitlements: 1}, h.converge("sub_1", pool, item{"it_1", "disk", 5}, item{"it_2", "turbo", 0}))
	require.Equal(t, "speed=1 storage=36", h.has(pool), "a quantity of 0 is as if the item were absent")
	require.Equal(t, entitlements.Changes{Ended: 1, Entitlements: 1}, h.converge("sub_1", pool))
	require.Equal(t, "item_removed", h.one(`SELECT end_reason FROM core.positions WHERE item_id = 'it_1'`))
	require.Equal(t, "speed=1 storage=1", h.has(pool))

	_, err := h.tryConverge(entitlements.Subscription{ID: "sub_1", Pool: pool, Items: h.items([]item{{"it_1", "disk", entitlements.MaxQuantity + 1}})})
	require.ErrorIs(t, err, entitlements.ErrInvalid)
}

func TestAtEqualRankTheEarliestConfers(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	pool := h.org("acme", "club").DefaultPool
	h.converge("sub_1", pool, item{"it_1", "gold", 1})
	h.converge("sub_2", pool, item{"it_2", "gold", 3})
	require.Equal(t, "speed=20 storage=100 support=true", h.has(pool), "the later three gold memberships wait")
	h.end("sub_1")
	require.Equal(t, "speed=20 storage=300 support=true", h.has(pool))
}

func TestKeptItemsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	pool := h.org("acme", "club").DefaultPool
	h.converge("sub_1", pool, item{"it_1", "gold", 1}, item{"it_2", "disk", 1}, item{"it_3", "turbo", 1})
	changes, err := h.tryConverge(entitlements.Subscription{ID: "sub_1", Pool: pool, Items: h.items([]item{{"it_1", "gold", 1}}), Keep: []string{"it_2"}})
	require.NoError(t, err)
	require.Equal(t, entitlements.Changes{Ended: 1}, changes, "it_3 is surplus; its speed was not the greatest")
	require.Equal(t, "disk it_2 active, gold it_1 active", h.holds(pool))
}

func TestAPositionStaysInItsPool(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	acme, other := h.org("acme", "club").DefaultPool, h.org("other", "club").DefaultPool
	h.converge("sub_1", acme, item{"it_1", "silver", 1})
	h.converge("sub_1", other, item{"it_1", "gold", 1}, item{"it_2", "disk", 1})
	require.Equal(t, "gold it_1 active", h.holds(acme))
	require.Equal(t, "disk it_2 active, free default active", h.holds(other))
	h.end("sub_1")
	require.Equal(t, "free default active", h.holds(acme))
	require.Equal(t, "free default active", h.holds(other))
}

func TestLocksAreRequired(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	pool := h.org("acme", "club").DefaultPool
	h.converge("sub_1", pool, item{"it_1", "gold", 1})
	sub := entitlements.Subscription{ID: "sub_1", Pool: pool}
	key := []lockorder.Lock{lockorder.SubscriptionKey("sub_1")}
	for name, c := range map[string]struct {
		spec lockorder.Spec
		lock []lockorder.Lock
		do   func(context.Context, *lockorder.Tx) error
	}{
		"plain transaction": {lockorder.Spec{Kind: lockorder.Plain, Keys: key}, []lockorder.Lock{lockorder.PoolRow(pool)}, func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := entitlements.ConvergeSubscription(ctx, tx, act, sub)
			return err
		}},
		"no subscription key": {lockorder.Spec{Kind: lockorder.Materializing}, []lockorder.Lock{lockorder.PoolRow(pool)}, func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := entitlements.ConvergeSubscription(ctx, tx, act, sub)
			return err
		}},
		"pool not locked": {lockorder.Spec{Kind: lockorder.Materializing, Keys: key}, nil, func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := entitlements.EndSubscription(ctx, tx, act, "sub_1", "x")
			return err
		}},
		"settle without the pool": {lockorder.Spec{Kind: lockorder.Materializing}, nil, func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := entitlements.Settle(ctx, tx, act, pool)
			return err
		}},
		"settle in a plain transaction": {lockorder.Spec{Kind: lockorder.Plain}, []lockorder.Lock{lockorder.PoolRow(pool)}, func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := entitlements.Settle(ctx, tx, act, pool)
			return err
		}},
		"catalogue in a materializing transaction": {lockorder.Spec{Kind: lockorder.Materializing}, nil, func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := entitlements.LockCatalogue(ctx, tx, nil, nil)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c.spec.Path = "test"
			err := h.db.Run(t.Context(), c.spec, func(ctx context.Context, tx *lockorder.Tx) error {
				if err := tx.Lock(ctx, c.lock...); err != nil {
					return err
				}
				return c.do(ctx, tx)
			})
			require.ErrorIs(t, err, lockorder.ErrNotHeld)
			require.Equal(t, lockorder.VerdictMisuse, lockorder.VerdictOf(err))
		})
	}
	require.Equal(t, "gold it_1 active", h.holds(pool))
}

func TestSettlingWithoutTheRendezvousIsRefusedByTheDatabase(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	pool := h.org("acme", "club").DefaultPool
	for _, call := range []string{
		`SELECT core.settle_pool($1, 'x', '', core.clock())`,
		`SELECT core.materialize_pool($1, 'x', '', core.clock())`,
	} {
		_, err := h.pool.Exec(t.Context(), call, pool)
		require.ErrorContains(t, err, "materialization_rendezvous_missing")
		require.Equal(t, "BU001", lockorder.SQLState(err))
	}
}

func TestDefaultPoolOfNobody(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	_, err := entitlements.DefaultPool(t.Context(), h.db.Reader(), uuid.New())
	require.ErrorIs(t, err, entitlements.ErrNotFound)
	acme := h.org("acme", "club")
	pool, err := entitlements.DefaultPool(t.Context(), h.db.Reader(), acme.ID)
	require.NoError(t, err)
	require.Equal(t, acme.DefaultPool, pool)
}
