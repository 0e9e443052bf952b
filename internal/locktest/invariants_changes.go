package locktest

// The invariants of changes, obligations and successions.
func init() {
	Invariant("owed-is-what-was-written", NoRows(`
		SELECT format('change %s says that it owes %s pools, and %s obligations name it', c.id, c.owed, count(b.pool_id))
		FROM core.changes c LEFT JOIN core.change_obligations b ON b.change_id = c.id
		GROUP BY c.id, c.owed HAVING count(b.pool_id) <> c.owed`))

	Invariant("parked-obligations-say-why", NoRows(`
		SELECT format('pool %s is parked for change %s and does not say why, or was never tried', pool_id, change_id) FROM core.change_obligations
		WHERE state = 'parked' AND (coalesce(last_error, '') = '' OR attempts = 0 OR last_tried_at IS NULL)`))

	Invariant("successions-are-flat", NoRows(`
		SELECT format('product %s stands in place of a removed tier, and something stands in its place', s.successor_id)
		FROM core.successions s JOIN core.successions n ON n.product_id = s.successor_id
		UNION ALL
		SELECT format('product %s is a tier, and something stands in its place', s.product_id)
		FROM core.successions s JOIN core.tiers t ON t.product_id = s.product_id
		UNION ALL
		SELECT format('product %s is a default, and something stands in its place', s.product_id)
		FROM core.successions s JOIN core.organization_types t ON t.default_product_id = s.product_id`))

	// What a removed tier's holders hold is its successor, but where the change has not reached them yet.
	Invariant("removed-tiers-are-held-by-the-owed-only", NoRows(`
		SELECT format('pool %s is owed nothing and holds %s, in whose place something stands', x.pool_id, x.product_id)
		FROM core.positions x JOIN core.successions s ON s.product_id = x.product_id
		WHERE x.status <> 'ended' AND x.source <> 'default'
		  AND NOT EXISTS (SELECT FROM core.change_obligations b WHERE b.pool_id = x.pool_id AND b.state <> 'settled')`))
}
