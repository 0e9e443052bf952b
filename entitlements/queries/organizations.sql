-- name: GetDefaultPool :one
SELECT id FROM core.pools WHERE organization_id = @organization_id AND is_default;

-- name: FindOrganization :one
SELECT o.id, o.slug, o.name, t.slug AS type, p.id AS default_pool
FROM core.organizations o
JOIN core.organization_types t ON t.id = o.type_id
JOIN core.pools p ON p.organization_id = o.id AND p.is_default
WHERE o.slug = @slug::text OR o.id = sqlc.narg('id')::uuid
ORDER BY o.slug = @slug::text DESC
LIMIT 1;

-- name: ListOrganizationNames :many
SELECT slug, name FROM core.organizations ORDER BY slug LIMIT @most;

-- name: ListOrganizations :many
SELECT o.id, o.slug, o.name, t.slug AS type, p.id AS default_pool, o.created_at,
       coalesce((SELECT string_agg(pr.slug || CASE WHEN e.quantity > 1 THEN ' × ' || e.quantity ELSE '' END, ', ' ORDER BY pr.slug)
                 FROM core.effective_positions(p.id, core.clock()) e
                 JOIN core.products pr ON pr.id = e.product_id
                 WHERE e.confers), '')::text AS conferring
FROM core.organizations o
JOIN core.organization_types t ON t.id = o.type_id
JOIN core.pools p ON p.organization_id = o.id AND p.is_default
WHERE o.slug > @after::text
ORDER BY o.slug
LIMIT @most;

-- name: InsertOrganization :execrows
INSERT INTO core.organizations (id, slug, name, type_id) VALUES (@id, @slug, @name, @type_id)
ON CONFLICT (slug) DO NOTHING;

-- name: InsertDefaultPool :exec
INSERT INTO core.pools (id, organization_id, name, is_default) VALUES (@id, @organization_id, 'default', true);

-- name: FindOrganizationType :one
SELECT id FROM core.organization_types WHERE slug = @slug::text;

-- name: ListOrganizationTypes :many
SELECT t.id, t.slug, t.name, p.slug AS default_product
FROM core.organization_types t
LEFT JOIN core.products p ON p.id = t.default_product_id
ORDER BY t.slug;
