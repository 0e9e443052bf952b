package locktest

// The invariants of allowances.
func init() {
	Invariant("usage-within-bounds", NoRows(`
		SELECT format('%s of pool %s since %s: %s used', resource_key, pool_id, window_start, used) FROM core.usage WHERE used < 0`))

	// A raise or a bound sets the counter to what was measured or counted; then it is not the sum.
	Invariant("usage-is-the-sum-of-its-spends", NoRows(`
		SELECT format('%s of pool %s since %s: %s used, and its spends come to %s', u.resource_key, u.pool_id, u.window_start, u.used, coalesce(sum(s.n - s.released), 0))
		FROM core.usage u LEFT JOIN core.spends s USING (pool_id, resource_key, window_start)
		WHERE NOT u.adjusted
		GROUP BY u.pool_id, u.resource_key, u.window_start, u.used
		HAVING u.used <> coalesce(sum(s.n - s.released), 0)`))

	Invariant("spends-within-their-limit", NoRows(`
		SELECT format('spend %s of %s of pool %s: %s used of %s', id, resource_key, pool_id, used_after, limit_then) FROM core.spends WHERE used_after > limit_then`))

	Invariant("spends-within-their-window", NoRows(`
		SELECT format('spend %s of %s of pool %s at %s is outside its window, which began %s and ended %s', id, resource_key, pool_id, at, window_start, renews_at)
		FROM core.spends WHERE at < window_start OR at >= renews_at`))

	// Each spend of a counter that only spends have changed, and that gave nothing back, took a place of its own.
	Invariant("spends-take-their-places", NoRows(`
		SELECT format('spend %s of %s of pool %s ends at %s, and the spends before it come to %s', id, resource_key, pool_id, used_after, places)
		FROM (SELECT s.*, sum(s.n) OVER (PARTITION BY s.pool_id, s.resource_key, s.window_start ORDER BY s.used_after) AS places,
		             sum(s.released) OVER (PARTITION BY s.pool_id, s.resource_key, s.window_start) AS given_back, u.adjusted
		      FROM core.spends s JOIN core.usage u USING (pool_id, resource_key, window_start)) s
		WHERE given_back = 0 AND NOT adjusted AND used_after <> places`))
}
