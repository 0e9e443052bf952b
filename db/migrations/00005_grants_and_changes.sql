-- +goose Up
-- +goose StatementBegin
CREATE TABLE core.grants (
    id              uuid PRIMARY KEY,
    pool_id         uuid REFERENCES core.pools,
    product_id      uuid NOT NULL REFERENCES core.products,
    quantity        bigint NOT NULL DEFAULT 1 CHECK (quantity BETWEEN 1 AND 1000000),
    state           text NOT NULL CHECK (state IN ('waiting', 'active', 'replaced', 'extended', 'expired', 'revoked')),
    starts_at       timestamptz NOT NULL,
    ends_at         timestamptz,
    line            uuid NOT NULL REFERENCES core.grants,
    extends         uuid UNIQUE REFERENCES core.grants,
    origin          text NOT NULL CHECK (origin IN ('operator', 'grandfathered')),
    note            text NOT NULL DEFAULT '' CHECK (length(note) <= 1000),
    begun_at        timestamptz,
    conferred_at    timestamptz,
    issued_at       timestamptz NOT NULL,
    issued_act      text NOT NULL CHECK (issued_act <> ''),
    issued_workflow text NOT NULL DEFAULT '',
    closed_at       timestamptz,
    closed_act      text,
    closed_workflow text,
    attempts        integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    last_error      text,
    last_tried_at   timestamptz,
    CHECK (ends_at > starts_at),
    CHECK (extends <> id),
    CHECK ((extends IS NULL) = (line = id)),
    CHECK (pool_id IS NOT NULL OR state IN ('waiting', 'extended', 'expired', 'revoked')),
    CHECK ((state IN ('extended', 'expired', 'revoked')) = (closed_at IS NOT NULL)),
    CHECK ((closed_at IS NULL) = (closed_act IS NULL) AND (closed_at IS NULL) = (closed_workflow IS NULL)),
    CHECK ((attempts > 0) = (last_error IS NOT NULL) AND (attempts > 0) = (last_tried_at IS NOT NULL))
);
COMMENT ON TABLE core.grants IS 'A product given without a payment, until a time or for ever. A grant of a pool is written under the pool''s row, and acted on under its line''s head too; one of no pool under the head alone. Lock class: grant-lineage-head.';
COMMENT ON COLUMN core.grants.pool_id IS 'Whom it is for; null while it names no organisation: it confers nothing, and can be assigned, revoked or expire.';
COMMENT ON COLUMN core.grants.state IS 'waiting: has not conferred yet; active: confers; replaced: conferred and is displaced now; extended: another grant goes on from it; expired and revoked: over.';
COMMENT ON COLUMN core.grants.extends IS 'The grant that this one goes on from. Unique: two extenders would fork the line.';
COMMENT ON COLUMN core.grants.line IS 'The first grant of the line.';
COMMENT ON COLUMN core.grants.begun_at IS 'When its pool was settled with its time having come; null before.';
COMMENT ON COLUMN core.grants.conferred_at IS 'When it first conferred; null before. It tells waiting from replaced.';
COMMENT ON COLUMN core.grants.attempts IS 'How often the sweep has failed to begin or expire it; last_error tells why the last time, last_tried_at when.';
CREATE INDEX grants_by_pool ON core.grants (pool_id);
CREATE INDEX grants_by_time ON core.grants (issued_at, id);
CREATE INDEX grants_by_line ON core.grants (line);
CREATE INDEX grants_by_product ON core.grants (product_id);
CREATE INDEX grants_ending ON core.grants (ends_at, id) WHERE state IN ('waiting', 'active', 'replaced') AND ends_at IS NOT NULL;
CREATE INDEX grants_beginning ON core.grants (starts_at, id) WHERE state IN ('waiting', 'active', 'replaced') AND begun_at IS NULL AND pool_id IS NOT NULL;

ALTER TABLE core.positions ADD COLUMN grant_id uuid REFERENCES core.grants;
ALTER TABLE core.positions ADD CHECK ((source = 'grant') = (grant_id IS NOT NULL));
CREATE UNIQUE INDEX positions_one_per_grant ON core.positions (grant_id) WHERE source = 'grant' AND status <> 'ended';
CREATE INDEX positions_by_grant ON core.positions (grant_id) WHERE grant_id IS NOT NULL;

