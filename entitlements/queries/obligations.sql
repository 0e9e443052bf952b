-- name: ListOwed :many
SELECT pool_id, change_id
FROM core.change_obligations
WHERE pool_id = ANY (@pools::uuid[]) AND state <> 'settled'
ORDER BY pool_id, change_id;

-- name: SettleOwed :one
SELECT core.settle_owed(@pool_id::uuid)::integer AS changed;

-- name: InsertChange :exec
INSERT INTO core.changes (id, kind, summary, type_id, act, workflow, committed_at, owed)
VALUES (@id, @kind, @summary, sqlc.narg('type_id'), @act, @workflow, @committed_at, @owed);

-- name: GetChange :one
SELECT id, kind, summary, act, workflow, committed_at, owed FROM core.changes WHERE id = @id;

-- name: OweHolders :execrows
INSERT INTO core.change_obligations (pool_id, change_id)
SELECT DISTINCT pool_id, @change_id::uuid FROM core.positions WHERE product_id = ANY (@product_ids::uuid[]) AND status <> 'ended';
