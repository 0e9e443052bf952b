package entitlements_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/lockorder"
)

// grant gives a product to a pool until a time, as a settled grant is stored.
func (h *house) grant(pool uuid.UUID, product string, until time.Time) uuid.UUID {
	h.t.Helper()
	id := uuid.New()
	require.NoError(h.t, h.db.Run(h.t.Context(), lockorder.Spec{Path: "test-grant", Kind: lockorder.Materializing}, func(ctx context.Context, tx *lockorder.Tx) error {
		if err := entitlements.LockPools(ctx, tx, pool); err != nil {
			return err
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO core.grants (id, pool_id, product_id, state, starts_at, ends_at, line, origin, note, issued_at, issued_act)
			VALUES ($1, $2, $3, 'waiting', $4, $5, $1, 'operator', 'for the board', $4, 'test')`, id, pool, h.ids[product], now, until); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `SELECT core.confer_grant($1, $2, $3, 1, $4, $5, 'test')`, id, pool, h.ids[product], now, until); err != nil {
			return err
		}
		_, err = entitlements.Settle(ctx, tx, act, pool)
		return err
	}))
	return id
}

func (h *house) entitled(q lockorder.Querier, org entitlements.Organization, key string, at time.Time) entitlements.Entitlement {
	h.t.Helper()
	e, err := entitlements.Entitled(h.t.Context(), q, org.ID, key, at)
	require.NoError(h.t, err)
	return e
}

func TestEntitledTellsTheReasons(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	acme := h.org("acme", "club")
	h.converge("sub_1", acme.DefaultPool, item{"it_1", "silver", 1}, item{"it_2", "disk", 3})
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	grant := h.grant(acme.DefaultPool, "gold", until)

	storage := h.entitled(h.db.Reader(), acme, "storage", time.Time{})
	require.Equal(t, entitlements.Number(121), storage.Value)
	require.Equal(t, until, *storage.Until)
	require.Len(t, storage.Reasons, 2)
	gold := storage.Reasons[0]
	require.Equal(t, "gold grant for the board active 100 membership 2",
		fmt.Sprint(gold.Product, " ", gold.Source, " ", gold.Grant.Note, " ", gold.Grant.State, " ", gold.Contributes, " ", gold.Ladder, " ", gold.Rank))
	require.Equal(t, grant, gold.Grant.ID)
	require.Equal(t, grant, gold.Grant.Line)
	require.Equal(t, until, *gold.Until)
	require.Equal(t, entitlements.Number(21), storage.Reasons[1].Contributes)
	require.Equal(t, "sub_1", storage.Reasons[1].SubscriptionID)
	require.Nil(t, storage.Reasons[1].Until)

	require.Equal(t, entitlements.Yes(true), h.entitled(h.db.Reader(), acme, "support", time.Time{}).Value)
	extra := h.entitled(h.db.Reader(), acme, "extra", time.Time{})
	require.True(t, extra.Value.IsNothing())
	require.Empty(t, extra.Reasons)

	_, err := entitlements.Entitled(t.Context(), h.db.Reader(), acme.ID, "storag", time.Time{})
	require.ErrorIs(t, err, entitlements.ErrNotFound)
	require.ErrorContains(t, err, "near it: storage")
	for _, ask := range []func(context.Context, lockorder.Querier, uuid.UUID, string, time.Time) (entitlements.Entitlement, error){entitlements.Entitled, entitlements.EntitledPool} {
		_, err = ask(t.Context(), h.db.Reader(), uuid.New(), "storage", time.Time{})
		require.ErrorIs(t, err, entitlements.ErrNotFound)
	}
	pool, err := entitlements.EntitledPool(t.Context(), h.db.Reader(), acme.DefaultPool, "storage", time.Time{})
	require.NoError(t, err)
	require.Equal(t, storage.Reasons, pool.Reasons)
}

// From its last instant an expired position confers nothing, in whichever way it is asked, although nothing settles the pool.
func TestReadsDenyAtTheVeryInstant(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	acme := h.org("acme", "club")
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	h.grant(acme.DefaultPool, "gold", until)
	before := h.rows(acme.DefaultPool)

	for name, c := range map[string]struct {
		reader lockorder.Querier
		at     time.Time
		want   string
	}{
		"the last microsecond":     {h.db.Reader(), until.Add(-time.Microsecond), "100 gold grant true"},
		"the very instant":         {h.db.Reader(), until, "1 free default nothing"},
		"now, a minute before":     {h.at(until.Add(-time.Minute)).Reader(), time.Time{}, "100 gold grant true"},
		"now, a moment after":      {h.at(until.Add(time.Millisecond)).Reader(), time.Time{}, "1 free default nothing"},
		"now, a year after":        {h.at(until.AddDate(1, 0, 0)).Reader(), time.Time{}, "1 free default nothing"},
		"then, by who asks later":  {h.at(until.Add(time.Hour)).Reader(), until.Add(-time.Second), "100 gold grant true"},
		"after, by who asks later": {h.at(until.Add(time.Hour)).Reader(), until.Add(time.Second), "1 free default nothing"},
	} {
		storage, support := h.entitled(c.reader, acme, "storage", c.at), h.entitled(c.reader, acme, "support", c.at)
		told := fmt.Sprint(storage.Value, " ", storage.Reasons[0].Product, " ", storage.Reasons[0].Source, " ", strings.Replace(support.Value.String(), "yes", "true", 1))
		require.Equal(t, c.want, told, "Entitled, %s", name)
		require.Equal(t, strings.HasPrefix(c.want, "1 "), storage.Reasons[0].IsDueFloor(), name)

		var at *time.Time
		if !c.at.IsZero() {
			at = &c.at
		}
		var sql string
		require.NoError(t, c.reader.QueryRow(t.Context(), `
			SELECT (SELECT numeric_value FROM reading.entitlements($1, $2) WHERE resource_key = 'storage') || ' ' || r.product || ' ' || r.source || ' ' ||
			       coalesce((SELECT boolean_value::text FROM reading.entitlements($1, $2) WHERE resource_key = 'support'), 'nothing')
			FROM reading.reasons($1, $2) r WHERE r.resource_key = 'storage'`, acme.ID, at).Scan(&sql))
		require.Equal(t, c.want, sql, "SQL, %s", name)
		if at == nil {
			require.NoError(t, c.reader.QueryRow(t.Context(), `
				SELECT e.numeric_value || ' ' || r.product || ' ' || r.source FROM reading.current_entitlements e JOIN reading.current_reasons r USING (pool_id, resource_key)
				WHERE e.organization = 'acme' AND r.organization = 'acme' AND e.resource_key = 'storage'`).Scan(&sql))
			require.True(t, strings.HasPrefix(c.want, sql), "the views, %s: %s", name, sql)
		}
	}
	after := h.at(until.Add(time.Millisecond))
	r, err := entitlements.Effective(t.Context(), after.Reader(), acme.ID, time.Time{})
	require.NoError(t, err)
	require.Equal(t, entitlements.Number(1), line(r, "storage").Value)
	require.True(t, line(r, "storage").Reasons[0].IsDueFloor(), "the report shows the floor that is due")
	require.Nil(t, line(r, "storage").Since)
	require.Equal(t, "gold", r.Held[0].Product)
	require.Equal(t, entitlements.WhyNotInForce, r.Held[0].Why)
	require.Equal(t, before, h.rows(acme.DefaultPool), "nobody has settled the pool")
}

// Where the pool has changed since, its acts tell what it had.
func TestReadingThePast(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	acme := h.org("acme", "club")
	h.converge("sub_1", acme.DefaultPool, item{"it_1", "gold", 1})
	var then time.Time
	require.NoError(t, h.pool.QueryRow(t.Context(), `SELECT core.clock()`).Scan(&then))
	h.end("sub_1")

	past := h.entitled(h.db.Reader(), acme, "support", then)
	require.Equal(t, entitlements.Yes(true), past.Value)
	require.Equal(t, "test-act test/1", past.Act+" "+past.Workflow)
	require.Empty(t, past.Reasons)
	require.True(t, h.entitled(h.db.Reader(), acme, "support", time.Time{}).Value.IsNothing())
	require.True(t, h.entitled(h.db.Reader(), acme, "support", then.Add(-time.Hour)).Value.IsNothing())
	require.Equal(t, "speed 20 test-act, storage 100 test-act, support true test-act", h.one(
		`SELECT string_agg(concat_ws(' ', resource_key, numeric_value, boolean_value::text, act), ', ' ORDER BY resource_key) FROM reading.entitlements($1, $2)`, acme.ID, then))
	require.Empty(t, h.one(`SELECT string_agg(product, ' ') FROM reading.reasons($1, $2)`, acme.ID, then))
	require.Empty(t, h.one(`SELECT string_agg(resource_key, ' ') FROM reading.entitlements($1, $2)`, acme.ID, then.Add(-time.Hour)))
}

// A tier that was removed while it was held shows as what takes its place, before anything settles the pool.
func TestReadingWhatSucceeds(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	acme := h.org("acme", "club")
	h.converge("sub_1", acme.DefaultPool, item{"it_1", "gold", 1}, item{"it_2", "disk", 1})
	_, err := h.pool.Exec(t.Context(), `
		WITH c AS (INSERT INTO core.changes (id, kind, summary, act, committed_at, owed) VALUES (gen_random_uuid(), 'tier-remove', 'x', 'x', now(), 1) RETURNING id)
		INSERT INTO core.successions (product_id, successor_id, change_id)
		SELECT p.id, (SELECT id FROM core.products WHERE slug = 'silver' AND p.slug = 'gold'), c.id FROM core.products p, c WHERE p.slug IN ('gold', 'disk')`)
	require.NoError(t, err)
	storage := h.entitled(h.db.Reader(), acme, "storage", time.Time{})
	require.Equal(t, entitlements.Number(10), storage.Value)
	require.Equal(t, "silver", storage.Reasons[0].Product)
	r := h.report(acme, time.Time{})
	require.Equal(t, entitlements.Number(10), line(r, "storage").Value)
	require.Equal(t, "silver", line(r, "storage").Reasons[0].Product)
	require.Len(t, r.Held, 1)
	require.Equal(t, "disk", r.Held[0].Product)
	require.Equal(t, entitlements.WhyRemoved, r.Held[0].Why)
	require.Equal(t, "10", h.one(`SELECT numeric_value::text FROM reading.current_entitlements WHERE organization = 'acme' AND resource_key = 'storage'`))
}

// What other services may read is given in two statements, and what they may not they cannot.
func TestAReaderNeedsNothingOfCore(t *testing.T) {
	t.Parallel()
	h, _ := newPlan(t)
	role := "reader_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	admin, err := pgx.Connect(t.Context(), h.admin)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		for _, sql := range []string{"RESET ROLE", "DROP OWNED BY " + role, "DROP ROLE " + role} {
			_, err := admin.Exec(ctx, sql)
			require.NoError(t, err)
		}
		require.NoError(t, admin.Close(ctx))
	})
	for _, sql := range []string{
		"CREATE ROLE " + role,
		"GRANT USAGE ON SCHEMA reading TO " + role,
		"GRANT SELECT ON ALL TABLES IN SCHEMA reading TO " + role,
		"SET ROLE " + role,
	} {
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	for _, sql := range []string{
		`SELECT count(*) > 0 FROM reading.organizations`,
		`SELECT count(*) = 3 FROM reading.current_entitlements WHERE organization = 'acme'`,
		`SELECT count(*) = 3 FROM reading.current_reasons WHERE organization = 'acme' AND product = 'plan'`,
		`SELECT count(*) = 3 FROM reading.current_usage WHERE organization = 'acme' AND available = 100`,
		`SELECT count(*) = 3 FROM reading.organizations o, reading.entitlements(o.organization_id, now() + interval '1 day')`,
		`SELECT count(*) = 3 FROM reading.organizations o, reading.reasons(o.organization_id)`,
		`SELECT count(*) = 3 FROM reading.organizations o, reading.usage_of_pool(o.default_pool_id)`,
	} {
		var right bool
		require.NoError(t, admin.QueryRow(t.Context(), sql).Scan(&right), sql)
		require.True(t, right, sql)
	}
	for _, sql := range []string{`SELECT FROM core.positions`, `SELECT core.settle_owed(gen_random_uuid())`, `SELECT FROM core.usage`, `SELECT core.take_allowance(gen_random_uuid(), 'seats', now(), 'a', 1)`} {
		_, err := admin.Exec(t.Context(), sql)
		require.Equal(t, "42501", lockorder.SQLState(err), "%s: %v", sql, err)
	}
}

// Among many organisations, reading one reads its rows only.
func TestReadingUsesIndexes(t *testing.T) {
	t.Parallel()
	h, pool := newPlan(t)
	acme := h.one(`SELECT organization_id::text FROM core.pools WHERE id = $1`, pool)
	for _, sql := range []string{
		`WITH o AS (INSERT INTO core.organizations (slug, name, type_id) SELECT 'org-' || n, 'x', ty.id FROM generate_series(1, 20000) n, core.organization_types ty WHERE ty.slug = 'planned' RETURNING id)
		 INSERT INTO core.pools (organization_id, name, is_default) SELECT id, 'default', true FROM o`,
		`INSERT INTO core.positions (pool_id, product_id, source, status, starts_at, created_act)
		 SELECT p.id, pr.id, 'default', 'active', now() - interval '1 day', 'x' FROM core.pools p, core.products pr WHERE pr.slug = 'plan' AND NOT EXISTS (SELECT FROM core.positions x WHERE x.pool_id = p.id)`,
		`INSERT INTO core.usage (pool_id, resource_key, window_start, used) SELECT p.id, k, w, 1 FROM core.pools p, unnest(ARRAY['calls', 'seats']) k, unnest(ARRAY['2026-01-01Z']::timestamptz[]) w`,
		`INSERT INTO core.spends (pool_id, resource_key, id, window_start, n, used_after, limit_then, at) SELECT pool_id, resource_key, window_start::text, window_start, 1, 1, 100, now() FROM core.usage`,
		`INSERT INTO core.ledger (pool_id, resource_key, to_value, act, at) SELECT p.id, 'seats', to_jsonb(n), 'x', now() FROM core.pools p, generate_series(1, 2) n`,
		`ANALYZE core.organizations, core.pools, core.positions, core.usage, core.spends, core.ledger`,
	} {
		_, err := h.pool.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	for name, do := range map[string]func(tx pgx.Tx) error{
		"reading.entitlements": func(tx pgx.Tx) error { return drain(tx, `SELECT * FROM reading.entitlements($1)`, acme) },
		"reading.entitlements in the past": func(tx pgx.Tx) error {
			return drain(tx, `SELECT * FROM reading.entitlements($1, now() - interval '1 hour')`, acme)
		},
		"reading.reasons": func(tx pgx.Tx) error { return drain(tx, `SELECT * FROM reading.reasons($1)`, acme) },
		"current_entitlements": func(tx pgx.Tx) error {
			return drain(tx, `SELECT * FROM reading.current_entitlements WHERE organization = $1`, "acme")
		},
		"current_reasons": func(tx pgx.Tx) error {
			return drain(tx, `SELECT * FROM reading.current_reasons WHERE organization_id = $1`, acme)
		},
		"current_usage": func(tx pgx.Tx) error {
			return drain(tx, `SELECT * FROM reading.current_usage WHERE organization = $1`, "acme")
		},
		"Entitled": func(tx pgx.Tx) error {
			_, err := entitlements.Entitled(t.Context(), tx, uuid.MustParse(acme), "seats", time.Time{})
			return err
		},
		"EntitledPool": func(tx pgx.Tx) error {
			_, err := entitlements.EntitledPool(t.Context(), tx, pool, "seats", time.Now().Add(-time.Hour))
			return err
		},
		"Usage": func(tx pgx.Tx) error {
			_, err := entitlements.Usage(t.Context(), tx, uuid.MustParse(acme))
			return err
		},
		"Effective": func(tx pgx.Tx) error {
			_, err := entitlements.Effective(t.Context(), tx, uuid.MustParse(acme), time.Time{})
			return err
		},
		"a spend": func(tx pgx.Tx) error {
			if err := entitlements.CheckCounter(t.Context(), tx, entitlements.Counter{Pool: pool, Key: "seats"}); err != nil {
				return err
			}
			return drain(tx, `SELECT * FROM core.take_allowance($1, 'seats', '1970-01-01Z', 'x', 1)`, pool)
		},
	} {
		require.NoError(t, pgx.BeginFunc(t.Context(), h.pool, func(tx pgx.Tx) error {
			// The server counts what a session has read since it last reported it, which may be more than this transaction.
			before, err := scanned(tx)
			if err == nil {
				err = do(tx)
			}
			if err != nil {
				return err
			}
			after, err := scanned(tx)
			for table, rows := range after {
				if n := rows - before[table]; n > 100 {
					err = errors.Join(err, fmt.Errorf("it reads whole tables: %d rows of %s", n, table))
				}
			}
			return err
		}), name)
	}
}

// scanned returns how many rows the session has read by scans of whole tables.
func scanned(tx pgx.Tx) (map[string]int64, error) {
	rows, err := tx.Query(context.Background(), `SELECT relname::text, seq_tup_read FROM pg_stat_xact_user_tables
		WHERE relname IN ('organizations', 'pools', 'positions', 'usage', 'spends', 'ledger')`)
	if err != nil {
		return nil, err
	}
	read := map[string]int64{}
	var table string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&table, &n}, func() error {
		read[table] += n
		return nil
	})
	return read, err
}

func drain(tx pgx.Tx, sql string, args ...any) error {
	rows, err := tx.Query(context.Background(), sql, args...)
	if err != nil {
		return err
	}
	rows.Close()
	return rows.Err()
}
