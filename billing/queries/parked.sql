-- name: WriteParked :exec
-- One that was resolved begins anew; one still open keeps when it was first parked, and a request for another try that came meanwhile.
INSERT INTO stripe.parked_work AS p (kind, object_id, reason, detail, subscription_id, waiting_customer, waiting_prices, waiting_products,
                                     waiting_organization, parked_at, last_tried_at)
VALUES (@kind, @object_id, @reason, @detail, @subscription_id, @waiting_customer, @waiting_prices::text[], @waiting_products::text[],
        @waiting_organization, @at, @at)
ON CONFLICT (kind, object_id) DO UPDATE SET
    reason = excluded.reason, detail = excluded.detail, subscription_id = excluded.subscription_id,
    waiting_customer = excluded.waiting_customer, waiting_prices = excluded.waiting_prices, waiting_products = excluded.waiting_products,
    waiting_organization = excluded.waiting_organization,
    attempts = CASE WHEN p.resolved_at IS NULL THEN p.attempts + 1 ELSE 1 END,
    parked_at = CASE WHEN p.resolved_at IS NULL THEN p.parked_at ELSE excluded.parked_at END,
    last_tried_at = excluded.last_tried_at,
    retry_requested_at = CASE WHEN p.resolved_at IS NULL THEN p.retry_requested_at END,
    resolved_at = NULL;

-- name: ResolveParked :execrows
UPDATE stripe.parked_work SET resolved_at = @at::timestamptz, last_tried_at = @at::timestamptz, retry_requested_at = NULL
WHERE kind = @kind AND object_id = @object_id AND resolved_at IS NULL;

-- name: ListParked :many
SELECT p.*, s.customer_id AS mirror_customer, c.organization_id AS organization_id, o.slug AS organization_slug
FROM stripe.parked_work p
LEFT JOIN stripe.subscriptions s ON s.id = p.subscription_id
LEFT JOIN stripe.customers c ON c.id = coalesce(p.waiting_customer, s.customer_id)
LEFT JOIN core.organizations o ON o.id = c.organization_id
WHERE p.resolved_at IS NULL
  AND (sqlc.narg(organization_id)::uuid IS NULL OR c.organization_id = sqlc.narg(organization_id)::uuid)
  AND (sqlc.narg(customer_id)::text IS NULL OR coalesce(p.waiting_customer, s.customer_id) = sqlc.narg(customer_id)::text)
  AND (sqlc.narg(object_id)::text IS NULL OR p.object_id = sqlc.narg(object_id)::text OR p.subscription_id = sqlc.narg(object_id)::text)
  AND (p.kind, p.object_id) > (@after_kind::text, @after_object::text)
ORDER BY p.kind, p.object_id
LIMIT @page_size;

-- name: ListDue :many
-- Whether something is due is told from what stands in the tables now: no link, mapping or new organisation has to remember to say so.
SELECT p.kind, p.object_id, p.subscription_id, p.retry_requested_at
FROM stripe.parked_work p
WHERE p.resolved_at IS NULL
  AND (p.retry_requested_at IS NOT NULL
       OR EXISTS (SELECT FROM stripe.customers c WHERE c.id = p.waiting_customer)
       OR (p.waiting_organization IS NOT NULL AND EXISTS (SELECT FROM core.organizations o WHERE p.waiting_organization IN (o.slug, o.id::text)))
       OR EXISTS (SELECT FROM stripe.price_mappings m WHERE m.stripe_price_id = ANY (p.waiting_prices))
       OR EXISTS (SELECT FROM stripe.product_mappings m WHERE m.stripe_product_id = ANY (p.waiting_products)))
  AND (p.kind, p.object_id) > (@after_kind::text, @after_object::text)
ORDER BY p.kind, p.object_id
LIMIT @page_size;

-- name: RequestRetries :execrows
UPDATE stripe.parked_work p SET retry_requested_at = @at::timestamptz
FROM (SELECT unnest(@kinds::text[]) AS kind, unnest(@object_ids::text[]) AS object_id) w
WHERE p.kind = w.kind AND p.object_id = w.object_id AND p.resolved_at IS NULL;

-- name: ClearRetryRequests :execrows
-- A request made since the list was read stays.
UPDATE stripe.parked_work p SET retry_requested_at = NULL
FROM (SELECT unnest(@kinds::text[]) AS kind, unnest(@object_ids::text[]) AS object_id, unnest(@requested_at::timestamptz[]) AS requested_at) w
WHERE p.kind = w.kind AND p.object_id = w.object_id AND p.retry_requested_at = w.requested_at;
