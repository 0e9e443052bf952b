-- name: ListOwed :many
-- Each pool is looked up by itself: a plan for any number of them, made while little is owed, reads the whole table, and is kept when much is.
SELECT owed.pool_id, owed.change_id
FROM (SELECT unnest(@pools::uuid[]) AS id) p
CROSS JOIN LATERAL (
    SELECT o.pool_id, o.change_id FROM core.change_obligations o
    WHERE o.pool_id = p.id AND o.state <> 'settled' OFFSET 0) owed
ORDER BY owed.pool_id, owed.change_id;

-- name: SettleOwed :one
SELECT core.settle_owed(@pool_id::uuid)::integer AS changed;

-- name: SettleObligations :exec
-- What a change settled that came after those which left the pools owed.
UPDATE core.change_obligations
SET state = 'settled', settled_at = @at::timestamptz, settled_act = @act::text, last_tried_at = @at::timestamptz, last_error = NULL
WHERE pool_id = ANY (@pools::uuid[]) AND state <> 'settled';

-- name: ListOpenObligations :many
SELECT pool_id
FROM core.change_obligations
WHERE change_id = @change_id AND state = 'open' AND pool_id > @after
ORDER BY pool_id LIMIT @most;

-- name: CountObligations :one
SELECT count(*) FILTER (WHERE state = 'open')::bigint AS open, count(*) FILTER (WHERE state = 'parked')::bigint AS parked
FROM core.change_obligations
WHERE change_id = @change_id AND state IN ('open', 'parked');

-- name: FailObligation :one
UPDATE core.change_obligations
SET attempts = attempts + 1, last_error = @reason::text, last_tried_at = @at::timestamptz,
    state = CASE WHEN attempts + 1 >= @most::integer THEN 'parked' ELSE 'open' END
WHERE pool_id = @pool_id AND change_id = @change_id AND state = 'open'
RETURNING state;

-- name: ListOpenChanges :many
SELECT DISTINCT change_id FROM core.change_obligations WHERE state = 'open' ORDER BY change_id;

-- name: ListParkedObligations :many
SELECT b.pool_id, b.change_id, b.attempts, b.last_error, b.last_tried_at, c.kind, c.summary, c.committed_at, p.name AS pool, o.slug AS organization
FROM core.change_obligations b
JOIN core.changes c ON c.id = b.change_id
JOIN core.pools p ON p.id = b.pool_id
JOIN core.organizations o ON o.id = p.organization_id
WHERE b.state = 'parked' AND (b.change_id, b.pool_id) > (@after_change::uuid, @after_pool::uuid)
  AND (sqlc.narg('object')::uuid IS NULL OR b.change_id = sqlc.narg('object')::uuid OR b.pool_id = sqlc.narg('object')::uuid OR o.id = sqlc.narg('object')::uuid)
ORDER BY b.change_id, b.pool_id LIMIT @most;

-- name: ReopenObligations :execrows
UPDATE core.change_obligations b
SET state = 'open', attempts = 0
FROM (SELECT unnest(@pools::uuid[]) AS pool_id, unnest(@changes::uuid[]) AS change_id) k
WHERE b.pool_id = k.pool_id AND b.change_id = k.change_id AND b.state = 'parked';
