-- name: ListResourceKeys :many
SELECT key, kind, aggregation, usage_window, description FROM core.resource_keys ORDER BY key;

-- name: ListSets :many
SELECT id, slug, name FROM core.entitlement_sets ORDER BY slug;

-- name: ListSetRules :many
SELECT set_id, resource_key, kind, numeric_value, boolean_value FROM core.set_rules ORDER BY set_id, resource_key;

-- name: ListProducts :many
SELECT id, slug, name FROM core.products ORDER BY slug;

-- name: ListProductSets :many
SELECT ps.product_id, s.slug
FROM core.product_sets ps JOIN core.entitlement_sets s ON s.id = ps.set_id
ORDER BY ps.product_id, s.slug;

-- name: ListLadders :many
SELECT id, slug, name FROM core.ladders ORDER BY slug;

-- name: ListTiers :many
SELECT t.ladder_id, t.rank, p.slug
FROM core.tiers t JOIN core.products p ON p.id = t.product_id
ORDER BY t.ladder_id, t.rank;

-- name: InsertResourceKey :exec
INSERT INTO core.resource_keys (key, kind, aggregation, usage_window, description)
VALUES (@key, @kind, @aggregation, @usage_window, @description);

-- name: UpdateResourceKey :exec
UPDATE core.resource_keys
SET kind = @kind, aggregation = @aggregation, usage_window = @usage_window, description = @description
WHERE key = @key;

-- name: InsertSet :exec
INSERT INTO core.entitlement_sets (id, slug, name) VALUES (@id, @slug, @name);

-- name: RenameSet :exec
UPDATE core.entitlement_sets SET name = @name WHERE id = @id;

-- name: PutSetRule :exec
INSERT INTO core.set_rules (set_id, resource_key, kind, numeric_value, boolean_value)
VALUES (@set_id, @resource_key, @kind, sqlc.narg('numeric_value'), sqlc.narg('boolean_value'))
ON CONFLICT (set_id, resource_key) DO UPDATE
    SET kind = excluded.kind, numeric_value = excluded.numeric_value, boolean_value = excluded.boolean_value;

-- name: DeleteSetRule :exec
DELETE FROM core.set_rules WHERE set_id = @set_id AND resource_key = @resource_key;

-- name: InsertProduct :exec
INSERT INTO core.products (id, slug, name) VALUES (@id, @slug, @name);

-- name: RenameProduct :exec
UPDATE core.products SET name = @name WHERE id = @id;

-- name: AddProductSets :exec
INSERT INTO core.product_sets (product_id, set_id)
SELECT @product_id, s.id FROM core.entitlement_sets s WHERE s.slug = ANY (@sets::text[]);

-- name: DeleteProductSets :exec
DELETE FROM core.product_sets ps USING core.entitlement_sets s
WHERE ps.product_id = @product_id AND s.id = ps.set_id AND s.slug = ANY (@sets::text[]);

-- name: InsertLadder :exec
INSERT INTO core.ladders (id, slug, name) VALUES (@id, @slug, @name);

-- name: RenameLadder :exec
UPDATE core.ladders SET name = @name WHERE id = @id;

-- name: DeleteTiers :exec
DELETE FROM core.tiers WHERE ladder_id = ANY (@ladder_ids::uuid[]);

-- name: InsertTiers :exec
INSERT INTO core.tiers (product_id, ladder_id, rank)
SELECT p.id, @ladder_id, (array_position(@products::text[], p.slug) - 1)::integer
FROM core.products p
WHERE p.slug = ANY (@products::text[]);

-- name: InsertOrganizationType :exec
INSERT INTO core.organization_types (id, slug, name, default_product_id)
VALUES (@id, @slug, @name, sqlc.narg('default_product_id'));

-- name: UpdateOrganizationType :exec
UPDATE core.organization_types
SET name = @name, default_product_id = sqlc.narg('default_product_id')::uuid,
    incumbents = CASE WHEN default_product_id IS DISTINCT FROM sqlc.narg('default_product_id')::uuid THEN 'migrate' ELSE incumbents END
WHERE id = @id;

-- name: CountHolders :many
SELECT product_id, count(DISTINCT pool_id)::bigint AS pools
FROM core.positions
WHERE product_id = ANY (@product_ids::uuid[]) AND status <> 'ended'
GROUP BY product_id;

-- name: ListPoolEntitlements :many
SELECT p.id AS pool_id, p.name AS pool, o.slug AS organization, e.resource_key, e.numeric_value, e.boolean_value
FROM core.pools p
JOIN core.organizations o ON o.id = p.organization_id
LEFT JOIN core.pool_entitlements e ON e.pool_id = p.id
WHERE p.id = ANY (@pool_ids::uuid[])
ORDER BY o.slug, p.name, e.resource_key;
