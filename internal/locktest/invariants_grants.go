package locktest

// The invariants of grants.
func init() {
	Invariant("a-line-has-one-head", NoRows(`
		SELECT format('the line of grant %s has %s heads and %s open grants', g.line, count(*) FILTER (WHERE e.id IS NULL), count(*) FILTER (WHERE g.closed_at IS NULL))
		FROM core.grants g LEFT JOIN core.grants e ON e.extends = g.id
		GROUP BY g.line HAVING count(*) FILTER (WHERE e.id IS NULL) <> 1 OR count(*) FILTER (WHERE g.closed_at IS NULL) > 1`))

	Invariant("an-extension-goes-on", NoRows(`
		SELECT format('grant %s (%s) goes on from %s, which is %s', e.id, e.state, g.id, g.state)
		FROM core.grants g JOIN core.grants e ON e.extends = g.id
		WHERE g.state <> 'extended' OR g.line <> e.line OR g.pool_id IS DISTINCT FROM e.pool_id AND g.pool_id IS NOT NULL
		UNION ALL
		SELECT format('grant %s is extended, and none goes on from it', g.id) FROM core.grants g
		WHERE g.state = 'extended' AND NOT EXISTS (SELECT FROM core.grants e WHERE e.extends = g.id)`))

	Invariant("an-open-grant-has-its-position", NoRows(`
		SELECT format('grant %s is %s and has %s live positions', g.id, g.state, count(x.id))
		FROM core.grants g LEFT JOIN core.positions x ON x.grant_id = g.id AND x.status <> 'ended'
		GROUP BY g.id HAVING count(x.id) <> (g.closed_at IS NULL AND g.pool_id IS NOT NULL)::int
		UNION ALL
		SELECT format('the position of grant %s is not like the grant', g.id)
		FROM core.grants g JOIN core.positions x ON x.grant_id = g.id AND x.status <> 'ended'
		WHERE (x.pool_id, x.quantity, x.starts_at, x.status) <> (g.pool_id, g.quantity, g.starts_at, 'active') OR x.ends_at IS DISTINCT FROM g.ends_at`))

	Invariant("grants-are-in-the-state-that-they-confer-in", NoRows(`
		SELECT format('grant %s is %s, confers: %s, conferred first at %s', g.id, g.state, coalesce(e.confers, false), g.conferred_at)
		FROM core.grants g
		LEFT JOIN core.positions x ON x.grant_id = g.id AND x.status <> 'ended'
		LEFT JOIN LATERAL core.effective_positions(g.pool_id, core.clock()) e ON e.position_id = x.id
		WHERE g.closed_at IS NULL AND g.pool_id IS NOT NULL AND g.pool_id IN (`+settled+`)
		  AND g.state <> CASE WHEN e.confers THEN 'active' WHEN g.conferred_at IS NULL THEN 'waiting' ELSE 'replaced' END
		UNION ALL
		SELECT format('grant %s is %s and has conferred first at %s', id, state, conferred_at) FROM core.grants
		WHERE state = 'active' AND conferred_at IS NULL OR state = 'waiting' AND conferred_at IS NOT NULL`))
}
