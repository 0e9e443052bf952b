-- name: EntitledTo :many
-- One row for each conferring position that gives the key, one without a product where none does, none where there is no such pool.
WITH asked AS MATERIALIZED (
    SELECT coalesce(sqlc.narg('at')::timestamptz, core.clock()) AS at
), pool AS MATERIALIZED (
    SELECT p.id, sqlc.narg('at')::timestamptz IS NOT NULL AND core.ledger_tells(p.id, asked.at) AS past
    FROM core.pools p CROSS JOIN asked
    WHERE p.id = sqlc.narg('pool_id')::uuid OR p.organization_id = sqlc.narg('organization_id')::uuid AND p.is_default
)
SELECT asked.at::timestamptz AS at, pool.id AS pool_id, coalesce(k.kind, '')::text AS kind, pool.past::boolean AS past,
       coalesce(r.aggregation, '')::text AS aggregation, coalesce(r.numeric_value, 0)::bigint AS numeric_value, coalesce(r.boolean_value, false)::boolean AS boolean_value,
       pos.id AS position_id, pr.slug AS product, pr.name AS product_name, l.slug AS ladder, t.rank, coalesce(r.source, '')::text AS source,
       pos.subscription_id, pos.item_id, pos.grant_id, g.line, g.state AS grant_state, g.note, g.origin,
       coalesce(r.quantity, 0)::bigint AS quantity, coalesce(r.starts_at, asked.at)::timestamptz AS starts_at, pos.ends_at
FROM pool
CROSS JOIN asked
LEFT JOIN core.resource_keys k ON k.key = @resource_key
LEFT JOIN LATERAL core.pool_reasons(pool.id, asked.at)
    AS r (resource_key, kind, aggregation, numeric_value, boolean_value, position_id, product_id, source, quantity, starts_at, ends_at)
    ON r.resource_key = k.key AND NOT pool.past
LEFT JOIN core.products pr ON pr.id = r.product_id
LEFT JOIN core.tiers t ON t.product_id = r.product_id
LEFT JOIN core.ladders l ON l.id = t.ladder_id
LEFT JOIN core.positions pos ON pos.id = r.position_id
LEFT JOIN core.grants g ON g.id = pos.grant_id
ORDER BY t.rank DESC NULLS LAST, r.starts_at, pos.id;

-- name: LedgerLineAt :many
SELECT to_value, act, workflow, at FROM core.ledger
WHERE pool_id = @pool_id AND resource_key = @resource_key AND at <= @at ORDER BY id DESC LIMIT 1;