CREATE TABLE core.changes (
    id           uuid PRIMARY KEY,
    kind         text NOT NULL CHECK (kind IN ('rules', 'tier-add', 'tier-remove', 'tier-reorder', 'default', 'catalog')),
    summary      text NOT NULL CHECK (summary <> ''),
    type_id      uuid REFERENCES core.organization_types,
    act          text NOT NULL CHECK (act <> ''),
    workflow     text NOT NULL DEFAULT '',
    committed_at timestamptz NOT NULL,
    owed         integer NOT NULL CHECK (owed >= 0),
    CHECK ((kind = 'default') = (type_id IS NOT NULL))
);
COMMENT ON TABLE core.changes IS 'A committed change of what products give. Only inserted, under a new id that no other transaction can name. Lock class: change-obligation.';
COMMENT ON COLUMN core.changes.owed IS 'How many pools it left to be settled later; 0 where it settled all itself.';
CREATE INDEX changes_by_time ON core.changes (committed_at);

CREATE TABLE core.change_obligations (
    pool_id       uuid NOT NULL,
    change_id     uuid NOT NULL,
    state         text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'settled', 'parked')),
    attempts      integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    last_error    text,
    last_tried_at timestamptz,
    settled_at    timestamptz,
    settled_act   text,
    PRIMARY KEY (change_id, pool_id),
    CHECK ((state = 'settled') = (settled_at IS NOT NULL)),
    CHECK ((state = 'settled') = (settled_act IS NOT NULL)),
    CHECK (state <> 'parked' OR last_error IS NOT NULL)
);
COMMENT ON TABLE core.change_obligations IS 'A pool that a change has yet to reach. Whoever next changes the pool settles it first. Lock class: change-obligation.';
COMMENT ON COLUMN core.change_obligations.state IS 'open: owed; settled: done; parked: failed too often, and waits for a person.';
CREATE INDEX change_obligations_owed ON core.change_obligations (pool_id) WHERE state <> 'settled';

CREATE FUNCTION core.check_obligations() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    IF EXISTS (SELECT FROM added a LEFT JOIN core.pools p ON p.id = a.pool_id LEFT JOIN core.changes c ON c.id = a.change_id
               WHERE p.id IS NULL OR c.id IS NULL) THEN
        RAISE EXCEPTION 'an obligation names a pool or a change that does not exist' USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION core.check_obligations() IS
    'What foreign keys would hold, once a statement: a change owes ten thousand pools while it holds up every conferral, and a check for each row takes most of that time. Pools and changes are never deleted.';
CREATE TRIGGER change_obligations_refer AFTER INSERT ON core.change_obligations
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION core.check_obligations();

CREATE TABLE core.successions (
    product_id   uuid PRIMARY KEY REFERENCES core.products,
    successor_id uuid REFERENCES core.products,
    change_id    uuid NOT NULL REFERENCES core.changes,
    CHECK (successor_id <> product_id)
);
COMMENT ON TABLE core.successions IS 'What is held in place of a product whose tier was removed while it was held: another product, or nothing. Written under the exclusive rendezvous. Lock class: materialization.';
COMMENT ON COLUMN core.successions.successor_id IS 'Has no successor of its own: a removal rewrites what points to the product removed.';
CREATE INDEX successions_by_successor ON core.successions (successor_id);

ALTER TABLE core.organization_types ADD COLUMN incumbents text NOT NULL DEFAULT 'migrate' CHECK (incumbents IN ('migrate', 'grandfather'));
COMMENT ON COLUMN core.organization_types.incumbents IS 'What becomes of who holds a default that is no longer the type''s: migrate gives the new one, grandfather turns the old one into a grant without an end.';

