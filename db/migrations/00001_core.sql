-- +goose Up
-- +goose StatementBegin
CREATE EXTENSION IF NOT EXISTS btree_gist;
CREATE SCHEMA core;
COMMENT ON SCHEMA core IS 'Organisations, what they may hold, what they hold, and what that entitles them to.';

-- Every table comment ends with the lock class that covers its writes. A test reads them.

CREATE TABLE core.deployment (
    only_row        boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    lock_derivation text NOT NULL CHECK (lock_derivation <> '')
);
COMMENT ON TABLE core.deployment IS 'One row of facts that every process must agree on. Written by migrations only. Lock class: migration.';
COMMENT ON COLUMN core.deployment.lock_derivation IS 'How advisory keys are derived. A worker built with another derivation refuses to start: the two would not exclude each other.';
INSERT INTO core.deployment (lock_derivation) VALUES ('sha256-v1');

CREATE FUNCTION core.clock() RETURNS timestamptz
    LANGUAGE sql VOLATILE PARALLEL SAFE
    AS $$ SELECT clock_timestamp() + coalesce(nullif(current_setting('bursar.clock_offset', true), '')::interval, interval '0') $$;
COMMENT ON FUNCTION core.clock() IS 'The clock that decides. Tests shift it by the setting bursar.clock_offset; nothing else sets that.';

CREATE FUNCTION core.lock_key(family text, parts text[]) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
DECLARE
    wanted  integer;
    is_uuid boolean := false;
    joined  text := 'bursar:' || family;
    part    text;
BEGIN
    CASE family
        WHEN 'materialization', 'domains' THEN wanted := 0;
        WHEN 'subscription', 'invoice', 'migration' THEN wanted := 1;
        WHEN 'product', 'workspace', 'lifecycle' THEN wanted := 1; is_uuid := true;
        WHEN 'desired-state' THEN wanted := 3;
        ELSE
            RAISE EXCEPTION 'unknown lock family %', coalesce(quote_literal(family), 'NULL') USING ERRCODE = 'invalid_parameter_value';
    END CASE;
    IF parts IS NULL OR cardinality(parts) <> wanted THEN
        RAISE EXCEPTION 'lock family % takes % parts, not %', quote_literal(family), wanted, coalesce(cardinality(parts), 0)
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOREACH part IN ARRAY parts LOOP
        IF part IS NULL OR part = '' THEN
            RAISE EXCEPTION 'lock family % was given an empty part', quote_literal(family) USING ERRCODE = 'invalid_parameter_value';
        END IF;
        IF is_uuid THEN
            IF part !~ '^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$' THEN
                RAISE EXCEPTION 'lock family % takes a UUID, not %', quote_literal(family), quote_literal(part)
                    USING ERRCODE = 'invalid_parameter_value';
            END IF;
            part := lower(part);
        END IF;
        joined := joined || ':' || replace(replace(part, '%', '%25'), ':', '%3A');
    END LOOP;
    RETURN ('x' || encode(substring(sha256(convert_to(joined, 'UTF8')) FROM 1 FOR 8), 'hex'))::bit(64)::bigint;
END
$$;
COMMENT ON FUNCTION core.lock_key(text, text[]) IS 'The advisory key of one identity, derivation sha256-v1: the same numbers as the lockorder package gives.';

CREATE FUNCTION core.assert_rendezvous() RETURNS void
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
    IF coalesce(current_setting('lockorder.rendezvous', true), '') NOT IN ('shared', 'exclusive') THEN
        RAISE EXCEPTION 'materialization_rendezvous_missing'
            USING ERRCODE = 'BU001',
                  HINT = 'Open the transaction through lockorder with kind Materializing or RuleChange.';
    END IF;
END
$$;
COMMENT ON FUNCTION core.assert_rendezvous() IS 'Raises materialization_rendezvous_missing unless this transaction holds the rendezvous.';

CREATE TABLE core.resource_keys (
    key          text COLLATE "C" PRIMARY KEY CHECK (key ~ '^[a-z][a-z0-9_]*(\.[a-z0-9_]+)*$' AND length(key) <= 100),
    kind         text NOT NULL CHECK (kind IN ('numeric', 'boolean')),
    aggregation  text NOT NULL CHECK (aggregation IN ('sum', 'max')),
    usage_window text NOT NULL DEFAULT 'none' CHECK (usage_window IN ('none', 'day', 'month')),
    provider     text CHECK (provider <> ''),
    description  text NOT NULL DEFAULT '',
    UNIQUE (key, kind),
    CHECK (kind = 'numeric' OR (aggregation = 'max' AND usage_window = 'none'))
);
COMMENT ON TABLE core.resource_keys IS 'What can be entitled: a number or a yes. Lock class: resource-key.';
COMMENT ON COLUMN core.resource_keys.aggregation IS 'How the rules of several positions combine: their sum, or the greatest. A boolean is granted when any position grants it.';

