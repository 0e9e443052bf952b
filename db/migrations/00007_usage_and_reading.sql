-- +goose Up
-- +goose StatementBegin
CREATE TABLE core.usage (
    pool_id      uuid NOT NULL REFERENCES core.pools,
    resource_key text COLLATE "C" NOT NULL REFERENCES core.resource_keys,
    window_start timestamptz NOT NULL,
    used         bigint NOT NULL DEFAULT 0 CHECK (used >= 0),
    adjusted     boolean NOT NULL DEFAULT false,
    PRIMARY KEY (pool_id, resource_key, window_start)
);
COMMENT ON TABLE core.usage IS 'How much of an allowance is used, in each window of its key. Lock class: usage.';
COMMENT ON COLUMN core.usage.window_start IS 'Midnight of a day or of the first of a month, in UTC; 1970-01-01 for a key without a window.';
COMMENT ON COLUMN core.usage.adjusted IS 'Whether a raise or a bound has set it: then it is not the sum of its spends.';

CREATE TABLE core.spends (
    pool_id      uuid NOT NULL,
    resource_key text COLLATE "C" NOT NULL,
    id           text COLLATE "C" NOT NULL CHECK (id <> '' AND length(id) <= 200),
    window_start timestamptz NOT NULL,
    n            bigint NOT NULL CHECK (n > 0),
    used_after   bigint NOT NULL CHECK (used_after >= n),
    limit_then   bigint NOT NULL CHECK (limit_then >= used_after),
    renews_at    timestamptz CHECK (renews_at > window_start),
    at           timestamptz NOT NULL,
    released     bigint NOT NULL DEFAULT 0 CHECK (released BETWEEN 0 AND n),
    released_at  timestamptz,
    PRIMARY KEY (pool_id, resource_key, id),
    FOREIGN KEY (pool_id, resource_key, window_start) REFERENCES core.usage,
    CHECK ((released > 0) = (released_at IS NOT NULL))
);
COMMENT ON TABLE core.spends IS 'Spends that were granted, by the caller''s id, with the answer each got: a repeat gets it again, in whichever window it comes. Written under the counter''s row. Lock class: usage.';
COMMENT ON COLUMN core.spends.released IS 'How much of n was given back since.';
CREATE INDEX spends_by_window ON core.spends (pool_id, resource_key, window_start);
CREATE INDEX spends_by_time ON core.spends (at);