CREATE OR REPLACE FUNCTION core.effective_positions(p_pool uuid, p_at timestamptz)
    RETURNS TABLE (position_id uuid, product_id uuid, ladder_id uuid, rank integer, quantity bigint, source text, status text,
                   starts_at timestamptz, ends_at timestamptz, confers boolean, outranked_by uuid)
    LANGUAGE sql STABLE
    AS $$
    WITH held AS (
        SELECT p.id, CASE WHEN s.product_id IS NULL THEN p.product_id ELSE s.successor_id END AS product_id,
               p.quantity, p.source, p.status, p.starts_at, p.ends_at
        FROM core.positions p
        LEFT JOIN core.successions s ON s.product_id = p.product_id AND p.source <> 'default'
        WHERE p.pool_id = p_pool AND p.status <> 'ended' AND p.starts_at <= p_at AND (p.ends_at IS NULL OR p.ends_at > p_at)
    ), kept AS (
        SELECT held.*, t.ladder_id, t.rank
        FROM held LEFT JOIN core.tiers t ON t.product_id = held.product_id
        WHERE held.product_id IS NOT NULL
    ), floor AS (
        SELECT ty.default_product_id AS product_id, t.ladder_id, t.rank
        FROM core.pools p
        JOIN core.organizations o ON o.id = p.organization_id
        JOIN core.organization_types ty ON ty.id = o.type_id
        LEFT JOIN core.tiers t ON t.product_id = ty.default_product_id
        WHERE p.id = p_pool AND p.is_default AND ty.default_product_id IS NOT NULL
          AND NOT EXISTS (SELECT FROM kept k WHERE k.source = 'default')
          AND NOT EXISTS (SELECT FROM kept k WHERE k.ladder_id = t.ladder_id)
    ), live AS (
        SELECT id, product_id, ladder_id, rank, quantity, source, status, starts_at, ends_at FROM kept
        UNION ALL
        SELECT NULL, product_id, ladder_id, rank, 1, 'default', 'active', p_at, NULL FROM floor
    ), ranked AS (
        SELECT live.*, row_number() OVER place AS place, first_value(id) OVER place AS top
        FROM live
        WINDOW place AS (PARTITION BY coalesce(ladder_id, id) ORDER BY rank DESC, starts_at, id)
    )
    SELECT id, product_id, ladder_id, rank, quantity, source, status, starts_at, ends_at,
           status = 'active' AND place = 1,
           CASE WHEN place > 1 THEN top END
    FROM ranked
    $$;
COMMENT ON FUNCTION core.effective_positions(uuid, timestamptz) IS
    'The positions a pool holds at an instant and which of them confer: on a ladder only the highest-ranked, at equal rank the earliest; a suspended one keeps its place and confers nothing. '
    'A floor that is due and not yet restored is a row without a position id. A product whose tier was removed shows as its successor.';

CREATE FUNCTION core.confer_grant(p_grant uuid, p_pool uuid, p_product uuid, p_quantity bigint, p_starts_at timestamptz, p_ends_at timestamptz, p_act text) RETURNS void
    LANGUAGE sql
    AS $$
    INSERT INTO core.positions (pool_id, product_id, source, grant_id, quantity, status, starts_at, ends_at, created_act)
    VALUES (p_pool, p_product, 'grant', p_grant, p_quantity, 'active', p_starts_at, p_ends_at, p_act)
    $$;
COMMENT ON FUNCTION core.confer_grant(uuid, uuid, uuid, bigint, timestamptz, timestamptz, text) IS 'The position of a grant. The caller holds the pool row and settles the pool.';

CREATE FUNCTION core.succeed_pool(p_pool uuid, p_act text, p_workflow text, p_at timestamptz) RETURNS void
    LANGUAGE plpgsql
    AS $$
DECLARE
    old record;
BEGIN
    FOR old IN
        SELECT p.*, s.successor_id FROM core.positions p JOIN core.successions s ON s.product_id = p.product_id
        WHERE p.pool_id = p_pool AND p.status <> 'ended' AND p.source <> 'default' ORDER BY p.id
    LOOP
        UPDATE core.positions SET status = 'ended', ended_at = greatest(p_at, starts_at), ended_act = p_act, end_reason = 'tier_removed'
        WHERE id = old.id;
        IF old.successor_id IS NOT NULL THEN
            INSERT INTO core.positions (pool_id, product_id, source, subscription_id, item_id, grant_id, quantity, status, starts_at, ends_at, created_act)
            VALUES (p_pool, old.successor_id, old.source, old.subscription_id, old.item_id, old.grant_id, old.quantity, old.status, old.starts_at, old.ends_at, p_act);
        ELSIF old.source = 'grant' THEN
            UPDATE core.grants SET state = 'revoked', closed_at = p_at, closed_act = p_act, closed_workflow = p_workflow
            WHERE id = old.grant_id AND state IN ('waiting', 'active', 'replaced');
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION core.succeed_pool(uuid, text, text, timestamptz) IS
    'Ends what a pool holds of products whose tier was removed, and gives their successors in its place. The caller holds the pool row.';

CREATE OR REPLACE FUNCTION core.settle_pool(p_pool uuid, p_act text, p_workflow text, p_at timestamptz) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
    floor_product  uuid;
    floor_ladder   uuid;
    old_incumbents text;
    taken          boolean;
    old            record;
    kept           uuid;
