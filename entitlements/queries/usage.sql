-- name: TakeAllowance :one
-- A key without a window renews at the zero time.
SELECT t.outcome::text AS outcome, t.n::bigint AS n, t.used::bigint AS used, t.limit_value::bigint AS limit_value,
       t.window_start::timestamptz AS window_start, coalesce(t.renews_at, '0001-01-01 00:00:00+00')::timestamptz AS renews_at, t.at::timestamptz AS at
FROM core.take_allowance(@pool_id, @resource_key, @window_start, @id, @n)
    AS t (outcome, n, used, limit_value, window_start, renews_at, at);

-- name: ReleaseSpend :one
SELECT r.freed::bigint AS freed, r.kept::bigint AS kept, r.used::bigint AS used, r.window_start::timestamptz AS window_start, r.over::boolean AS over
FROM core.release_spend(@pool_id, @resource_key, @id, @keep) AS r (freed, kept, used, window_start, over);

-- name: AdjustUsage :one
SELECT a.outcome::text AS outcome, a.was::bigint AS was, a.used::bigint AS used, a.limit_value::bigint AS limit_value,
       a.window_start::timestamptz AS window_start, coalesce(a.renews_at, '0001-01-01 00:00:00+00')::timestamptz AS renews_at, a.at::timestamptz AS at
FROM core.adjust_usage(@pool_id, @resource_key, @window_start, sqlc.narg('least'), sqlc.narg('most'))
    AS a (outcome, was, used, limit_value, window_start, renews_at, at);

-- name: ReadUsage :many
SELECT now.at::timestamptz AS at, p.id AS pool_id, p.name AS pool, coalesce(u.resource_key, '')::text AS resource_key, coalesce(u.usage_window, '')::text AS usage_window,
       coalesce(u.window_start, '0001-01-01 00:00:00+00')::timestamptz AS window_start, coalesce(u.renews_at, '0001-01-01 00:00:00+00')::timestamptz AS renews_at,
       coalesce(u.used, 0)::bigint AS used, coalesce(u.limit_value, 0)::bigint AS limit_value, coalesce(u.available, 0)::bigint AS available
FROM (SELECT core.clock() AS at) now
CROSS JOIN core.pools p
LEFT JOIN LATERAL core.pool_usage(p.id, now.at) AS u (resource_key, usage_window, window_start, renews_at, used, limit_value, available) ON true
WHERE p.organization_id = @organization_id
ORDER BY p.is_default DESC, p.name, u.resource_key COLLATE "C";

-- name: ListKeysOfKind :many
-- Of every kind where none is named.
SELECT key FROM core.resource_keys WHERE @kind::text IN ('', kind) ORDER BY key;