CREATE FUNCTION core.usage_window_start(p_window text, p_at timestamptz) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN p_window = 'none' THEN timestamptz '1970-01-01 00:00:00+00' ELSE date_trunc(p_window, p_at AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' END $$;
COMMENT ON FUNCTION core.usage_window_start(text, timestamptz) IS 'When the window began that an instant is in, in UTC; 1970-01-01 for none.';

CREATE FUNCTION core.usage_window_end(p_window text, p_at timestamptz) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE p_window WHEN 'day' THEN (date_trunc('day', p_at AT TIME ZONE 'UTC') + interval '1 day') AT TIME ZONE 'UTC'
                               WHEN 'month' THEN (date_trunc('month', p_at AT TIME ZONE 'UTC') + interval '1 month') AT TIME ZONE 'UTC' END $$;
COMMENT ON FUNCTION core.usage_window_end(text, timestamptz) IS 'When the window ends that an instant is in, and a new one begins, in UTC; null for none.';

-- Every spend asks this, and planning it takes longer than running it: so it is in plpgsql, which keeps plans, and keeps one for
-- all pools. A function in SQL that is called for a value is planned at each call.
CREATE FUNCTION core.entitled_number(p_pool uuid, p_key text, p_at timestamptz) RETURNS bigint
    LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan
    AS $$
BEGIN
    RETURN (
        SELECT CASE k.aggregation WHEN 'sum' THEN sum(r.numeric_value * e.quantity) ELSE max(r.numeric_value) END::bigint
        FROM core.effective_positions(p_pool, p_at) e
        JOIN core.product_sets ps ON ps.product_id = e.product_id
        JOIN core.set_rules r ON r.set_id = ps.set_id AND r.resource_key = p_key
        JOIN core.resource_keys k ON k.key = p_key
        WHERE e.confers
        GROUP BY k.aggregation);
END
$$;
COMMENT ON FUNCTION core.entitled_number(uuid, text, timestamptz) IS 'What core.aggregate_pool says of one numeric key; null for nothing.';

CREATE FUNCTION core.take_allowance(p_pool uuid, p_key text, p_window_start timestamptz, p_id text, p_n bigint)
    RETURNS TABLE (outcome text, n bigint, used bigint, limit_value bigint, window_start timestamptz, renews_at timestamptz, at timestamptz)
    LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan
    AS $$
#variable_conflict use_column
DECLARE
    now     timestamptz := core.clock();
    span    text;
    earlier core.spends;
    allowed bigint;
    counted bigint;
BEGIN
    SELECT * INTO earlier FROM core.spends s WHERE s.pool_id = p_pool AND s.resource_key = p_key AND s.id = p_id;
    IF NOT FOUND THEN
        SELECT k.usage_window INTO span FROM core.resource_keys k WHERE k.key = p_key;
        IF p_window_start <> core.usage_window_start(span, now) THEN
            RETURN QUERY SELECT 'moved', 0::bigint, 0::bigint, 0::bigint, core.usage_window_start(span, now), core.usage_window_end(span, now), now;
            RETURN;
        END IF;
        allowed := coalesce(core.entitled_number(p_pool, p_key, now), 0);
        UPDATE core.usage u SET used = u.used + p_n
        WHERE u.pool_id = p_pool AND u.resource_key = p_key AND u.window_start = p_window_start AND u.used + p_n <= allowed
        RETURNING u.used INTO counted;
        IF NOT FOUND THEN
            RETURN QUERY SELECT 'exhausted', p_n, u.used, allowed, p_window_start, core.usage_window_end(span, now), now
            FROM core.usage u WHERE u.pool_id = p_pool AND u.resource_key = p_key AND u.window_start = p_window_start;
            RETURN;
        END IF;
        INSERT INTO core.spends (pool_id, resource_key, id, window_start, n, used_after, limit_then, renews_at, at)
        VALUES (p_pool, p_key, p_id, p_window_start, p_n, counted, allowed, core.usage_window_end(span, now), now)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN QUERY SELECT 'granted', p_n, counted, allowed, p_window_start, core.usage_window_end(span, now), now;
            RETURN;
        END IF;
        -- The same spend was granted in another window, and committed since it was looked for: that is its answer.
        UPDATE core.usage u SET used = u.used - p_n
        WHERE u.pool_id = p_pool AND u.resource_key = p_key AND u.window_start = p_window_start;
        SELECT * INTO STRICT earlier FROM core.spends s WHERE s.pool_id = p_pool AND s.resource_key = p_key AND s.id = p_id;
    END IF;
    RETURN QUERY SELECT 'repeated', earlier.n, earlier.used_after, earlier.limit_then, earlier.window_start, earlier.renews_at, earlier.at;
END
$$;
COMMENT ON FUNCTION core.take_allowance(uuid, text, timestamptz, text, bigint) IS
    'Takes n of what is left of a window, of which the caller holds the row: granted, and remembered under the id; repeated, with the answer that the id got first; exhausted; or moved, where the window is no longer the present one.';

CREATE FUNCTION core.release_spend(p_pool uuid, p_key text, p_id text, p_keep bigint)
    RETURNS TABLE (freed bigint, kept bigint, used bigint, window_start timestamptz, over boolean)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
DECLARE
    now    timestamptz := core.clock();
    spent  core.spends;
    gone   bigint;
BEGIN
    SELECT * INTO STRICT spent FROM core.spends s WHERE s.pool_id = p_pool AND s.resource_key = p_key AND s.id = p_id;
    gone := greatest(spent.n - spent.released - p_keep, 0);
    IF gone > 0 THEN
        UPDATE core.spends s SET released = s.released + gone, released_at = now
        WHERE s.pool_id = p_pool AND s.resource_key = p_key AND s.id = p_id;
        UPDATE core.usage u SET used = greatest(u.used - gone, 0)
        WHERE u.pool_id = p_pool AND u.resource_key = p_key AND u.window_start = spent.window_start;
    END IF;
    RETURN QUERY SELECT gone, spent.n - spent.released - gone, u.used, u.window_start, coalesce(spent.renews_at <= now, false)
    FROM core.usage u WHERE u.pool_id = p_pool AND u.resource_key = p_key AND u.window_start = spent.window_start;
END
$$;
COMMENT ON FUNCTION core.release_spend(uuid, text, text, bigint) IS
    'Gives back what a spend has beyond p_keep, to the window it was taken from, of which the caller holds the row. Again it gives back nothing.';

CREATE FUNCTION core.adjust_usage(p_pool uuid, p_key text, p_window_start timestamptz, p_least bigint, p_most bigint)
    RETURNS TABLE (outcome text, was bigint, used bigint, limit_value bigint, window_start timestamptz, renews_at timestamptz, at timestamptz)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
DECLARE
    now  timestamptz := core.clock();
    span text;
    had  bigint;
    made bigint;
BEGIN
    SELECT k.usage_window INTO span FROM core.resource_keys k WHERE k.key = p_key;
    IF p_window_start <> core.usage_window_start(span, now) THEN
        RETURN QUERY SELECT 'moved', 0::bigint, 0::bigint, 0::bigint, core.usage_window_start(span, now), core.usage_window_end(span, now), now;
        RETURN;
    END IF;
    SELECT u.used INTO had FROM core.usage u WHERE u.pool_id = p_pool AND u.resource_key = p_key AND u.window_start = p_window_start;
    had := coalesce(had, 0);
    made := greatest(had, coalesce(p_least, had));
    made := least(made, coalesce(p_most, made));
    IF made <> had THEN
        UPDATE core.usage u SET used = made, adjusted = true
        WHERE u.pool_id = p_pool AND u.resource_key = p_key AND u.window_start = p_window_start;
    END IF;
    RETURN QUERY SELECT CASE WHEN made = had THEN 'unchanged' ELSE 'changed' END, had, made, coalesce(core.entitled_number(p_pool, p_key, now), 0),
                        p_window_start, core.usage_window_end(span, now), now;
END
$$;
COMMENT ON FUNCTION core.adjust_usage(uuid, text, timestamptz, bigint, bigint) IS
    'Sets the counter of a window, of which the caller holds the row where there is one, to p_least at least and p_most at most, null for no bound: changed or unchanged; or moved, where the window is no longer the present one.';

CREATE FUNCTION core.pool_usage(p_pool uuid, p_at timestamptz)
    RETURNS TABLE (resource_key text, usage_window text, window_start timestamptz, renews_at timestamptz, used bigint, limit_value bigint, available bigint)
    LANGUAGE sql STABLE
    AS $$
    WITH entitled AS MATERIALIZED (
        SELECT a.resource_key, a.numeric_value FROM core.aggregate_pool(p_pool, p_at) a WHERE a.kind = 'numeric'
    )
    SELECT k.key, k.usage_window, w.began, core.usage_window_end(k.usage_window, p_at), coalesce(u.used, 0), coalesce(e.numeric_value, 0),
           greatest(coalesce(e.numeric_value, 0) - coalesce(u.used, 0), 0)
    FROM core.resource_keys k
    CROSS JOIN LATERAL (SELECT core.usage_window_start(k.usage_window, p_at)) w (began)
    LEFT JOIN entitled e ON e.resource_key = k.key
    LEFT JOIN core.usage u ON u.pool_id = p_pool AND u.resource_key = k.key AND u.window_start = w.began
    WHERE k.kind = 'numeric' AND (e.numeric_value IS NOT NULL OR u.used IS NOT NULL)
    $$;
COMMENT ON FUNCTION core.pool_usage(uuid, timestamptz) IS 'What a pool has used and has left of each numeric key in the window that an instant is in.';

CREATE FUNCTION core.pool_reasons(p_pool uuid, p_at timestamptz)
    RETURNS TABLE (resource_key text, kind text, aggregation text, numeric_value bigint, boolean_value boolean,
                   position_id uuid, product_id uuid, source text, quantity bigint, starts_at timestamptz, ends_at timestamptz)
    LANGUAGE sql STABLE
    AS $$
    SELECT r.resource_key, k.kind, k.aggregation,
           CASE k.aggregation WHEN 'sum' THEN sum(r.numeric_value * e.quantity) ELSE max(r.numeric_value) END::bigint, bool_or(r.boolean_value),
           e.position_id, e.product_id, e.source, e.quantity, e.starts_at, e.ends_at
    FROM core.effective_positions(p_pool, p_at) e
    JOIN core.product_sets ps ON ps.product_id = e.product_id
    JOIN core.set_rules r ON r.set_id = ps.set_id
    JOIN core.resource_keys k ON k.key = r.resource_key
    WHERE e.confers
    GROUP BY r.resource_key, k.kind, k.aggregation, e.position_id, e.product_id, e.source, e.quantity, e.starts_at, e.ends_at
    $$;
COMMENT ON FUNCTION core.pool_reasons(uuid, timestamptz) IS
    'Which conferring position of a pool gives how much of which key at an instant. A floor that is due and not yet restored has no position id.';

CREATE FUNCTION core.ledger_tells(p_pool uuid, p_at timestamptz) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$ SELECT p_at < core.clock() AND coalesce((SELECT g.at FROM core.ledger g WHERE g.pool_id = p_pool ORDER BY g.id DESC LIMIT 1) > p_at, false) $$;
COMMENT ON FUNCTION core.ledger_tells(uuid, timestamptz) IS
    'Whether what a pool had at an instant is told by its ledger: the pool has changed since. Otherwise its positions tell it, by their bounds, also for an instant that is past.';

-- What other services read. They need USAGE on the schema and SELECT on its views, and nothing of core: the functions run as
-- their owner. Names and columns are an interface: they are added to, and not changed.
CREATE SCHEMA reading;
COMMENT ON SCHEMA reading IS 'What other services may read: who may use what, why, until when, and how much is left.';

CREATE FUNCTION reading.entitlements_of_pool(p_pool uuid, p_at timestamptz DEFAULT NULL)
    RETURNS TABLE (resource_key text, kind text, numeric_value bigint, boolean_value boolean, until timestamptz, act text, workflow text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
#variable_conflict use_column
DECLARE
    instant timestamptz := coalesce(p_at, core.clock());
BEGIN
    IF p_at IS NOT NULL AND core.ledger_tells(p_pool, instant) THEN
        RETURN QUERY
        SELECT g.resource_key, CASE jsonb_typeof(g.to_value) WHEN 'number' THEN 'numeric' ELSE 'boolean' END,
               CASE jsonb_typeof(g.to_value) WHEN 'number' THEN g.to_value::bigint END,
               CASE jsonb_typeof(g.to_value) WHEN 'boolean' THEN g.to_value::boolean END,
               NULL::timestamptz, g.act, g.workflow
        FROM (SELECT DISTINCT ON (l.resource_key) l.* FROM core.ledger l WHERE l.pool_id = p_pool AND l.at <= instant ORDER BY l.resource_key, l.id DESC) g
        WHERE g.to_value IS NOT NULL;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT r.resource_key, r.kind,
           CASE r.aggregation WHEN 'sum' THEN sum(r.numeric_value) ELSE max(r.numeric_value) END::bigint, bool_or(r.boolean_value),
           min(r.ends_at), NULL::text, NULL::text
    FROM core.pool_reasons(p_pool, instant) r
    GROUP BY r.resource_key, r.kind, r.aggregation;
END
$$;
COMMENT ON FUNCTION reading.entitlements_of_pool(uuid, timestamptz) IS
    'What a pool may use at an instant, null for now; until is when the first of its reasons ends. Where the pool has changed since the instant the ledger tells it, with the act that last changed each before.';

CREATE FUNCTION reading.reasons_of_pool(p_pool uuid, p_at timestamptz DEFAULT NULL)
    RETURNS TABLE (resource_key text, numeric_value bigint, boolean_value boolean, position_id uuid, product text, ladder text, rank integer,
                   source text, subscription_id text, item_id text, grant_id uuid, quantity bigint, since timestamptz, until timestamptz)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
#variable_conflict use_column
DECLARE
    instant timestamptz := coalesce(p_at, core.clock());
BEGIN
    IF p_at IS NOT NULL AND core.ledger_tells(p_pool, instant) THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT r.resource_key, r.numeric_value, r.boolean_value, r.position_id, pr.slug, l.slug, t.rank,
           r.source, p.subscription_id, p.item_id, p.grant_id, r.quantity, r.starts_at, r.ends_at
    FROM core.pool_reasons(p_pool, instant) r
    JOIN core.products pr ON pr.id = r.product_id
    LEFT JOIN core.tiers t ON t.product_id = r.product_id
    LEFT JOIN core.ladders l ON l.id = t.ladder_id
    LEFT JOIN core.positions p ON p.id = r.position_id;
END
$$;
COMMENT ON FUNCTION reading.reasons_of_pool(uuid, timestamptz) IS
    'Which position of a pool gives how much of each key at an instant, null for now: of which source, since and until when. None where the pool has changed since the instant: its acts tell it then. A floor that is due and not yet restored has no position id.';

CREATE FUNCTION reading.usage_of_pool(p_pool uuid, p_at timestamptz DEFAULT NULL)
    RETURNS TABLE (resource_key text, usage_window text, window_start timestamptz, renews_at timestamptz, used bigint, limit_value bigint, available bigint)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    instant timestamptz := coalesce(p_at, core.clock());
BEGIN
    RETURN QUERY SELECT u.* FROM core.pool_usage(p_pool, instant) u;
END
$$;
COMMENT ON FUNCTION reading.usage_of_pool(uuid, timestamptz) IS
    'What a pool has used and has left of each numeric key in the window that an instant is in, null for now.';

CREATE VIEW reading.organizations AS
    SELECT o.id AS organization_id, o.slug AS organization, o.name, ty.slug AS type, o.created_at, p.id AS default_pool_id
    FROM core.organizations o
    JOIN core.organization_types ty ON ty.id = o.type_id
    JOIN core.pools p ON p.organization_id = o.id AND p.is_default;
COMMENT ON VIEW reading.organizations IS 'The organisations, with the pool that holds what they pay for.';

CREATE VIEW reading.pools AS
    SELECT p.id AS pool_id, p.name AS pool, p.is_default, o.id AS organization_id, o.slug AS organization
    FROM core.pools p JOIN core.organizations o ON o.id = p.organization_id;
COMMENT ON VIEW reading.pools IS 'The pools of the organisations.';

CREATE VIEW reading.current_entitlements AS
    SELECT p.organization_id, p.organization, p.pool_id, p.pool, p.is_default, e.resource_key, e.kind, e.numeric_value, e.boolean_value, e.until
    FROM reading.pools p CROSS JOIN LATERAL reading.entitlements_of_pool(p.pool_id)
        AS e (resource_key, kind, numeric_value, boolean_value, until, act, workflow);
COMMENT ON VIEW reading.current_entitlements IS 'What organisations may use now, to the instant. Ask for one organisation or pool: each is worked out when it is read.';

CREATE VIEW reading.current_reasons AS
    SELECT p.organization_id, p.organization, p.pool_id, p.pool, p.is_default,
           r.resource_key, r.numeric_value, r.boolean_value, r.position_id, r.product, r.ladder, r.rank,
           r.source, r.subscription_id, r.item_id, r.grant_id, r.quantity, r.since, r.until
    FROM reading.pools p CROSS JOIN LATERAL reading.reasons_of_pool(p.pool_id)
        AS r (resource_key, numeric_value, boolean_value, position_id, product, ladder, rank, source, subscription_id, item_id, grant_id, quantity, since, until);
COMMENT ON VIEW reading.current_reasons IS 'Why organisations may use now what they may.';

CREATE VIEW reading.current_usage AS
    SELECT p.organization_id, p.organization, p.pool_id, p.pool, p.is_default,
           u.resource_key, u.usage_window, u.window_start, u.renews_at, u.used, u.limit_value, u.available
    FROM reading.pools p CROSS JOIN LATERAL reading.usage_of_pool(p.pool_id)
        AS u (resource_key, usage_window, window_start, renews_at, used, limit_value, available);
COMMENT ON VIEW reading.current_usage IS 'What organisations have used and have left in the present windows.';

CREATE FUNCTION reading.entitlements(p_organization uuid, p_at timestamptz DEFAULT NULL)
    RETURNS TABLE (pool_id uuid, pool text, is_default boolean, resource_key text, kind text, numeric_value bigint, boolean_value boolean,
                   until timestamptz, act text, workflow text)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    SELECT p.id, p.name, p.is_default, e.* FROM core.pools p CROSS JOIN LATERAL reading.entitlements_of_pool(p.id, p_at) e
    WHERE p.organization_id = p_organization
    ORDER BY p.is_default DESC, p.name, e.resource_key COLLATE "C"
    $$;
COMMENT ON FUNCTION reading.entitlements(uuid, timestamptz) IS 'What the pools of an organisation may use at an instant, null for now: see reading.entitlements_of_pool.';

CREATE FUNCTION reading.reasons(p_organization uuid, p_at timestamptz DEFAULT NULL)
    RETURNS TABLE (pool_id uuid, pool text, is_default boolean, resource_key text, numeric_value bigint, boolean_value boolean, position_id uuid,
                   product text, ladder text, rank integer, source text, subscription_id text, item_id text, grant_id uuid, quantity bigint,
                   since timestamptz, until timestamptz)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    SELECT p.id, p.name, p.is_default, r.* FROM core.pools p CROSS JOIN LATERAL reading.reasons_of_pool(p.id, p_at) r
    WHERE p.organization_id = p_organization
    ORDER BY p.is_default DESC, p.name, r.resource_key COLLATE "C", r.rank DESC NULLS LAST, r.since, r.position_id
    $$;
COMMENT ON FUNCTION reading.reasons(uuid, timestamptz) IS 'Why the pools of an organisation may use what they may at an instant, null for now: see reading.reasons_of_pool.';
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP SCHEMA reading CASCADE;
DROP FUNCTION core.ledger_tells(uuid, timestamptz), core.pool_reasons(uuid, timestamptz), core.pool_usage(uuid, timestamptz),
    core.adjust_usage(uuid, text, timestamptz, bigint, bigint), core.release_spend(uuid, text, text, bigint),
    core.take_allowance(uuid, text, timestamptz, text, bigint), core.entitled_number(uuid, text, timestamptz),
    core.usage_window_end(text, timestamptz), core.usage_window_start(text, timestamptz);
DROP TABLE core.spends, core.usage;
-- +goose StatementEnd
