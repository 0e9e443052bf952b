-- name: ListSubscriptionPools :many
SELECT DISTINCT pool_id
FROM core.positions
WHERE source = 'subscription' AND subscription_id = @subscription_id::text AND status <> 'ended'
ORDER BY pool_id;

-- name: ListSubscriptionPositions :many
SELECT id, pool_id, product_id, item_id::text AS item_id, quantity, status
FROM core.positions
WHERE source = 'subscription' AND subscription_id = @subscription_id::text AND status <> 'ended'
ORDER BY item_id;

-- name: ListItemPositions :many
SELECT id, pool_id, product_id, subscription_id::text AS subscription_id, item_id::text AS item_id, quantity, status
FROM core.positions
WHERE source = 'subscription' AND item_id = ANY (@item_ids::text[]) AND status <> 'ended'
ORDER BY item_id;

-- name: InsertItemPosition :exec
INSERT INTO core.positions (pool_id, product_id, source, subscription_id, item_id, quantity, status, starts_at, created_act)
VALUES (@pool_id, @product_id, 'subscription', @subscription_id::text, @item_id::text, @quantity, @status, @starts_at, @act);

-- name: UpdateItemPosition :exec
UPDATE core.positions SET quantity = @quantity, status = @status
WHERE id = @id AND status <> 'ended';

-- name: EndPositions :execrows
UPDATE core.positions
SET status = 'ended', ended_at = greatest(@at::timestamptz, starts_at), ended_act = @act::text, end_reason = @reason::text
WHERE id = ANY (@ids::uuid[]) AND status <> 'ended';

-- name: MoveItemPositions :exec
-- Positions in place of ended ones, of another product.
INSERT INTO core.positions (pool_id, product_id, source, subscription_id, item_id, quantity, status, starts_at, created_act)
SELECT p.pool_id, m.product_id, 'subscription', p.subscription_id, p.item_id, p.quantity, m.status, @at::timestamptz, @act::text
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@products::uuid[]) AS product_id, unnest(@statuses::text[]) AS status) m
JOIN core.positions p ON p.id = m.id;

-- name: SettlePool :one
SELECT core.settle_pool(@pool_id::uuid, @act::text, @workflow::text, @at::timestamptz)::integer AS changed;
