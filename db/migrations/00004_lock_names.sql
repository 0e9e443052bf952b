-- +goose Up
-- +goose StatementBegin
-- The keys of pg_locks have names again: `bursar locks` looks an identity up by its key. Each index holds the keys of one
-- table of identities; a table that brings a new family brings its index, and a branch in core.lock_identities.
CREATE INDEX subscriptions_by_lock_key ON stripe.subscriptions (core.lock_key('subscription', ARRAY[id]));
CREATE INDEX products_by_lock_key ON core.products (core.lock_key('product', ARRAY[id::text]));

CREATE FUNCTION core.lock_identities(p_keys bigint[]) RETURNS TABLE (key bigint, family text, parts text[])
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    SELECT core.lock_key('subscription', ARRAY[s.id]), 'subscription', ARRAY[s.id::text]
    FROM stripe.subscriptions s WHERE core.lock_key('subscription', ARRAY[s.id]) = ANY (p_keys)
    UNION ALL
    SELECT core.lock_key('product', ARRAY[p.id::text]), 'product', ARRAY[p.id::text]
    FROM core.products p WHERE core.lock_key('product', ARRAY[p.id::text]) = ANY (p_keys)
    $$;
COMMENT ON FUNCTION core.lock_identities(bigint[]) IS
    'The identities that advisory keys are derived from, where a table holds them; a key that none leads to has no row. It reads tables that its caller may not.';

CREATE FUNCTION core.lock_subjects(p_classes text[], p_identities text[])
    RETURNS TABLE (class text, identity text, organization text, label text)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    WITH asked AS MATERIALIZED (
        SELECT DISTINCT a.class, a.identity,
               CASE WHEN a.identity ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN a.identity::uuid END AS id
        FROM unnest(p_classes, p_identities) AS a (class, identity)
    )
    SELECT a.class, a.identity, o.slug::text, NULL::text
    FROM asked a JOIN stripe.subscriptions s ON s.id = a.identity
    JOIN stripe.customers c ON c.id = s.customer_id JOIN core.organizations o ON o.id = c.organization_id
    WHERE a.class = 'subscription'
    UNION ALL
    SELECT a.class, a.identity, o.slug, NULL
    FROM asked a JOIN stripe.customers c ON c.id = a.identity JOIN core.organizations o ON o.id = c.organization_id
    WHERE a.class = 'customer'
    UNION ALL
    SELECT a.class, a.identity, o.slug, p.name
    FROM asked a JOIN core.pools p ON p.id = a.id JOIN core.organizations o ON o.id = p.organization_id
    WHERE a.class IN ('pool', 'change-obligation', 'usage')
    UNION ALL
    SELECT a.class, a.identity, o.slug, NULL FROM asked a JOIN core.organizations o ON o.id = a.id WHERE a.class = 'organization'
    UNION ALL
    SELECT a.class, a.identity, o.slug, NULL FROM asked a JOIN core.organizations o ON o.slug = a.identity WHERE a.class = 'organization'
    UNION ALL
    SELECT a.class, a.identity, NULL, p.slug FROM asked a JOIN core.products p ON p.id = a.id WHERE a.class = 'product'
    UNION ALL
    SELECT a.class, a.identity, NULL, e.slug FROM asked a JOIN core.entitlement_sets e ON e.id = a.id
    WHERE a.class IN ('entitlement-set', 'set-rule')
    UNION ALL
    SELECT a.class, a.identity, NULL, t.slug FROM asked a JOIN core.organization_types t ON t.id = a.id WHERE a.class = 'organization-type'
    $$;
COMMENT ON FUNCTION core.lock_subjects(text[], text[]) IS
    'Whose the locks are: the organisation''s slug, and what a thing is called, of each lock class and first identity part; no row where neither is known. It reads tables that its caller may not.';

CREATE FUNCTION core.lock_derivation() RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$ SELECT lock_derivation FROM core.deployment $$;
COMMENT ON FUNCTION core.lock_derivation() IS 'How the advisory keys in this database are derived. It reads a table that its caller may not.';

-- Who watches a server has pg_read_all_stats: it shows what every session runs, ids included. That these three functions
-- answer tells such a role no more than what the ids in those statements belong to. So it is theirs, and nobody else's but
-- the owner's: a key is the hash of an id, yet ids need not be told to whoever may log in. USAGE lets a role name what the
-- schema holds, not read it.
REVOKE ALL ON FUNCTION core.lock_identities(bigint[]), core.lock_subjects(text[], text[]), core.lock_derivation() FROM PUBLIC;
GRANT USAGE ON SCHEMA core TO pg_read_all_stats;
GRANT EXECUTE ON FUNCTION core.lock_identities(bigint[]), core.lock_subjects(text[], text[]), core.lock_derivation() TO pg_read_all_stats;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
REVOKE USAGE ON SCHEMA core FROM pg_read_all_stats;
DROP FUNCTION core.lock_derivation(), core.lock_subjects(text[], text[]), core.lock_identities(bigint[]);
DROP INDEX core.products_by_lock_key, stripe.subscriptions_by_lock_key;
-- +goose StatementEnd
