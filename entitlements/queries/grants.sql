-- name: GetGrantHead :one
-- The head of the line that a grant belongs to: the one that no other extends. Its position is the live one, if it has any.
SELECT h.id, h.line, h.pool_id, h.quantity, h.state, h.starts_at, h.ends_at, h.note, h.begun_at, h.conferred_at,
       h.closed_at, h.closed_act, h.closed_workflow,
       p.id AS product_id, p.slug AS product, (s.product_id IS NOT NULL)::boolean AS succeeded, s.successor_id,
       coalesce(o.slug, '')::text AS organization
FROM core.grants g
JOIN core.grants h ON h.line = g.line AND NOT EXISTS (SELECT FROM core.grants e WHERE e.extends = h.id)
LEFT JOIN core.positions x ON x.grant_id = h.id AND x.status <> 'ended'
JOIN core.products p ON p.id = coalesce(x.product_id, h.product_id)
LEFT JOIN core.successions s ON s.product_id = p.id
LEFT JOIN core.pools po ON po.id = h.pool_id
LEFT JOIN core.organizations o ON o.id = po.organization_id
WHERE g.id = @grant_id;

-- name: InsertGrant :execrows
INSERT INTO core.grants (id, pool_id, product_id, quantity, state, starts_at, ends_at, line, extends, origin, note,
                         begun_at, conferred_at, issued_at, issued_act, issued_workflow)
VALUES (@id, sqlc.narg('pool_id'), @product_id, @quantity, @state, @starts_at, sqlc.narg('ends_at'), @line, sqlc.narg('extends'), 'operator', @note,
        sqlc.narg('begun_at'), sqlc.narg('conferred_at'), @issued_at, @issued_act, @issued_workflow)
ON CONFLICT (id) DO NOTHING;

-- name: ConferGrant :exec
SELECT core.confer_grant(@grant_id, @pool_id, @product_id, @quantity, @starts_at, sqlc.narg('ends_at')::timestamptz, @act::text);

-- name: CloseGrant :execrows
-- Its position ends with it, and no later than its bound: from there on it conferred nothing.
WITH ended AS (
    UPDATE core.positions
    SET status = 'ended', ended_at = least(greatest(@at::timestamptz, starts_at), ends_at), ended_act = @act::text, end_reason = @state::text
    WHERE grant_id = @id::uuid AND status <> 'ended'
)
UPDATE core.grants
SET state = @state::text, closed_at = @at::timestamptz, closed_act = @act::text, closed_workflow = @workflow::text
WHERE id = @id::uuid AND state IN ('waiting', 'active', 'replaced');

-- name: FailGrant :exec
UPDATE core.grants
SET attempts = attempts + 1, last_error = @reason::text, last_tried_at = @at::timestamptz
WHERE id = @id AND state IN ('waiting', 'active', 'replaced');

-- name: ListEndingGrants :many
SELECT id, pool_id, ends_at::timestamptz AS at
FROM core.grants
WHERE state IN ('waiting', 'active', 'replaced') AND ends_at <= core.clock() AND (ends_at, id) > (@after_at::timestamptz, @after_id::uuid)
ORDER BY ends_at, id LIMIT @most;

-- name: ListBeginningGrants :many
SELECT id, pool_id, starts_at AS at
FROM core.grants
WHERE state IN ('waiting', 'active', 'replaced') AND begun_at IS NULL AND pool_id IS NOT NULL
  AND starts_at <= core.clock() AND (starts_at, id) > (@after_at::timestamptz, @after_id::uuid)
ORDER BY starts_at, id LIMIT @most;

-- name: ListGrants :many
SELECT g.id, g.line, g.extends, coalesce(o.slug, '')::text AS organization, coalesce(po.name, '')::text AS pool, p.slug AS product, g.quantity, g.state,
       g.starts_at, g.ends_at, g.origin, g.note, g.begun_at, g.conferred_at, g.issued_at, g.issued_act, g.issued_workflow,
       g.closed_at, g.closed_act, g.closed_workflow, g.attempts, g.last_error, g.last_tried_at
FROM core.grants g
LEFT JOIN core.positions x ON x.grant_id = g.id AND x.status <> 'ended'
JOIN core.products p ON p.id = coalesce(x.product_id, g.product_id)
LEFT JOIN core.pools po ON po.id = g.pool_id
LEFT JOIN core.organizations o ON o.id = po.organization_id
WHERE (sqlc.narg('organization_id')::uuid IS NULL OR po.organization_id = sqlc.narg('organization_id')::uuid)
  AND (cardinality(@states::text[]) = 0 OR g.state = ANY (@states::text[]))
  AND (NOT @overdue::boolean
       OR g.state IN ('waiting', 'active', 'replaced')
          AND (g.ends_at <= core.clock() OR g.starts_at <= core.clock() AND g.begun_at IS NULL AND g.pool_id IS NOT NULL))
  AND (g.issued_at, g.id) > (@after_at::timestamptz, @after_id::uuid)
ORDER BY g.issued_at, g.id LIMIT @most;

-- name: GetGrant :one
SELECT id, line, extends, pool_id, product_id, quantity, starts_at, ends_at, issued_act FROM core.grants WHERE id = @id;

-- name: ListLine :many
-- A line in its own order: each grant extends the one before.
WITH RECURSIVE chain AS (
    SELECT c.id, 1 AS n FROM core.grants c WHERE c.id = @line::uuid
    UNION ALL
    SELECT e.id, chain.n + 1 FROM chain JOIN core.grants e ON e.extends = chain.id
)
SELECT g.id, g.line, g.extends, coalesce(o.slug, '')::text AS organization, coalesce(po.name, '')::text AS pool, p.slug AS product, g.quantity, g.state,
       g.starts_at, g.ends_at, g.origin, g.note, g.begun_at, g.conferred_at, g.issued_at, g.issued_act, g.issued_workflow,
       g.closed_at, g.closed_act, g.closed_workflow, g.attempts, g.last_error, g.last_tried_at
FROM chain
JOIN core.grants g ON g.id = chain.id
LEFT JOIN core.positions x ON x.grant_id = g.id AND x.status <> 'ended'
JOIN core.products p ON p.id = coalesce(x.product_id, g.product_id)
LEFT JOIN core.pools po ON po.id = g.pool_id
LEFT JOIN core.organizations o ON o.id = po.organization_id
ORDER BY chain.n;

-- name: GetDueGrant :one
SELECT id, pool_id, starts_at, ends_at, begun_at, closed_at FROM core.grants WHERE id = @id;
