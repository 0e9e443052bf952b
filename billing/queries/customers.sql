-- name: ReadLink :one
SELECT c.organization_id, o.slug AS organization_slug
FROM stripe.customers c JOIN core.organizations o ON o.id = c.organization_id
WHERE c.id = @id;

-- name: AddLink :execrows
INSERT INTO stripe.customers (id, organization_id, linked_at, linked_by)
VALUES (@id, @organization_id, core.clock(), @linked_by)
ON CONFLICT (id) DO NOTHING;

-- name: ListCustomers :many
SELECT c.id, c.organization_id, o.slug AS organization_slug, c.linked_at, c.linked_by
FROM stripe.customers c JOIN core.organizations o ON o.id = c.organization_id
WHERE sqlc.narg(organization_id)::uuid IS NULL OR c.organization_id = sqlc.narg(organization_id)::uuid
ORDER BY c.id;
