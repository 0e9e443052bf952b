-- name: InsertChange :exec
INSERT INTO core.changes (id, kind, summary, type_id, act, workflow, committed_at, owed)
VALUES (@id, @kind, @summary, sqlc.narg('type_id'), @act, @workflow, core.clock(), @owed);

-- name: GetChange :one
SELECT id, kind, summary, act, workflow, committed_at, owed FROM core.changes WHERE id = @id;

-- name: ListChanges :many
SELECT c.id, c.kind, c.summary, c.act, c.workflow, c.committed_at, c.owed,
       (SELECT count(*) FROM core.change_obligations b WHERE b.change_id = c.id AND b.state = 'open')::bigint AS open,
       (SELECT count(*) FROM core.change_obligations b WHERE b.change_id = c.id AND b.state = 'parked')::bigint AS parked
FROM core.changes c
WHERE sqlc.narg('id')::uuid IS NULL OR c.id = sqlc.narg('id')::uuid
ORDER BY c.committed_at DESC, c.id LIMIT @most;

-- name: CountReached :one
-- The pools that hold one of the products, the default pools of the types, and the pools named, each once.
SELECT count(*)::bigint
FROM (SELECT x.pool_id FROM core.positions x WHERE x.product_id = ANY (@product_ids::uuid[]) AND x.status <> 'ended'
      UNION
      SELECT p.id FROM core.pools p JOIN core.organizations o ON o.id = p.organization_id WHERE p.is_default AND o.type_id = ANY (@type_ids::uuid[])
      UNION
      SELECT unnest(@pools::uuid[])) reached;

-- name: ListReached :many
SELECT reached.pool_id
FROM (SELECT x.pool_id FROM core.positions x WHERE x.product_id = ANY (@product_ids::uuid[]) AND x.status <> 'ended'
      UNION
      SELECT p.id FROM core.pools p JOIN core.organizations o ON o.id = p.organization_id WHERE p.is_default AND o.type_id = ANY (@type_ids::uuid[])
      UNION
      SELECT unnest(@pools::uuid[])) reached
ORDER BY reached.pool_id;

-- name: OweReached :execrows
INSERT INTO core.change_obligations (pool_id, change_id)
SELECT reached.pool_id, @change_id::uuid
FROM (SELECT x.pool_id FROM core.positions x WHERE x.product_id = ANY (@product_ids::uuid[]) AND x.status <> 'ended'
      UNION
      SELECT p.id FROM core.pools p JOIN core.organizations o ON o.id = p.organization_id WHERE p.is_default AND o.type_id = ANY (@type_ids::uuid[])
      UNION
      SELECT unnest(@pools::uuid[])) reached
ORDER BY reached.pool_id;

-- name: FindOpenDefault :one
-- A default change that goes on reaching organisations.
SELECT c.id, t.slug AS type, (SELECT count(*) FROM core.change_obligations b WHERE b.change_id = c.id AND b.state = 'open')::bigint AS open
FROM core.changes c JOIN core.organization_types t ON t.id = c.type_id
WHERE EXISTS (SELECT FROM core.change_obligations b WHERE b.change_id = c.id AND b.state = 'open')
ORDER BY c.committed_at LIMIT 1;

-- name: FindSet :one
SELECT id, slug, name FROM core.entitlement_sets WHERE slug = @set::text;

-- name: ListRulesOf :many
SELECT resource_key, kind, numeric_value, boolean_value FROM core.set_rules WHERE set_id = @set_id ORDER BY resource_key;

-- name: ListCarriers :many
-- The products through which a set is held: those that carry it, and those in whose place one of these stands.
SELECT ps.product_id FROM core.product_sets ps WHERE ps.set_id = @set_id
UNION
SELECT s.product_id FROM core.successions s JOIN core.product_sets ps ON ps.product_id = s.successor_id WHERE ps.set_id = @set_id
ORDER BY 1;

-- name: PreviewRules :many
-- A page of the pools that hold one of the products, and in each what the deltas change; a pool that stays as it is has one row without a key.
WITH page AS (
    SELECT DISTINCT h.pool_id
    FROM (SELECT unnest(@product_ids::uuid[]) AS product_id) carrier
    CROSS JOIN LATERAL (
        SELECT DISTINCT x.pool_id FROM core.positions x
        WHERE x.product_id = carrier.product_id AND x.status <> 'ended' AND x.pool_id > @after::uuid
        ORDER BY x.pool_id LIMIT @most) h
    ORDER BY h.pool_id LIMIT @most
)
SELECT p.id AS pool_id, p.name AS pool, o.slug AS organization, coalesce(d.key, '')::text AS resource_key,
       coalesce(d.from_number::text, d.from_yes::text, '')::text AS from_value, coalesce(d.to_number::text, d.to_yes::text, '')::text AS to_value
FROM page
JOIN core.pools p ON p.id = page.pool_id
JOIN core.organizations o ON o.id = p.organization_id
LEFT JOIN LATERAL core.preview_rules(p.id, core.clock(), @set_id::uuid, @deltas::jsonb) AS d (key, from_number, from_yes, to_number, to_yes) ON true
ORDER BY p.id, 4;

-- name: ListSuccessions :many
SELECT product_id, successor_id FROM core.successions WHERE product_id = ANY (@product_ids::uuid[]);

-- name: DropSuccessions :exec
DELETE FROM core.successions WHERE product_id = ANY (@product_ids::uuid[]);