BEGIN
    PERFORM core.assert_rendezvous();
    SELECT ty.default_product_id, t.ladder_id, ty.incumbents INTO floor_product, floor_ladder, old_incumbents
    FROM core.pools p
    JOIN core.organizations o ON o.id = p.organization_id
    JOIN core.organization_types ty ON ty.id = o.type_id
    LEFT JOIN core.tiers t ON t.product_id = ty.default_product_id
    WHERE p.id = p_pool AND p.is_default;

    -- Who is grandfathered keeps the old default, with its place, as a grant without an end.
    IF old_incumbents = 'grandfather' THEN
        FOR old IN
            SELECT * FROM core.positions p
            WHERE p.pool_id = p_pool AND p.source = 'default' AND p.status <> 'ended' AND p.product_id IS DISTINCT FROM floor_product
        LOOP
            kept := gen_random_uuid();
            UPDATE core.positions SET status = 'ended', ended_at = greatest(p_at, starts_at), ended_act = p_act, end_reason = 'grandfathered'
            WHERE id = old.id;
            INSERT INTO core.grants (id, pool_id, product_id, state, starts_at, line, origin, begun_at, issued_at, issued_act, issued_workflow)
            VALUES (kept, p_pool, old.product_id, 'waiting', old.starts_at, kept, 'grandfathered', p_at, p_at, p_act, p_workflow);
            PERFORM core.confer_grant(kept, p_pool, old.product_id, 1, old.starts_at, NULL, p_act);
        END LOOP;
    END IF;

    -- After that, since an old default may be a tier that is removed by now.
    PERFORM core.succeed_pool(p_pool, p_act, p_workflow, p_at);

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

    UPDATE core.grants g
    SET state = s.state, begun_at = coalesce(g.begun_at, p_at),
        conferred_at = coalesce(g.conferred_at, CASE WHEN s.state = 'active' THEN p_at END)
    FROM (SELECT p.grant_id, CASE WHEN e.confers THEN 'active' WHEN g.conferred_at IS NULL THEN 'waiting' ELSE 'replaced' END AS state
          FROM core.effective_positions(p_pool, p_at) e
          JOIN core.positions p ON p.id = e.position_id
          JOIN core.grants g ON g.id = p.grant_id) s
    WHERE g.id = s.grant_id AND g.state IN ('waiting', 'active', 'replaced') AND (g.state <> s.state OR g.begun_at IS NULL);

    RETURN core.materialize_pool(p_pool, p_act, p_workflow, p_at);
END
$$;
COMMENT ON FUNCTION core.settle_pool(uuid, text, text, timestamptz) IS
    'What every change of a pool''s positions ends with: products whose tier was removed succeeded, incumbents of an old default grandfathered or migrated, the floor given way or restored, the states of grants, then materialization. '
    'The caller holds the pool row. Answers how many entitlements changed.';

CREATE FUNCTION core.settle_owed(p_pool uuid) RETURNS integer
    LANGUAGE plpgsql
    AS $$
DECLARE
    owed    core.changes;
    at      timestamptz := core.clock();
    changed integer;
BEGIN
    PERFORM core.assert_rendezvous();
    SELECT c.* INTO owed FROM core.change_obligations o JOIN core.changes c ON c.id = o.change_id
    WHERE o.pool_id = p_pool AND o.state <> 'settled' ORDER BY c.committed_at DESC, c.id LIMIT 1;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    changed := core.settle_pool(p_pool, owed.act, owed.workflow, at);
    UPDATE core.change_obligations SET state = 'settled', settled_at = at, settled_act = owed.act, last_tried_at = at, last_error = NULL
    WHERE pool_id = p_pool AND state <> 'settled';
    RETURN changed;
END
$$;
COMMENT ON FUNCTION core.settle_owed(uuid) IS
    'Settles what changes owe a pool, in the name of the last of them. The caller holds the pool row and the rows of the obligations, and has changed nothing of the pool yet. Answers how many entitlements changed.';

-- Grants have names too; who may call it stays as it was.
CREATE OR REPLACE FUNCTION core.lock_subjects(p_classes text[], p_identities text[])
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
    UNION ALL
    SELECT a.class, a.identity, o.slug, pr.slug
    FROM asked a JOIN core.grants g ON g.id = a.id JOIN core.products pr ON pr.id = g.product_id
    LEFT JOIN core.pools p ON p.id = g.pool_id LEFT JOIN core.organizations o ON o.id = p.organization_id
    WHERE a.class = 'grant-lineage-head'
    $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DO $$
BEGIN
    RAISE EXCEPTION 'grants and changes cannot be undone without losing what was granted; restore a backup instead';
END
$$;
-- +goose StatementEnd