CREATE TABLE core.entitlement_sets (
    id   uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    slug text COLLATE "C" NOT NULL UNIQUE CHECK (slug ~ '^[a-z0-9][a-z0-9-]*$' AND length(slug) <= 63),
    name text NOT NULL CHECK (name <> '')
);
COMMENT ON TABLE core.entitlement_sets IS 'A named bundle of rules that products carry. Lock class: entitlement-set.';

CREATE TABLE core.set_rules (
    set_id        uuid NOT NULL REFERENCES core.entitlement_sets,
    resource_key  text COLLATE "C" NOT NULL,
    kind          text NOT NULL,
    numeric_value bigint CHECK (numeric_value BETWEEN 0 AND 1000000000000),
    boolean_value boolean,
    PRIMARY KEY (set_id, resource_key),
    FOREIGN KEY (resource_key, kind) REFERENCES core.resource_keys (key, kind),
    CHECK ((kind = 'numeric') = (numeric_value IS NOT NULL)),
    CHECK ((kind = 'boolean') = (boolean_value IS NOT NULL))
);
COMMENT ON TABLE core.set_rules IS 'One resource key of one set and its value; the value''s kind is the key''s. Lock class: set-rule.';
CREATE INDEX set_rules_by_key ON core.set_rules (resource_key);

CREATE TABLE core.products (
    id   uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    slug text COLLATE "C" NOT NULL UNIQUE CHECK (slug ~ '^[a-z0-9][a-z0-9-]*$' AND length(slug) <= 63),
    name text NOT NULL CHECK (name <> '')
);
COMMENT ON TABLE core.products IS 'What an organisation can hold. Written under the exclusive rendezvous. Lock class: materialization.';

CREATE TABLE core.product_sets (
    product_id uuid NOT NULL REFERENCES core.products,
    set_id     uuid NOT NULL REFERENCES core.entitlement_sets,
    PRIMARY KEY (product_id, set_id)
);
COMMENT ON TABLE core.product_sets IS 'Which sets a product carries. Written under the exclusive rendezvous. Lock class: materialization.';
CREATE INDEX product_sets_by_set ON core.product_sets (set_id);

CREATE TABLE core.ladders (
    id   uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    slug text COLLATE "C" NOT NULL UNIQUE CHECK (slug ~ '^[a-z0-9][a-z0-9-]*$' AND length(slug) <= 63),
    name text NOT NULL CHECK (name <> '')
);
COMMENT ON TABLE core.ladders IS 'Products of which a pool uses one at a time, the highest. Written under the exclusive rendezvous. Lock class: materialization.';

CREATE TABLE core.tiers (
    product_id uuid PRIMARY KEY REFERENCES core.products,
    ladder_id  uuid NOT NULL REFERENCES core.ladders,
    rank       integer NOT NULL CHECK (rank >= 0),
    UNIQUE (ladder_id, rank) DEFERRABLE INITIALLY IMMEDIATE
);
COMMENT ON TABLE core.tiers IS 'A product''s place on its one ladder; rank 0 is the floor. Written under the exclusive rendezvous. Lock class: materialization.';

CREATE TABLE core.organization_types (
    id                 uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    slug               text COLLATE "C" NOT NULL UNIQUE CHECK (slug ~ '^[a-z0-9][a-z0-9-]*$' AND length(slug) <= 63),
    name               text NOT NULL CHECK (name <> ''),
    default_product_id uuid REFERENCES core.products
);
COMMENT ON TABLE core.organization_types IS 'Kinds of organisation. Lock class: organization-type.';
COMMENT ON COLUMN core.organization_types.default_product_id IS 'What an organisation of this type holds while nothing else does: the floor.';

