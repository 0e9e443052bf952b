-- name: ReadVersion :one
SELECT coalesce((SELECT s.version FROM stripe.subscriptions s WHERE s.id = @id), 0)::bigint AS version;

-- name: ReadSubscription :one
SELECT * FROM stripe.subscriptions WHERE id = @id;

-- name: WriteSubscription :one
INSERT INTO stripe.subscriptions AS s (id, version, customer_id, status, current_period_start, current_period_end, trial_end, cancel_at,
                                       cancel_at_period_end, canceled_at, ended_at, stripe_created_at, reconciled_at)
VALUES (@id, 1, @customer_id, @status, @current_period_start, @current_period_end, @trial_end, @cancel_at,
        @cancel_at_period_end, @canceled_at, @ended_at, @stripe_created_at, @reconciled_at)
ON CONFLICT (id) DO UPDATE SET
    version = s.version + 1, customer_id = excluded.customer_id, status = excluded.status,
    current_period_start = excluded.current_period_start, current_period_end = excluded.current_period_end,
    trial_end = excluded.trial_end, cancel_at = excluded.cancel_at, cancel_at_period_end = excluded.cancel_at_period_end,
    canceled_at = excluded.canceled_at, ended_at = excluded.ended_at, stripe_created_at = excluded.stripe_created_at,
    reconciled_at = excluded.reconciled_at
RETURNING version;

-- name: RaiseVersion :one
INSERT INTO stripe.subscriptions AS s (id, version, reconciled_at) VALUES (@id, 1, @reconciled_at)
ON CONFLICT (id) DO UPDATE SET version = s.version + 1, reconciled_at = excluded.reconciled_at
RETURNING version;

-- name: WriteEvents :exec
INSERT INTO stripe.subscription_events (subscription_id, event_id, event_type, first_seen_at, version)
SELECT @subscription_id, e.event_id, e.event_type, @seen_at, @version
FROM (SELECT unnest(@event_ids::text[]) AS event_id, unnest(@event_types::text[]) AS event_type) e
ON CONFLICT (subscription_id, event_id) DO NOTHING;

-- name: WriteItems :execrows
INSERT INTO stripe.subscription_items AS i (id, subscription_id, price_id, stripe_product_id, quantity)
SELECT w.id, @subscription_id, w.price_id, w.stripe_product_id, w.quantity
FROM (SELECT unnest(@ids::text[]) AS id, unnest(@prices::text[]) AS price_id, unnest(@products::text[]) AS stripe_product_id,
             unnest(@quantities::bigint[]) AS quantity) w
ORDER BY w.id COLLATE "C"
ON CONFLICT (subscription_id, id) DO UPDATE
    SET price_id = excluded.price_id, stripe_product_id = excluded.stripe_product_id, quantity = excluded.quantity, removed_at = NULL
    WHERE (i.price_id, i.stripe_product_id, i.quantity, i.removed_at) IS DISTINCT FROM
          (excluded.price_id, excluded.stripe_product_id, excluded.quantity, NULL::timestamptz);

-- name: RemoveItems :execrows
UPDATE stripe.subscription_items SET removed_at = @removed_at::timestamptz
WHERE subscription_id = @subscription_id AND removed_at IS NULL AND id <> ALL (@shown::text[]);

-- name: ReadItems :many
SELECT id, price_id, stripe_product_id, quantity FROM stripe.subscription_items
WHERE subscription_id = @subscription_id AND removed_at IS NULL ORDER BY id;
