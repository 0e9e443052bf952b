package locktest

// settled are the pools whose tables have to say what their positions do now: a change owes them nothing, and the time of no
// grant has come or gone since they were settled.
const settled = `
	SELECT p.id FROM core.pools p
	WHERE NOT EXISTS (SELECT FROM core.change_obligations o WHERE o.pool_id = p.id AND o.state <> 'settled')
	  AND NOT EXISTS (SELECT FROM core.positions x WHERE x.pool_id = p.id AND x.status <> 'ended' AND x.ends_at <= core.clock())
	  AND NOT EXISTS (SELECT FROM core.grants g JOIN core.positions x ON x.grant_id = g.id
	                  WHERE x.pool_id = p.id AND x.status <> 'ended' AND g.begun_at IS NULL AND g.starts_at <= core.clock())`

// The invariants of schemas core and stripe.
func init() {
	Invariant("one-default-pool", NoRows(`
		SELECT format('organisation %s has %s default pools', o.slug, count(p.id))
		FROM core.organizations o LEFT JOIN core.pools p ON p.organization_id = o.id AND p.is_default
		GROUP BY o.slug HAVING count(p.id) <> 1`))

	Invariant("entitlements-as-positions-say", NoRows(`
		WITH settled AS MATERIALIZED (`+settled+`) -- what a pool that is owed adds up to may be more than can be
		SELECT format('pool %s: %s is %s and should be %s', pool_id, resource_key, h.value, w.value)
		FROM (SELECT pool_id, resource_key, coalesce(to_jsonb(numeric_value), to_jsonb(boolean_value)) AS value FROM core.pool_entitlements) h
		FULL JOIN (SELECT p.id AS pool_id, a.resource_key, coalesce(to_jsonb(a.numeric_value), to_jsonb(a.boolean_value)) AS value
		           FROM settled p CROSS JOIN LATERAL core.aggregate_pool(p.id, core.clock()) a) w USING (pool_id, resource_key)
		WHERE h.value IS DISTINCT FROM w.value AND pool_id IN (SELECT id FROM settled)`))

	Invariant("ledger-replays", NoRows(`
		SELECT format('pool %s: the ledger leaves %s at %s and it is %s', pool_id, resource_key, l.value, e.value)
		FROM (SELECT DISTINCT ON (pool_id, resource_key) pool_id, resource_key, to_value AS value
		      FROM core.ledger ORDER BY pool_id, resource_key, id DESC) l
		FULL JOIN (SELECT pool_id, resource_key, coalesce(to_jsonb(numeric_value), to_jsonb(boolean_value)) AS value
		           FROM core.pool_entitlements) e USING (pool_id, resource_key)
		WHERE l.value IS DISTINCT FROM e.value`))

	Invariant("ledger-is-a-chain", NoRows(`
		SELECT format('pool %s: ledger line %s takes %s from %s, and the line before left %s', pool_id, id, resource_key, from_value, before)
		FROM (SELECT *, lag(to_value) OVER (PARTITION BY pool_id, resource_key ORDER BY id) AS before FROM core.ledger) l
		WHERE from_value IS DISTINCT FROM before`))

	// The floor is there exactly where the ladder of the type's default holds nothing else, and only in default pools.
	Invariant("floor-where-vacant", NoRows(`
		WITH pool AS (
			SELECT p.id, ty.default_product_id AS product, ty.default_product_id IS NOT NULL AND p.is_default AND NOT EXISTS (
				SELECT FROM core.tiers floor JOIN core.tiers t ON t.ladder_id = floor.ladder_id JOIN core.positions x ON x.product_id = t.product_id
				WHERE floor.product_id = ty.default_product_id AND x.pool_id = p.id AND x.source <> 'default' AND x.status <> 'ended'
				  AND x.starts_at <= core.clock() AND (x.ends_at IS NULL OR x.ends_at > core.clock())) AS wanted
			FROM core.pools p JOIN core.organizations o ON o.id = p.organization_id JOIN core.organization_types ty ON ty.id = o.type_id
		), held AS (
			SELECT p.id, p.wanted, count(x.id) AS floors, count(x.id) FILTER (WHERE x.product_id IS DISTINCT FROM p.product) AS others
			FROM pool p LEFT JOIN core.positions x ON x.pool_id = p.id AND x.source = 'default' AND x.status <> 'ended'
			GROUP BY p.id, p.wanted)
		SELECT format('pool %s: the floor is %s, and %s default positions are live, %s of them of another product', id,
			CASE WHEN wanted THEN 'wanted' ELSE 'not wanted' END, floors, others)
		FROM held WHERE (floors <> wanted::int OR others > 0) AND id IN (`+settled+`)`))

	Invariant("one-live-position-per-item", NoRows(`
		SELECT format('item %s has %s live positions', item_id, count(*)) FROM core.positions
		WHERE source = 'subscription' AND status <> 'ended' GROUP BY item_id HAVING count(*) > 1`))

	Invariant("positions-follow-the-mirror", NoRows(`
		SELECT format('item %s of %s has a position that is %s while Stripe says %s', x.item_id, s.id, x.status, s.status)
		FROM core.positions x JOIN stripe.subscriptions s ON s.id = x.subscription_id
		WHERE x.status <> 'ended' AND (s.status IN ('canceled', 'incomplete_expired') OR s.status IN ('unpaid', 'paused') AND x.status <> 'suspended')`))

	Invariant("periods-do-not-overlap", NoRows(`
		SELECT format('item %s of %s: the standing periods %s and %s overlap', a.item_id, a.subscription_id, a.period, b.period)
		FROM stripe.subscription_periods a JOIN stripe.subscription_periods b
			ON b.subscription_id = a.subscription_id AND b.item_id = a.item_id AND b.id > a.id AND b.period && a.period
		WHERE a.superseded_at IS NULL AND b.superseded_at IS NULL`))

	Invariant("parked-says-why", NoRows(`
		SELECT format('%s %s is parked and does not say why, or by which subscription it is tried again', kind, object_id) FROM stripe.parked_work
		WHERE resolved_at IS NULL AND (coalesce(reason, '') = '' OR coalesce(detail, '') = '' OR coalesce(subscription_id, '') = '')`))

	// Every reconcile that parks raises the version, so what is parked has a mirror.
	Invariant("parked-subscription-has-a-version", NoRows(`
		SELECT format('subscription %s is parked and has no version', p.object_id) FROM stripe.parked_work p
		WHERE p.kind = 'subscription' AND NOT EXISTS (SELECT FROM stripe.subscriptions s WHERE s.id = p.object_id)`))

	Invariant("version-begins-at-one", NoRows(`SELECT format('subscription %s has version %s', id, version) FROM stripe.subscriptions WHERE version IS NULL OR version < 1`))
}