CREATE TABLE core.organizations (
    id         uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    slug       text COLLATE "C" NOT NULL UNIQUE CHECK (slug ~ '^[a-z0-9][a-z0-9-]*$' AND length(slug) <= 63),
    name       text NOT NULL CHECK (name <> ''),
    type_id    uuid NOT NULL REFERENCES core.organization_types,
    created_at timestamptz NOT NULL DEFAULT core.clock()
);
COMMENT ON TABLE core.organizations IS 'A member. Only inserted, under a new id that no other transaction can name. Lock class: organization.';
CREATE INDEX organizations_by_type ON core.organizations (type_id);

CREATE TABLE core.pools (
    id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    organization_id uuid NOT NULL REFERENCES core.organizations,
    name            text NOT NULL CHECK (name <> ''),
    is_default      boolean NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT core.clock(),
    UNIQUE (organization_id, name)
);
COMMENT ON TABLE core.pools IS 'What holds positions and entitlements; an organisation has exactly one default pool. Lock class: pool.';
CREATE UNIQUE INDEX pools_one_default ON core.pools (organization_id) WHERE is_default;

CREATE FUNCTION core.require_default_pool() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    org uuid := CASE WHEN TG_TABLE_NAME = 'pools' THEN (to_jsonb(OLD) ->> 'organization_id')::uuid ELSE (to_jsonb(NEW) ->> 'id')::uuid END;
BEGIN
    IF EXISTS (SELECT FROM core.organizations o WHERE o.id = org)
       AND NOT EXISTS (SELECT FROM core.pools p WHERE p.organization_id = org AND p.is_default) THEN
        RAISE EXCEPTION 'organisation % has no default pool', org USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION core.require_default_pool() IS 'An organisation without a default pool cannot be committed.';
CREATE CONSTRAINT TRIGGER organizations_have_default_pool AFTER INSERT ON core.organizations
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION core.require_default_pool();
CREATE CONSTRAINT TRIGGER pools_keep_default AFTER UPDATE OR DELETE ON core.pools
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION core.require_default_pool();

CREATE TABLE core.positions (
    id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    pool_id         uuid NOT NULL REFERENCES core.pools,
    product_id      uuid NOT NULL REFERENCES core.products,
    source          text NOT NULL CHECK (source IN ('subscription', 'grant', 'default')),
    subscription_id text COLLATE "C" CHECK (subscription_id <> ''),
    item_id         text COLLATE "C" CHECK (item_id <> ''),
    quantity        bigint NOT NULL DEFAULT 1 CHECK (quantity BETWEEN 1 AND 1000000),
    status          text NOT NULL CHECK (status IN ('active', 'suspended', 'ended')),
    starts_at       timestamptz NOT NULL,
    ends_at         timestamptz,
    created_act     text NOT NULL CHECK (created_act <> ''),
    ended_at        timestamptz,
    ended_act       text,
    end_reason      text,
    CHECK ((source = 'subscription') = (subscription_id IS NOT NULL)),
    CHECK ((source = 'subscription') = (item_id IS NOT NULL)),
    CHECK (ends_at > starts_at),
    CHECK ((status = 'ended') = (ended_at IS NOT NULL)),
    CHECK ((status = 'ended') = (ended_act IS NOT NULL)),
    CHECK ((status = 'ended') = (end_reason IS NOT NULL)),
    CHECK (source = 'subscription' OR status <> 'suspended')
);
COMMENT ON TABLE core.positions IS 'A product held by a pool from one source. Ended rows are kept. Lock class: pool.';
COMMENT ON COLUMN core.positions.status IS 'active; suspended: confers nothing and keeps its place on its ladder; ended: history.';
COMMENT ON COLUMN core.positions.starts_at IS 'From when it is held. At equal rank the earliest confers.';
CREATE UNIQUE INDEX positions_one_per_item ON core.positions (item_id) WHERE source = 'subscription' AND status <> 'ended';
CREATE UNIQUE INDEX positions_one_default ON core.positions (pool_id, product_id) WHERE source = 'default' AND status <> 'ended';
CREATE INDEX positions_live_by_pool ON core.positions (pool_id) WHERE status <> 'ended';
CREATE INDEX positions_live_by_product ON core.positions (product_id) WHERE status <> 'ended';
CREATE INDEX positions_live_by_subscription ON core.positions (subscription_id) WHERE source = 'subscription' AND status <> 'ended';
CREATE INDEX positions_by_pool ON core.positions (pool_id);

