-- name: ReportPositions :many
-- A row for each rule of each position that is held, and of a floor that is due and not yet restored: that one has no position.
WITH instant AS MATERIALIZED (
    SELECT coalesce(sqlc.narg('at')::timestamptz, core.clock()) AS at
), pools AS (
    SELECT id, name, is_default FROM core.pools WHERE organization_id = @organization_id
), effective AS MATERIALIZED (
    SELECT pools.id AS pool_id, e.position_id, e.product_id, e.source, e.starts_at, e.confers, e.outranked_by
    FROM pools CROSS JOIN instant CROSS JOIN LATERAL core.effective_positions(pools.id, instant.at)
        AS e (position_id, product_id, ladder_id, rank, quantity, source, status, starts_at, ends_at, confers, outranked_by)
), held AS MATERIALIZED (
    SELECT pos.pool_id, pos.id, coalesce(e.product_id, s.successor_id, pos.product_id) AS product_id,
           pos.source, pos.status, pos.quantity, pos.starts_at, pos.ends_at,
           coalesce(e.confers, false) AS confers, e.position_id IS NOT NULL AS in_force, e.outranked_by,
           s.product_id IS NOT NULL AND s.successor_id IS NULL AS removed
    FROM pools
    JOIN core.positions pos ON pos.pool_id = pools.id AND pos.status <> 'ended'
    LEFT JOIN effective e ON e.position_id = pos.id
    LEFT JOIN core.successions s ON s.product_id = pos.product_id AND pos.source <> 'default'
    UNION ALL
    SELECT e.pool_id, NULL, e.product_id, e.source, 'active', 1, e.starts_at, NULL, e.confers, true, NULL, false
    FROM effective e WHERE e.position_id IS NULL
), totals AS MATERIALIZED (
    SELECT pools.id AS pool_id, a.resource_key, a.numeric_value, a.boolean_value
    FROM pools CROSS JOIN instant CROSS JOIN LATERAL core.aggregate_pool(pools.id, instant.at) AS a (resource_key, kind, numeric_value, boolean_value)
)
SELECT instant.at::timestamptz AS at, pools.name AS pool, pos.id AS position_id,
       pr.slug AS product, pr.name AS product_name, l.slug AS ladder, t.rank,
       coalesce(held.source, '')::text AS source, pos.subscription_id, pos.item_id, pos.grant_id, g.line, g.state AS grant_state, g.note, g.origin,
       coalesce(held.quantity, 0)::bigint AS quantity, coalesce(held.status, '')::text AS status, coalesce(held.starts_at, instant.at)::timestamptz AS starts_at, pos.ends_at,
       coalesce(held.confers, false)::boolean AS confers, coalesce(held.in_force, false)::boolean AS in_force, coalesce(held.removed, false)::boolean AS removed,
       coalesce(held.outranked_by, '00000000-0000-0000-0000-000000000000')::uuid AS outranked_by,
       r.resource_key, k.kind, k.aggregation, r.numeric_value, r.boolean_value,
       coalesce(totals.numeric_value, 0)::bigint AS total_number, coalesce(totals.boolean_value, false)::boolean AS total_yes,
       m.changed_at,
       (m.numeric_value IS NOT DISTINCT FROM totals.numeric_value AND m.boolean_value IS NOT DISTINCT FROM totals.boolean_value)::boolean AS materialized
FROM pools
CROSS JOIN instant
LEFT JOIN held ON held.pool_id = pools.id
LEFT JOIN core.positions pos ON pos.id = held.id
LEFT JOIN core.grants g ON g.id = pos.grant_id
LEFT JOIN core.products pr ON pr.id = held.product_id
LEFT JOIN core.tiers t ON t.product_id = held.product_id
LEFT JOIN core.ladders l ON l.id = t.ladder_id
LEFT JOIN core.product_sets ps ON ps.product_id = held.product_id
LEFT JOIN core.set_rules r ON r.set_id = ps.set_id
LEFT JOIN core.resource_keys k ON k.key = r.resource_key
LEFT JOIN totals ON totals.pool_id = pools.id AND totals.resource_key = r.resource_key
LEFT JOIN core.pool_entitlements m ON m.pool_id = pools.id AND m.resource_key = r.resource_key
ORDER BY pools.is_default DESC, pools.name, r.resource_key, t.rank DESC NULLS LAST, held.starts_at, held.id;

-- name: ReportCarriers :many
SELECT k.key, k.kind, coalesce(p.slug, '')::text AS product, coalesce(l.slug, '')::text AS ladder
FROM core.resource_keys k
LEFT JOIN (core.set_rules r
    JOIN core.product_sets ps ON ps.set_id = r.set_id
    JOIN core.products p ON p.id = ps.product_id
    LEFT JOIN core.tiers t ON t.product_id = p.id
    LEFT JOIN core.ladders l ON l.id = t.ladder_id) ON r.resource_key = k.key
ORDER BY k.key, l.slug, t.rank, p.slug;

-- name: ReportHistoricLines :many
SELECT DISTINCT ON (p.is_default, p.name, g.resource_key)
       p.name AS pool, g.resource_key, g.to_value, g.act, g.workflow, g.at
FROM core.ledger g JOIN core.pools p ON p.id = g.pool_id
WHERE p.organization_id = @organization_id AND g.at <= @at
ORDER BY p.is_default DESC, p.name, g.resource_key, g.id DESC;

-- name: ReportHistoricPositions :many
SELECT p.name AS pool, pos.id AS position_id, pr.slug AS product, pr.name AS product_name,
       pos.source, pos.subscription_id, pos.item_id, pos.grant_id, g.line, g.state AS grant_state, g.note, g.origin,
       pos.quantity, pos.starts_at, pos.ended_at, pos.end_reason
FROM core.positions pos
JOIN core.pools p ON p.id = pos.pool_id
JOIN core.products pr ON pr.id = pos.product_id
LEFT JOIN core.grants g ON g.id = pos.grant_id
WHERE p.organization_id = @organization_id AND pos.starts_at <= @at AND (pos.ended_at IS NULL OR pos.ended_at > @at)
  AND (g.issued_at IS NULL OR g.issued_at <= @at) -- a grant may begin before it is made: what extends another does
ORDER BY p.is_default DESC, p.name, pos.starts_at, pos.id;

-- name: IsPast :one
SELECT (@at::timestamptz < core.clock())::boolean AS past;

-- name: ListEndedPositions :many
-- The floor's comings and goings are left out: they follow from the others.
SELECT p.id, pr.slug AS product, pr.name AS product_name, p.source, coalesce(p.subscription_id, '')::text AS subscription_id,
       p.grant_id, g.line, g.state AS grant_state, g.note, g.origin,
       p.quantity, p.starts_at, p.ended_at::timestamptz AS ended_at, p.end_reason::text AS end_reason
FROM core.positions p
JOIN core.pools po ON po.id = p.pool_id
JOIN core.products pr ON pr.id = p.product_id
LEFT JOIN core.grants g ON g.id = p.grant_id
WHERE po.organization_id = @organization_id AND p.status = 'ended' AND p.source <> 'default'
ORDER BY p.ended_at DESC, p.id
LIMIT @most;
