-- name: ListOwed :many
SELECT pool_id, change_id
FROM core.change_obligations
WHERE pool_id = ANY (@pools::uuid[]) AND state <> 'settled'
ORDER BY pool_id, change_id;

-- name: SettleOwed :one
SELECT core.settle_owed(@pool_id::uuid)::integer AS changed;
