-- name: ListPriceMappings :many
SELECT stripe_price_id, product_id FROM stripe.price_mappings ORDER BY stripe_price_id;

-- name: ListProductMappings :many
SELECT stripe_product_id, product_id FROM stripe.product_mappings ORDER BY stripe_product_id;

-- name: WritePriceMapping :execrows
INSERT INTO stripe.price_mappings AS m (stripe_price_id, product_id) VALUES (@price, @product_id)
ON CONFLICT (stripe_price_id) DO UPDATE SET product_id = excluded.product_id WHERE m.product_id <> excluded.product_id;

-- name: WriteProductMapping :execrows
INSERT INTO stripe.product_mappings AS m (stripe_product_id, product_id) VALUES (@stripe_product, @product_id)
ON CONFLICT (stripe_product_id) DO UPDATE SET product_id = excluded.product_id WHERE m.product_id <> excluded.product_id;

-- name: MapPrices :many
-- A price's own mapping goes before the mapping of its Stripe product.
SELECT w.price_id::text AS price_id, w.stripe_product_id::text AS stripe_product_id, p.id AS product_id, p.slug AS product_slug
FROM (SELECT unnest(@prices::text[]) AS price_id, unnest(@stripe_products::text[]) AS stripe_product_id) w
LEFT JOIN stripe.price_mappings pm ON pm.stripe_price_id = w.price_id
LEFT JOIN stripe.product_mappings sm ON sm.stripe_product_id = w.stripe_product_id
JOIN core.products p ON p.id = coalesce(pm.product_id, sm.product_id);

-- name: ListMappedItems :many
SELECT i.subscription_id, i.id AS item_id, p.id AS product_id, i.quantity
FROM stripe.subscription_items i
JOIN stripe.subscriptions s ON s.id = i.subscription_id
LEFT JOIN stripe.price_mappings pm ON pm.stripe_price_id = i.price_id
LEFT JOIN stripe.product_mappings sm ON sm.stripe_product_id = i.stripe_product_id
JOIN core.products p ON p.id = coalesce(pm.product_id, sm.product_id)
WHERE i.removed_at IS NULL AND i.quantity > 0 AND s.status = ANY (@statuses::text[])
  AND (i.id = ANY (@item_ids::text[]) OR i.price_id = ANY (@prices::text[]) OR i.stripe_product_id = ANY (@stripe_products::text[]))
ORDER BY i.id;