CREATE TABLE core.pool_entitlements (
    pool_id       uuid NOT NULL REFERENCES core.pools,
    resource_key  text COLLATE "C" NOT NULL,
    kind          text NOT NULL,
    numeric_value bigint CHECK (numeric_value >= 0),
    boolean_value boolean,
    changed_at    timestamptz NOT NULL,
    PRIMARY KEY (pool_id, resource_key),
    FOREIGN KEY (resource_key, kind) REFERENCES core.resource_keys (key, kind),
    CHECK ((kind = 'numeric') = (numeric_value IS NOT NULL)),
    CHECK ((kind = 'boolean') = (boolean_value IS NOT NULL))
);
COMMENT ON TABLE core.pool_entitlements IS 'What a pool may use now: materialized from its conferring positions by core.settle_pool, and by nothing else. Lock class: pool.';

CREATE TABLE core.ledger (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pool_id      uuid NOT NULL REFERENCES core.pools,
    resource_key text COLLATE "C" NOT NULL,
    from_value   jsonb,
    to_value     jsonb,
    act          text NOT NULL CHECK (act <> ''),
    workflow     text NOT NULL DEFAULT '',
    at           timestamptz NOT NULL,
    CHECK (from_value IS DISTINCT FROM to_value)
);
COMMENT ON TABLE core.ledger IS 'Every change of every entitlement: what, from, to, why. Only inserted. Lock class: pool.';
COMMENT ON COLUMN core.ledger.from_value IS 'A number or a boolean; null where the pool had none. to_value likewise.';
COMMENT ON COLUMN core.ledger.workflow IS 'The Temporal workflow that did it, empty for a command.';
CREATE INDEX ledger_by_pool ON core.ledger (pool_id, id);

CREATE FUNCTION core.effective_positions(p_pool uuid, p_at timestamptz)
    RETURNS TABLE (position_id uuid, product_id uuid, ladder_id uuid, rank integer, quantity bigint, source text, status text,
                   starts_at timestamptz, ends_at timestamptz, confers boolean, outranked_by uuid)
    LANGUAGE sql STABLE
    AS $$
    WITH live AS (
        SELECT p.id, p.product_id, t.ladder_id, t.rank, p.quantity, p.source, p.status, p.starts_at, p.ends_at,
               first_value(p.id) OVER (PARTITION BY coalesce(t.ladder_id, p.id) ORDER BY t.rank DESC, p.starts_at, p.id) AS top
        FROM core.positions p
        LEFT JOIN core.tiers t ON t.product_id = p.product_id
        WHERE p.pool_id = p_pool AND p.status <> 'ended' AND p.starts_at <= p_at AND (p.ends_at IS NULL OR p.ends_at > p_at)
    )
    SELECT id, product_id, ladder_id, rank, quantity, source, status, starts_at, ends_at,
           status = 'active' AND top = id,
           CASE WHEN top <> id THEN top END
    FROM live
    $$;
COMMENT ON FUNCTION core.effective_positions(uuid, timestamptz) IS
    'The positions a pool holds at an instant and which of them confer: on a ladder only the highest-ranked, at equal rank the earliest; a suspended one keeps its place and confers nothing.';

CREATE FUNCTION core.aggregate_pool(p_pool uuid, p_at timestamptz)
    RETURNS TABLE (resource_key text, kind text, numeric_value bigint, boolean_value boolean)
    LANGUAGE sql STABLE
    AS $$
    SELECT r.resource_key, k.kind,
           CASE k.aggregation WHEN 'sum' THEN sum(r.numeric_value * e.quantity) ELSE max(r.numeric_value) END::bigint,
           bool_or(r.boolean_value)
    FROM core.effective_positions(p_pool, p_at) e
    JOIN core.product_sets ps ON ps.product_id = e.product_id
    JOIN core.set_rules r ON r.set_id = ps.set_id
    JOIN core.resource_keys k ON k.key = r.resource_key
    WHERE e.confers
    GROUP BY r.resource_key, k.kind, k.aggregation
    $$;
COMMENT ON FUNCTION core.aggregate_pool(uuid, timestamptz) IS
    'What a pool''s conferring positions add up to at an instant. A quantity of n counts as n equal positions: n times a sum, once for a greatest.';

CREATE FUNCTION core.materialize_pool(p_pool uuid, p_act text, p_workflow text, p_at timestamptz) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
    changes integer;
