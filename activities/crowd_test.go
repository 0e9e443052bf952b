package activities_test

import (
	"github.com/stretchr/testify/require"
)

// crowdSQL makes the crowd; each statement takes its size and how many of it are broken.
var crowdSQL = []string{
	`INSERT INTO core.organizations (slug, name, type_id) SELECT 'org-' || i, 'Org ' || i, t.id FROM generate_series(1, $1::int) i, core.organization_types t WHERE t.slug = 'member' AND $2::int >= 0`,
	`INSERT INTO core.pools (organization_id, name, is_default) SELECT id, 'default', true FROM core.organizations WHERE slug LIKE 'org-%' AND $1::int > 0 AND $2::int >= 0`,
	`INSERT INTO core.positions (pool_id, product_id, source, status, starts_at, created_act)
		SELECT p.id, pr.id, 'default', 'active', core.clock(), 'test' FROM core.pools p JOIN core.organizations o ON o.id = p.organization_id, core.products pr
		WHERE o.slug LIKE 'org-%' AND pr.slug = 'free' AND $1::int > 0 AND $2::int >= 0`,
	`INSERT INTO core.positions (pool_id, product_id, source, subscription_id, item_id, quantity, status, starts_at, created_act)
		SELECT p.id, pr.id, 'subscription', 'sub_' || o.slug, 'si_' || o.slug || '_' || i, CASE WHEN o.broken THEN 1000000 ELSE 1 END, 'active', core.clock(), 'test'
		FROM core.pools p JOIN (SELECT id, slug, substr(slug, 5)::int <= $2::int AS broken FROM core.organizations WHERE slug LIKE 'org-%') o ON o.id = p.organization_id
		JOIN core.products pr ON pr.slug = 'extra' CROSS JOIN generate_series(1, 10) i
		WHERE (i = 1 OR o.broken) AND $1::int > 0`,
	`INSERT INTO core.pool_entitlements (pool_id, resource_key, kind, numeric_value, changed_at)
		SELECT p.id, 'sites', 'numeric', CASE WHEN substr(o.slug, 5)::int <= $2::int THEN 20000001 ELSE 3 END, core.clock()
		FROM core.pools p JOIN core.organizations o ON o.id = p.organization_id WHERE o.slug LIKE 'org-%' AND $1::int > 0`,
	`INSERT INTO core.ledger (pool_id, resource_key, to_value, act, at)
		SELECT pool_id, resource_key, to_jsonb(numeric_value), 'test', core.clock() FROM core.pool_entitlements WHERE $1::int > 0 AND $2::int >= 0`,
}

// crowd makes n organisations in SQL, as settled acts would have left them: each holds the floor and one extra of a subscription
// of its own, org-1 for sites=3. The first broken of them hold so many extras that a rule of the greatest value is more than their
// sum can be.
func (r *rig) crowd(n, broken int) {
	r.t.Helper()
	tx, err := r.pool.Begin(r.t.Context())
	require.NoError(r.t, err)
	defer func() { _ = tx.Rollback(r.t.Context()) }()
	for _, sql := range crowdSQL {
		_, err := tx.Exec(r.t.Context(), sql, n, broken)
		require.NoError(r.t, err)
	}
	require.NoError(r.t, tx.Commit(r.t.Context()))
	_, err = r.pool.Exec(r.t.Context(), `ANALYZE`)
	require.NoError(r.t, err)
}
