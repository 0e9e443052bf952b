package entitlements_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/locktest"
	"github.com/bursarhq/bursar/lockorder"
)

// modelDays is how many days there are.
const modelDays = 4

// modelSQL adds a second ladder, two allowances, and a type whose default is on no ladder.
const modelSQL = `
INSERT INTO core.resource_keys (key, kind, aggregation, usage_window) VALUES ('calls', 'numeric', 'sum', 'day'), ('seats', 'numeric', 'sum', 'none');
INSERT INTO core.entitlement_sets (slug, name) SELECT s, s FROM unnest(ARRAY['basic', 'pro']) s;
INSERT INTO core.set_rules (set_id, resource_key, kind, numeric_value) SELECT s.id, r.key, 'numeric', r.n
FROM (VALUES ('free', 'calls', 3), ('gold', 'calls', 20), ('silver', 'seats', 5), ('basic', 'seats', 2), ('pro', 'seats', 9), ('pro', 'calls', 4)) r (set, key, n)
JOIN core.entitlement_sets s ON s.slug = r.set;
INSERT INTO core.products (slug, name) SELECT s, s FROM unnest(ARRAY['basic', 'pro']) s;
INSERT INTO core.product_sets (product_id, set_id) SELECT p.id, s.id FROM core.products p JOIN core.entitlement_sets s ON s.slug = p.slug WHERE p.slug IN ('basic', 'pro');
INSERT INTO core.ladders (slug, name) VALUES ('help', 'Help');
INSERT INTO core.tiers (product_id, ladder_id, rank)
SELECT p.id, l.id, array_position(ARRAY['basic', 'pro'], p.slug) - 1 FROM core.products p, core.ladders l WHERE p.slug IN ('basic', 'pro') AND l.slug = 'help';
INSERT INTO core.organization_types (slug, name, default_product_id) SELECT 'circle', 'Circle', id FROM core.products WHERE slug = 'disk';
INSERT INTO core.organization_types (slug, name, default_product_id) SELECT 'crowd', 'Crowd', id FROM core.products WHERE slug = 'silver';`

// newWorld is the world that catalogueSQL and modelSQL make, without organisations.
func newWorld() *world {
	return &world{
		now: aDay / 2, ranks: map[string][]string{"membership": {"free", "silver", "gold"}, "help": {"basic", "pro"}}, heirs: map[string]string{}, from: map[string]string{}, floors: map[string]bool{},
		rules: map[string]map[string]int64{
			"free": {"storage": 1, "speed": 1, "calls": 3}, "silver": {"storage": 10, "speed": 5, "seats": 5}, "gold": {"storage": 100, "speed": 20, "support": 1, "calls": 20},
			"disk": {"storage": 7}, "turbo": {"speed": 9}, "basic": {"seats": 2}, "pro": {"seats": 9, "calls": 4},
		},
		types:  map[string]*worldType{"club": {product: "free"}, "bare": {}, "circle": {product: "disk"}, "crowd": {product: "silver"}},
		grants: map[string]*worldGrant{}, spends: map[string]*worldSpend{}, used: map[string]int64{},
	}
}

// modelHouse is a house that begins anew for each run.
type modelHouse struct {
	*house
	days []*lockorder.DB
	base time.Time
	orgs []entitlements.Organization
}

func newModelHouse(t testing.TB) *modelHouse {
	t.Helper()
	m := &modelHouse{house: newHouse(t), base: time.Date(2031, 3, 29, 8, 0, 0, 0, time.UTC)}
	m.exec(`CREATE SCHEMA model`)
	m.exec(`CREATE SEQUENCE model.witness`)
	for day := range modelDays + 1 {
		m.days = append(m.days, m.at(m.base.AddDate(0, 0, day)))
	}
	return m
}

func (m *modelHouse) exec(sql string, args ...any) {
	m.t.Helper()
	_, err := m.pool.Exec(m.t.Context(), sql, args...)
	require.NoError(m.t, err)
}

