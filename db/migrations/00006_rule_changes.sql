-- +goose Up
-- +goose StatementBegin
-- Who holds a product is read a page of pools at a time, also where very many do.
DROP INDEX core.positions_live_by_product;
CREATE INDEX positions_live_by_product ON core.positions (product_id, pool_id) WHERE status <> 'ended';

CREATE FUNCTION core.preview_rules(p_pool uuid, p_at timestamptz, p_set uuid, p_deltas jsonb)
    RETURNS TABLE (resource_key text, from_number bigint, from_yes boolean, to_number numeric, to_yes boolean)
    LANGUAGE sql STABLE
    AS $$
    WITH delta AS (
        SELECT d.key COLLATE "C" AS key, d.number, d.yes FROM jsonb_to_recordset(p_deltas) AS d (key text, number bigint, yes boolean)
    ), rule AS (
        SELECT r.set_id, r.resource_key, r.numeric_value, r.boolean_value
        FROM core.set_rules r JOIN delta d ON d.key = r.resource_key
        WHERE r.set_id <> p_set
        UNION ALL
        SELECT p_set, key, number, yes FROM delta WHERE number IS NOT NULL OR yes IS NOT NULL
    ), wanted AS (
        SELECT r.resource_key,
               CASE k.aggregation WHEN 'sum' THEN sum(r.numeric_value::numeric * e.quantity) ELSE max(r.numeric_value) END AS number,
               bool_or(r.boolean_value) AS yes
        FROM core.effective_positions(p_pool, p_at) e
        JOIN core.product_sets ps ON ps.product_id = e.product_id
        JOIN rule r ON r.set_id = ps.set_id
        JOIN core.resource_keys k ON k.key = r.resource_key
        WHERE e.confers
        GROUP BY r.resource_key, k.aggregation
    ), had AS (
        SELECT e.resource_key, e.numeric_value AS number, e.boolean_value AS yes
        FROM core.pool_entitlements e JOIN delta d ON d.key = e.resource_key
        WHERE e.pool_id = p_pool
    )
    SELECT coalesce(w.resource_key, h.resource_key), h.number, h.yes, w.number, w.yes
    FROM had h FULL JOIN wanted w ON w.resource_key = h.resource_key
    WHERE (h.number, h.yes) IS DISTINCT FROM (w.number, w.yes)
    $$;
COMMENT ON FUNCTION core.preview_rules(uuid, timestamptz, uuid, jsonb) IS
    'What a pool''s entitlements of the keys named would become with deltas laid over one set: a list of {key, number, yes}, both null where the rule goes. Takes no lock. A sum that no entitlement could hold is shown as it is.';
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP FUNCTION core.preview_rules(uuid, timestamptz, uuid, jsonb);
DROP INDEX core.positions_live_by_product;
CREATE INDEX positions_live_by_product ON core.positions (product_id) WHERE status <> 'ended';
-- +goose StatementEnd
