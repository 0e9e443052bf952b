-- name: FindTier :one
-- A product with its place, if it has one, and what stands in its place if its tier was removed while it was held.
SELECT p.id, p.slug, p.name, t.ladder_id, t.rank, (s.product_id IS NOT NULL)::boolean AS succeeded,
       coalesce(q.slug, '')::text AS successor, coalesce(l.slug, '')::text AS ladder
FROM core.products p
LEFT JOIN core.tiers t ON t.product_id = p.id
LEFT JOIN core.ladders l ON l.id = t.ladder_id
LEFT JOIN core.successions s ON s.product_id = p.id
LEFT JOIN core.products q ON q.id = s.successor_id
WHERE p.slug = @product::text;

-- name: FindLadder :one
SELECT id, slug, name FROM core.ladders WHERE slug = @ladder::text;

-- name: ListTiersOf :many
SELECT p.id, p.slug, p.name, t.rank,
       (SELECT count(DISTINCT x.pool_id) FROM core.positions x WHERE x.product_id = p.id AND x.status <> 'ended')::bigint AS holders,
       coalesce((SELECT string_agg(ty.slug, ', ' ORDER BY ty.slug) FROM core.organization_types ty WHERE ty.default_product_id = p.id), '')::text AS default_of
FROM core.tiers t JOIN core.products p ON p.id = t.product_id
WHERE t.ladder_id = @ladder_id
ORDER BY t.rank;

-- name: ShiftTiers :exec
UPDATE core.tiers SET rank = rank + @by::integer WHERE ladder_id = @ladder_id AND rank >= @from_rank::integer;

-- name: InsertTier :exec
INSERT INTO core.tiers (product_id, ladder_id, rank) VALUES (@product_id, @ladder_id, @rank);

-- name: DeleteTier :exec
DELETE FROM core.tiers WHERE product_id = @product_id;

-- name: RankTiers :exec
UPDATE core.tiers SET rank = (array_position(@products::uuid[], product_id) - 1)::integer
WHERE ladder_id = @ladder_id;

-- name: DeleteSuccession :exec
DELETE FROM core.successions WHERE product_id = @product_id;

-- name: InsertSuccession :exec
INSERT INTO core.successions (product_id, successor_id, change_id) VALUES (@product_id, sqlc.narg('successor_id'), @change_id);

-- name: RewriteSuccessions :exec
UPDATE core.successions SET successor_id = sqlc.narg('successor_id') WHERE successor_id = @product_id::uuid;

-- name: CountHoldingPools :one
SELECT count(DISTINCT pool_id)::bigint FROM core.positions WHERE product_id = ANY (@product_ids::uuid[]) AND status <> 'ended';

-- name: ListContestedPools :many
-- The pools in which the order of a ladder's tiers decides.
SELECT x.pool_id
FROM core.positions x JOIN core.tiers t ON t.product_id = x.product_id
WHERE t.ladder_id = @ladder_id AND x.status <> 'ended'
GROUP BY x.pool_id HAVING count(DISTINCT x.product_id) > 1
ORDER BY x.pool_id;

-- name: OweDefaultPools :execrows
INSERT INTO core.change_obligations (pool_id, change_id)
SELECT p.id, @change_id
FROM core.pools p JOIN core.organizations o ON o.id = p.organization_id
WHERE p.is_default AND o.type_id = @type_id;

-- name: CountDefaultPools :one
SELECT count(*)::bigint FROM core.pools p JOIN core.organizations o ON o.id = p.organization_id WHERE p.is_default AND o.type_id = @type_id;

-- name: FindTypeDefault :one
SELECT t.id, t.slug, t.name, t.default_product_id, coalesce(p.slug, '')::text AS default_product, t.incumbents
FROM core.organization_types t LEFT JOIN core.products p ON p.id = t.default_product_id
WHERE t.slug = @type::text;

-- name: ListTypeRows :many
SELECT id, slug, default_product_id FROM core.organization_types ORDER BY id;

-- name: SaveTypeDefault :exec
UPDATE core.organization_types SET default_product_id = sqlc.narg('default_product_id'), incumbents = @incumbents WHERE id = @id;

-- name: FindOpenDefaultChange :one
-- The change of a type's default that has not reached every organisation yet: of that alone, or of the catalogue or a ladder, of which it is not kept whether
-- they changed the default.
SELECT c.id, count(*) FILTER (WHERE o.state = 'open')::bigint AS open, count(*) FILTER (WHERE o.state = 'parked')::bigint AS parked
FROM core.change_obligations o
JOIN core.changes c ON c.id = o.change_id
JOIN core.pools p ON p.id = o.pool_id
JOIN core.organizations g ON g.id = p.organization_id
WHERE o.state <> 'settled' AND p.is_default AND g.type_id = @type_id AND (c.type_id = @type_id OR c.kind IN ('catalog', 'tier-add', 'tier-reorder'))
GROUP BY c.id, c.committed_at ORDER BY c.committed_at LIMIT 1;

-- name: CountBuckets :one
-- What a new default finds: pools that hold another default, and, of the others, whether the new one's ladder is vacant.
WITH pool AS (
    SELECT p.id,
           EXISTS (SELECT FROM core.positions x WHERE x.pool_id = p.id AND x.source = 'default' AND x.status <> 'ended'
                   AND x.product_id IS DISTINCT FROM sqlc.narg('product_id')::uuid) AS incumbent,
           EXISTS (SELECT FROM core.positions x WHERE x.pool_id = p.id AND x.source = 'default' AND x.status <> 'ended'
                   AND x.product_id = sqlc.narg('product_id')::uuid) AS holds,
           EXISTS (SELECT FROM core.tiers f JOIN core.tiers t ON t.ladder_id = f.ladder_id JOIN core.positions x ON x.product_id = t.product_id
                   WHERE f.product_id = sqlc.narg('product_id')::uuid AND x.pool_id = p.id AND x.source <> 'default' AND x.status <> 'ended') AS taken
    FROM core.pools p JOIN core.organizations o ON o.id = p.organization_id
    WHERE p.is_default AND o.type_id = @type_id
)
SELECT count(*) FILTER (WHERE incumbent)::bigint AS incumbents,
       count(*) FILTER (WHERE NOT incumbent AND NOT holds AND NOT taken)::bigint AS vacant,
       count(*) FILTER (WHERE NOT incumbent AND (holds OR taken))::bigint AS untouched
FROM pool;

-- name: IsSuccessionOwed :one
-- Whether what stands in place of one of the products has yet to reach a pool.
SELECT EXISTS (SELECT FROM core.successions s JOIN core.change_obligations o ON o.change_id = s.change_id
               WHERE s.product_id = ANY (@product_ids::uuid[]) AND o.state <> 'settled')::boolean AS owed;