// begin empties the house, and makes organisations in it and in a new world. A crowd is so many that a change owes them.
func (m *modelHouse) begin(crowded bool) *world {
	m.t.Helper()
	m.db, m.orgs, m.ids = m.days[0], nil, map[string]uuid.UUID{}
	m.exec(`TRUNCATE core.usage, core.spends, core.change_obligations, core.successions, core.changes, core.ledger, core.pool_entitlements, core.positions, core.grants,
		core.pools, core.organizations, core.organization_types, core.tiers, core.ladders, core.product_sets, core.products, core.set_rules, core.entitlement_sets,
		core.resource_keys CASCADE`)
	m.exec(catalogueSQL + modelSQL)
	rows, err := m.pool.Query(m.t.Context(), `SELECT slug, id FROM core.products`)
	require.NoError(m.t, err)
	var slug string
	var id uuid.UUID
	_, err = pgx.ForEachRow(rows, []any{&slug, &id}, func() error { m.ids[slug] = id; return nil })
	require.NoError(m.t, err)
	w := newWorld()
	for i, kind := range []string{"club", "club", "bare", "circle"} {
		m.orgs = append(m.orgs, m.org(fmt.Sprintf("o%d", i), kind))
	}
	if crowded {
		m.exec(`WITH made AS (INSERT INTO core.organizations (slug, name, type_id) SELECT 'crowd-' || n, 'x', t.id FROM generate_series(1, $1) n, core.organization_types t
			WHERE t.slug = 'crowd' RETURNING id) INSERT INTO core.pools (organization_id, name, is_default) SELECT id, 'default', true FROM made`, entitlements.SyncCap+1)
		rows, err := m.pool.Query(m.t.Context(), `SELECT o.id, o.slug, p.id FROM core.organizations o JOIN core.pools p ON p.organization_id = o.id WHERE o.slug LIKE 'crowd-%'`)
		require.NoError(m.t, err)
		org := entitlements.Organization{Type: "crowd"}
		_, err = pgx.ForEachRow(rows, []any{&org.ID, &org.Slug, &org.DefaultPool}, func() error { m.orgs = append(m.orgs, org); return nil })
		require.NoError(m.t, err)
		pools := make([]uuid.UUID, 0, len(m.orgs))
		for _, o := range m.orgs {
			pools = append(pools, o.DefaultPool)
		}
		require.NoError(m.t, m.db.Run(m.t.Context(), lockorder.Spec{Path: "test-settle", Kind: lockorder.Materializing}, func(ctx context.Context, tx *lockorder.Tx) error {
			if err := entitlements.LockPools(ctx, tx, pools...); err != nil {
				return err
			}
			_, err := entitlements.Settle(ctx, tx, act, pools...)
			return err
		}))
	}
	w.now = 0
	for _, o := range m.orgs {
		made := &worldOrg{kind: o.Type, owed: map[string]bool{}}
		w.orgs = append(w.orgs, made)
		w.settle(made)
	}
	return w
}

var modelSpace = uuid.MustParse("0b4cf4f3-7a0e-4f0e-9d6e-3b9f8ad3a001")

func (m *modelHouse) id(name string) uuid.UUID { return uuid.NewSHA1(modelSpace, []byte(name)) }

// bound is the time of a boundary, nil for none.
func (m *modelHouse) bound(day int64, name string) *time.Time {
	if day == 0 {
		return nil
	}
	at := m.base.AddDate(0, 0, int(day)).Add(-time.Hour + time.Duration(nth(name))*time.Millisecond)
	return &at
}

// modelDone is what an act came to.
type modelDone struct {
	refused string
	limit   int64 // what a spend was allowed
	witness int64 // its place in an order that every lock agrees with
}

