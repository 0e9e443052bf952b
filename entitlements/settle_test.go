package entitlements_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/lockorder"
)

func TestMaterializationWritesOnlyWhatDiffers(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	pool := h.org("acme", "club").DefaultPool
	h.converge("sub_1", pool, item{"it_1", "gold", 1})
	place := `SELECT string_agg(concat_ws(' ', resource_key, ctid, xmin, changed_at), E'\n' ORDER BY resource_key) FROM core.pool_entitlements WHERE pool_id = $1 AND resource_key = ANY ($2)`
	untouched := []string{"speed", "support"}
	before, ledger := h.one(place, pool, untouched), h.one(`SELECT max(id)::text FROM core.ledger`)
	require.NotEmpty(t, before)

	h.converge("sub_2", pool, item{"it_2", "disk", 1})
	require.Equal(t, "speed=20 storage=107 support=true", h.has(pool))
	require.Equal(t, before, h.one(place, pool, untouched), "rows that do not differ are not written")
	require.Equal(t, "storage 100 → 107 by test-act of test/1",
		h.one(`SELECT string_agg(concat(resource_key, ' ', from_value, ' → ', to_value, ' by ', act, ' of ', workflow), '; ') FROM core.ledger WHERE id > $1::bigint`, ledger))
}

func TestSettlingAgainWritesNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	one, two := h.org("one", "club").DefaultPool, h.org("two", "club").DefaultPool
	h.converge("sub_1", one, item{"it_1", "gold", 2}, item{"it_2", "disk", 1})
	before := h.rows(one) + h.rows(two)
	for range 2 {
		require.NoError(t, h.db.Run(t.Context(), lockorder.Spec{Path: "test-settle", Kind: lockorder.Materializing}, func(ctx context.Context, tx *lockorder.Tx) error {
			if err := tx.Lock(ctx, lockorder.PoolRow(one), lockorder.PoolRow(two)); err != nil {
				return err
			}
			n, err := entitlements.Settle(ctx, tx, act, two, one, two)
			require.Zero(t, n)
			return err
		}))
	}
	require.Equal(t, before, h.rows(one)+h.rows(two))
}

// What no code of ours writes: each of these states would be wrong, and the database refuses it.
func TestWrongStatesAreRefused(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	acme := h.org("acme", "club")
	h.converge("sub_1", acme.DefaultPool, item{"it_1", "gold", 1})
	const position = `INSERT INTO core.positions (pool_id, product_id, source, subscription_id, item_id, quantity, status, starts_at, ends_at, created_act, ended_at, ended_act, end_reason)
		SELECT p.id, pr.id, `
	const from = ` FROM core.pools p, core.products pr WHERE p.is_default AND pr.slug = 'gold'`
	for name, c := range map[string]struct{ sql, state string }{
		"a second live position of an item":        {position + `'subscription', 'sub_2', 'it_1', 1, 'active', now(), NULL, 'x', NULL, NULL, NULL` + from, "23505"},
		"a subscription position without an item":  {position + `'subscription', 'sub_2', NULL, 1, 'active', now(), NULL, 'x', NULL, NULL, NULL` + from, "23514"},
		"a default that names a subscription":      {position + `'default', 'sub_2', 'it_2', 1, 'active', now(), NULL, 'x', NULL, NULL, NULL` + from, "23514"},
		"a suspended default":                      {position + `'default', NULL, NULL, 1, 'suspended', now(), NULL, 'x', NULL, NULL, NULL` + from, "23514"},
		"an ended position without its end":        {position + `'grant', NULL, NULL, 1, 'ended', now(), NULL, 'x', NULL, NULL, NULL` + from, "23514"},
		"a live position with an end reason":       {position + `'grant', NULL, NULL, 1, 'active', now(), NULL, 'x', NULL, NULL, 'y'` + from, "23514"},
		"a position that ends before it begins":    {position + `'grant', NULL, NULL, 1, 'active', now(), now() - interval '1 s', 'x', NULL, NULL, NULL` + from, "23514"},
		"a quantity of 0":                          {position + `'grant', NULL, NULL, 0, 'active', now(), NULL, 'x', NULL, NULL, NULL` + from, "23514"},
		"an unknown status":                        {position + `'grant', NULL, NULL, 1, 'paused', now(), NULL, 'x', NULL, NULL, NULL` + from, "23514"},
		"two tiers of one rank":                    {`INSERT INTO core.tiers SELECT p.id, l.id, 1 FROM core.products p, core.ladders l WHERE p.slug = 'disk'`, "23505"},
		"a product on two ladders":                 {`WITH l AS (INSERT INTO core.ladders (slug, name) VALUES ('x', 'x') RETURNING id) INSERT INTO core.tiers SELECT p.id, l.id, 0 FROM core.products p, l WHERE p.slug = 'gold'`, "23505"},
		"a second default pool":                    {`INSERT INTO core.pools (organization_id, name, is_default) SELECT organization_id, 'two', true FROM core.pools`, "23505"},
		"an organisation without a default pool":   {`INSERT INTO core.organizations (slug, name, type_id) SELECT 'x', 'x', id FROM core.organization_types LIMIT 1`, "23000"},
		"a pool that stops being the default":      {`UPDATE core.pools SET is_default = false`, "23000"},
		"a boolean value of a numeric key":         {`INSERT INTO core.set_rules (set_id, resource_key, kind, boolean_value) SELECT id, 'extra', 'boolean', true FROM core.entitlement_sets LIMIT 1`, "23503"},
		"a numeric rule without a number":          {`INSERT INTO core.set_rules (set_id, resource_key, kind) SELECT id, 'extra', 'numeric' FROM core.entitlement_sets LIMIT 1`, "23514"},
		"a rule below 0":                           {`UPDATE core.set_rules SET numeric_value = -1 WHERE kind = 'numeric'`, "23514"},
		"a summed boolean":                         {`INSERT INTO core.resource_keys (key, kind, aggregation) VALUES ('x', 'boolean', 'sum')`, "23514"},
		"a key in use that changes its kind":       {`UPDATE core.resource_keys SET kind = 'boolean', aggregation = 'max' WHERE key = 'speed'`, "23503"},
		"a key that is no name":                    {`INSERT INTO core.resource_keys (key, kind, aggregation) VALUES ('A b', 'numeric', 'sum')`, "23514"},
		"a slug in capitals":                       {`INSERT INTO core.products (slug, name) VALUES ('Gold', 'Gold')`, "23514"},
		"a ledger line that changes nothing":       {`INSERT INTO core.ledger (pool_id, resource_key, from_value, to_value, act, at) SELECT id, 'x', '1', '1', 'x', now() FROM core.pools`, "23514"},
		"a ledger line without an act":             {`INSERT INTO core.ledger (pool_id, resource_key, from_value, to_value, act, at) SELECT id, 'x', NULL, '1', '', now() FROM core.pools`, "23514"},
		"a product that is held and is taken away": {`DELETE FROM core.products WHERE slug = 'gold'`, "23503"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := h.pool.Exec(t.Context(), c.sql)
			require.Error(t, err)
			require.Equal(t, c.state, lockorder.SQLState(err), "%v", err)
		})
	}
}