BEGIN
    PERFORM core.assert_rendezvous();
    WITH had AS MATERIALIZED (
        SELECT * FROM core.pool_entitlements WHERE pool_id = p_pool
    ), wanted AS MATERIALIZED (
        SELECT * FROM core.aggregate_pool(p_pool, p_at)
    ), differing AS MATERIALIZED (
        SELECT coalesce(w.resource_key, h.resource_key) AS resource_key, w.kind, w.numeric_value, w.boolean_value,
               coalesce(to_jsonb(h.numeric_value), to_jsonb(h.boolean_value)) AS from_value,
               coalesce(to_jsonb(w.numeric_value), to_jsonb(w.boolean_value)) AS to_value
        FROM had h FULL JOIN wanted w ON w.resource_key = h.resource_key
        WHERE (h.kind, h.numeric_value, h.boolean_value) IS DISTINCT FROM (w.kind, w.numeric_value, w.boolean_value)
    ), gone AS (
        DELETE FROM core.pool_entitlements e USING differing d
        WHERE e.pool_id = p_pool AND e.resource_key = d.resource_key AND d.to_value IS NULL
    ), written AS (
        INSERT INTO core.pool_entitlements (pool_id, resource_key, kind, numeric_value, boolean_value, changed_at)
        SELECT p_pool, resource_key, kind, numeric_value, boolean_value, p_at FROM differing
        WHERE to_value IS NOT NULL ORDER BY resource_key COLLATE "C"
        ON CONFLICT (pool_id, resource_key) DO UPDATE
            SET kind = excluded.kind, numeric_value = excluded.numeric_value, boolean_value = excluded.boolean_value, changed_at = excluded.changed_at
    )
    INSERT INTO core.ledger (pool_id, resource_key, from_value, to_value, act, workflow, at)
    SELECT p_pool, resource_key, from_value, to_value, p_act, p_workflow, p_at FROM differing ORDER BY resource_key COLLATE "C";
    GET DIAGNOSTICS changes = ROW_COUNT;
    RETURN changes;
END
$$;
COMMENT ON FUNCTION core.materialize_pool(uuid, text, text, timestamptz) IS
    'Makes pool_entitlements what the positions say, writing only rows that differ, and a ledger row for each. The caller holds the pool row. Answers how many changed.';

CREATE FUNCTION core.settle_pool(p_pool uuid, p_act text, p_workflow text, p_at timestamptz) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
    floor_product uuid;
    floor_ladder  uuid;
    taken         boolean;
BEGIN
    PERFORM core.assert_rendezvous();

    SELECT ty.default_product_id, t.ladder_id INTO floor_product, floor_ladder
    FROM core.pools p
    JOIN core.organizations o ON o.id = p.organization_id
    JOIN core.organization_types ty ON ty.id = o.type_id
    LEFT JOIN core.tiers t ON t.product_id = ty.default_product_id
    WHERE p.id = p_pool AND p.is_default;

    -- The floor gives way to anything held on its ladder, a suspended position included: it keeps its place.
    taken := floor_ladder IS NOT NULL AND EXISTS (
        SELECT FROM core.positions p JOIN core.tiers t ON t.product_id = p.product_id
        WHERE p.pool_id = p_pool AND t.ladder_id = floor_ladder AND p.source <> 'default' AND p.status <> 'ended'
          AND p.starts_at <= p_at AND (p.ends_at IS NULL OR p.ends_at > p_at));

    UPDATE core.positions p
    SET status = 'ended', ended_at = greatest(p_at, p.starts_at), ended_act = p_act,
        end_reason = CASE WHEN p.product_id IS DISTINCT FROM floor_product THEN 'default_changed' ELSE 'displaced' END
    WHERE p.pool_id = p_pool AND p.source = 'default' AND p.status <> 'ended'
      AND (taken OR p.product_id IS DISTINCT FROM floor_product);

    IF floor_product IS NOT NULL AND NOT taken THEN
        INSERT INTO core.positions (pool_id, product_id, source, status, starts_at, created_act)
        SELECT p_pool, floor_product, 'default', 'active', p_at, p_act
        WHERE NOT EXISTS (SELECT FROM core.positions p
                          WHERE p.pool_id = p_pool AND p.source = 'default' AND p.status <> 'ended' AND p.product_id = floor_product);
    END IF;

    RETURN core.materialize_pool(p_pool, p_act, p_workflow, p_at);
END
$$;
COMMENT ON FUNCTION core.settle_pool(uuid, text, text, timestamptz) IS
    'What every change of a pool''s positions ends with: the floor given way or restored, then materialization. The caller holds the pool row. Answers how many entitlements changed.';
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP SCHEMA core CASCADE;
-- +goose StatementEnd