// do does an act. Where it is refused it says why, in the words of the world.
func (m *modelHouse) do(ctx context.Context, a worldAct) (modelDone, error) {
	done := modelDone{limit: -1}
	spec := lockorder.Spec{Path: "test-" + a.kind, Kind: lockorder.Materializing}
	if a.kind == "converge" || a.kind == "end" {
		spec.Keys = []lockorder.Lock{lockorder.SubscriptionKey("sub_" + a.sub)}
	}
	switch a.kind {
	case "tier-add", "tier-remove", "tier-reorder", "rules":
		spec.Kind = lockorder.RuleChange
	case "default", "spend", "release", "raise", "bound":
		spec.Kind = lockorder.Plain
	}
	err := m.db.Run(ctx, spec, func(ctx context.Context, tx *lockorder.Tx) error {
		done.limit = -1
		if err := m.in(ctx, tx, a, &done); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT nextval('model.witness')`).Scan(&done.witness)
	})
	for _, known := range []struct {
		is   error
		word string
	}{{entitlements.ErrNotFound, "not found"}, {entitlements.ErrInvalid, "invalid"}, {entitlements.ErrInProgress, "in progress"},
		{entitlements.ErrExhausted, "exhausted"}, {entitlements.ErrGrantMoved, "moved"}} {
		if errors.Is(err, known.is) {
			done.refused = known.word
			return done, nil
		}
	}
	return done, err
}

func (m *modelHouse) in(ctx context.Context, tx *lockorder.Tx, a worldAct, done *modelDone) (err error) {
	var pool uuid.UUID
	slug := ""
	if a.org >= 0 {
		pool, slug = m.orgs[a.org].DefaultPool, m.orgs[a.org].Slug
	}
	by := entitlements.Act{Name: a.kind, Workflow: "act/" + a.fresh}
	counter := entitlements.Counter{Pool: pool, Key: a.key}
	switch a.kind {
	case "converge", "end":
		pools, err := entitlements.PoolsOfSubscription(ctx, tx, "sub_"+a.sub)
		if err != nil {
			return err
		}
		if a.kind == "converge" {
			pools = append(pools, pool)
		}
		if err := entitlements.LockPools(ctx, tx, pools...); err != nil {
			return err
		}
		if a.kind == "end" {
			_, err = entitlements.EndSubscription(ctx, tx, by, "sub_"+a.sub, entitlements.EndSubscriptionEnded)
			return err
		}
		_, err = entitlements.ConvergeSubscription(ctx, tx, by, entitlements.Subscription{ID: "sub_" + a.sub, Pool: pool, Suspended: a.suspended,
			Items: []entitlements.Item{{ID: a.sub, Product: m.ids[a.product], Quantity: a.quantity}}})
		return err
	case "issue":
		_, err = entitlements.IssueGrant{ID: m.id(a.fresh), Organization: slug, Product: a.product, Quantity: a.quantity, From: m.bound(a.from, a.fresh), Until: m.bound(a.until, a.fresh)}.Do(ctx, tx, by)
	case "extend":
		_, err = entitlements.ExtendGrant{ID: m.id(a.fresh), Grant: m.id(a.grant), Until: m.bound(a.until, a.fresh)}.Do(ctx, tx, by)
	case "manage":
		manage := entitlements.ManageGrant{ID: m.id(a.fresh), Grant: m.id(a.grant), Until: m.bound(a.until, a.fresh), Forever: a.forever, Organization: slug}
		if a.quantity > 0 {
			manage.Quantity = &a.quantity
		}
		_, err = manage.Do(ctx, tx, by)
	case "revoke":
		_, err = entitlements.RevokeGrant{Grant: m.id(a.grant)}.Do(ctx, tx, by)
	case "tier-add":
		_, err = entitlements.AddTier{Change: m.id(a.fresh), Product: a.product, Ladder: a.ladder, Rank: &a.rank}.Do(ctx, tx, by)
	case "tier-remove":
		_, err = entitlements.RemoveTier{Change: m.id(a.fresh), Product: a.product, Disposition: a.to}.Do(ctx, tx, by)
	case "tier-reorder":
		_, err = entitlements.ReorderTiers{Change: m.id(a.fresh), Ladder: a.ladder, Products: a.order}.Do(ctx, tx, by)
	case "default":
		incumbents := entitlements.IncumbentsMigrate
		if a.suspended {
			incumbents = entitlements.IncumbentsGrandfather
		}
		_, err = entitlements.SaveDefault{Change: m.id(a.fresh), Type: a.sub, Product: a.product, Incumbents: incumbents}.Do(ctx, tx, by)
	case "rules":
		value := entitlements.Number(a.n)
		switch {
		case a.n < 0:
			value = entitlements.Value{}
		case a.key == "support":
			value = entitlements.Yes(a.n == 1)
		}
		_, err = entitlements.AlterRules{Change: m.id(a.fresh), Set: a.product, Deltas: []entitlements.RuleDelta{{Key: a.key, Value: value}}}.Do(ctx, tx, by)
	case "spend":
		spent, err := entitlements.SpendIn(ctx, tx, entitlements.Spending{ID: a.sub, Pool: pool, Key: a.key, N: a.n})
		done.limit = spent.Limit
		return err
	case "release":
		_, err = entitlements.ReleaseIn(ctx, tx, entitlements.Releasing{ID: a.sub, Pool: pool, Key: a.key, Keep: a.quantity})
	case "raise":
		_, err = entitlements.RaiseToIn(ctx, tx, counter, a.n)
	case "bound":
		_, err = entitlements.BoundIn(ctx, tx, counter, a.n)
	case "drain":
		err = entitlements.LockPools(ctx, tx, pool)
	default:
		err = fmt.Errorf("nothing does %s", a.kind)
	}
	return err
}

// print renders the tables as the world is.
func (m *modelHouse) print() string {
	m.t.Helper()
	names := map[string]string{}
	for i, o := range m.orgs {
		names[o.DefaultPool.String()] = fmt.Sprint(i)
	}
	for i := range 400 {
		names[m.id(fmt.Sprintf("g%d", i)).String()] = fmt.Sprintf("g%d", i)
	}
	rows, err := m.db.Reader().Query(m.t.Context(), modelPrint, m.base)
	require.NoError(m.t, err)
	lines, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var words []string
		err := row.Scan(&words)
		for i, word := range words {
			if name, ok := names[word]; ok {
				words[i] = name
			}
		}
		return strings.Join(words, ""), err
	})
	require.NoError(m.t, err)
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

const modelPrint = `
SELECT ARRAY[x.pool_id::text, ' holds ' || p.slug || '×' || x.quantity || ' ' || x.source || ' ',
             CASE WHEN g.origin = 'grandfathered' THEN 'grandfathered' ELSE coalesce(x.item_id, x.grant_id::text, '') END, ' ' || x.status]
FROM core.positions x JOIN core.products p ON p.id = x.product_id LEFT JOIN core.grants g ON g.id = x.grant_id WHERE x.status <> 'ended'
UNION ALL
SELECT ARRAY[pool_id::text, ' has ' || resource_key || '=' || coalesce(numeric_value, boolean_value::integer)] FROM core.pool_entitlements
UNION ALL
SELECT ARRAY[p.id::text, ' reads ' || a.resource_key || '=' || coalesce(a.numeric_value, a.boolean_value::integer)]
FROM core.pools p CROSS JOIN LATERAL core.aggregate_pool(p.id, core.clock()) a
UNION ALL
SELECT ARRAY[pool_id::text, ' is owed ' || count(*)] FROM core.change_obligations WHERE state <> 'settled' GROUP BY pool_id
UNION ALL
SELECT ARRAY['grant ', CASE WHEN g.origin = 'grandfathered' THEN 'grandfathered' ELSE g.id::text END, ' of ', coalesce(g.pool_id::text, '-1'),
             ': ' || p.slug || '×' || g.quantity || ' ' || g.state || ' until '
             || coalesce(ceil(extract(epoch FROM g.ends_at - $1::timestamptz) / 86400)::bigint, 0) || ' after "', coalesce(g.extends::text, ''), '"']
FROM core.grants g JOIN core.products p ON p.id = g.product_id
UNION ALL
SELECT ARRAY['used ', pool_id::text, ' ' || resource_key || ' ' || CASE WHEN resource_key = 'seats' THEN -1
             ELSE (window_start::date - $1::timestamptz::date) END || ': ' || used] FROM core.usage WHERE used > 0
UNION ALL
SELECT ARRAY['spend ', pool_id::text, ' ' || resource_key || ' ' || id || ': ' || n || ' of which ' || released || ' back'] FROM core.spends`

// sound wants every invariant to hold, and of each ladder one position at most to confer in a pool.
func (m *modelHouse) sound() {
	m.t.Helper()
	require.Empty(m.t, locktest.Broken(m.t.Context(), m.db.Reader()))
	require.Empty(m.t, m.one(`SELECT string_agg(pool || ' uses two of a ladder', ', ') FROM (
		SELECT p.id::text AS pool FROM core.pools p CROSS JOIN LATERAL core.effective_positions(p.id, core.clock()) e
		WHERE e.confers AND e.ladder_id IS NOT NULL GROUP BY p.id, e.ladder_id HAVING count(*) > 1) twice`))
}
