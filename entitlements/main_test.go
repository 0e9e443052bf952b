package entitlements_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/locktest"
	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

func TestMain(m *testing.M) { locktest.Main(m) }

// house is a database with a small catalogue: a ladder free < silver < gold, and three products off it.
type house struct {
	t    tester
	db   *lockorder.DB
	pool *pgxpool.Pool
	ids  map[string]uuid.UUID // products, by slug
	// admin is the database's URL as a superuser.
	admin string
}

// tester is what a house needs of a test: *testing.T or *rapid.T.
type tester interface {
	require.TestingT
	Helper()
	Context() context.Context
}

var act = entitlements.Act{Name: "test-act", Workflow: "test/1"}

const catalogueSQL = `
INSERT INTO core.resource_keys (key, kind, aggregation) VALUES ('storage', 'numeric', 'sum'), ('speed', 'numeric', 'max'), ('support', 'boolean', 'max'), ('extra', 'numeric', 'sum');
INSERT INTO core.entitlement_sets (slug, name) SELECT s, s FROM unnest(ARRAY['free', 'silver', 'gold', 'disk', 'turbo']) s;
INSERT INTO core.set_rules (set_id, resource_key, kind, numeric_value, boolean_value)
SELECT s.id, r.key, k.kind, r.number, r.yes
FROM (VALUES ('free', 'storage', 1, NULL::boolean), ('free', 'speed', 1, NULL), ('silver', 'storage', 10, NULL), ('silver', 'speed', 5, NULL),
             ('gold', 'storage', 100, NULL), ('gold', 'speed', 20, NULL), ('gold', 'support', NULL, true),
             ('disk', 'storage', 7, NULL), ('turbo', 'speed', 9, NULL)) r (set, key, number, yes)
JOIN core.entitlement_sets s ON s.slug = r.set JOIN core.resource_keys k ON k.key = r.key;
INSERT INTO core.products (slug, name) SELECT s, initcap(s) FROM unnest(ARRAY['free', 'silver', 'gold', 'disk', 'turbo', 'plain']) s;
INSERT INTO core.product_sets (product_id, set_id) SELECT p.id, s.id FROM core.products p JOIN core.entitlement_sets s ON s.slug = p.slug;
INSERT INTO core.ladders (slug, name) VALUES ('membership', 'Membership');
INSERT INTO core.tiers (product_id, ladder_id, rank)
SELECT p.id, l.id, array_position(ARRAY['free', 'silver', 'gold'], p.slug) - 1 FROM core.products p, core.ladders l WHERE p.slug IN ('free', 'silver', 'gold');
INSERT INTO core.organization_types (slug, name, default_product_id) SELECT 'club', 'Club', id FROM core.products WHERE slug = 'free';
INSERT INTO core.organization_types (slug, name) VALUES ('bare', 'Bare');`

func newHouse(t testing.TB) *house {
	t.Helper()
	database := pgtest.New(t)
	pool := database.Pool(t)
	_, err := pool.Exec(t.Context(), catalogueSQL)
	require.NoError(t, err)
	db, err := lockorder.Open(t.Context(), database.URL(), locktest.Watched(lockorder.Options{NowSQL: "SELECT core.clock()"}))
	require.NoError(t, err)
	t.Cleanup(db.Close)
	h := &house{t: t, db: db, pool: pool, ids: map[string]uuid.UUID{}, admin: database.AdminURL()}
	rows, err := pool.Query(t.Context(), `SELECT slug, id FROM core.products`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var slug string
		var id uuid.UUID
		require.NoError(t, rows.Scan(&slug, &id))
		h.ids[slug] = id
	}
	require.NoError(t, rows.Err())
	return h
}

func (h *house) org(slug, kind string) entitlements.Organization {
	h.t.Helper()
	var org entitlements.Organization
	require.NoError(h.t, h.db.Run(h.t.Context(), lockorder.Spec{Path: "organization-create", Kind: lockorder.Materializing},
		func(ctx context.Context, tx *lockorder.Tx) (err error) {
			org, err = entitlements.CreateOrganization(ctx, tx, act, entitlements.NewOrganization{Slug: slug, Name: "The " + slug, Type: kind})
			return err
		}))
	return org
}

// in runs an act on a subscription under all locks that it needs.
func (h *house) in(subscription string, pools []uuid.UUID, do func(context.Context, *lockorder.Tx) (entitlements.Changes, error)) (entitlements.Changes, error) {
	var changes entitlements.Changes
	err := h.db.Run(h.t.Context(), lockorder.Spec{
		Path: "subscription-reconcile", Kind: lockorder.Materializing, Keys: []lockorder.Lock{lockorder.SubscriptionKey(subscription)},
	}, func(ctx context.Context, tx *lockorder.Tx) error {
		held, err := entitlements.PoolsOfSubscription(ctx, tx, subscription)
		if err != nil {
			return err
		}
		if err := entitlements.LockPools(ctx, tx, slices.Concat(pools, held)...); err != nil {
			return err
		}
		changes, err = do(ctx, tx)
		return err
	})
	return changes, err
}

// item is "product" or "product × n" of an item.
type item struct {
	id, product string
	quantity    int64
}

func (h *house) converge(subscription string, pool uuid.UUID, items ...item) entitlements.Changes {
	h.t.Helper()
	changes, err := h.tryConverge(entitlements.Subscription{ID: subscription, Pool: pool, Items: h.items(items)})
	require.NoError(h.t, err)
	return changes
}

func (h *house) items(items []item) []entitlements.Item {
	out := make([]entitlements.Item, len(items))
	for i, it := range items {
		require.Contains(h.t, h.ids, it.product)
		out[i] = entitlements.Item{ID: it.id, Product: h.ids[it.product], Quantity: it.quantity}
	}
	return out
}

func (h *house) tryConverge(sub entitlements.Subscription) (entitlements.Changes, error) {
	return h.in(sub.ID, []uuid.UUID{sub.Pool}, func(ctx context.Context, tx *lockorder.Tx) (entitlements.Changes, error) {
		return entitlements.ConvergeSubscription(ctx, tx, act, sub)
	})
}

// suspend suspends a subscription with the items that it holds.
func (h *house) suspend(subscription string) entitlements.Changes {
	h.t.Helper()
	sub := entitlements.Subscription{ID: subscription, Suspended: true}
	rows, err := h.pool.Query(h.t.Context(), `SELECT pool_id, item_id, product_id, quantity FROM core.positions WHERE subscription_id = $1 AND status <> 'ended'`, subscription)
	require.NoError(h.t, err)
	var held entitlements.Item
	_, err = pgx.ForEachRow(rows, []any{&sub.Pool, &held.ID, &held.Product, &held.Quantity}, func() error {
		sub.Items = append(sub.Items, held)
		return nil
	})
	require.NoError(h.t, err)
	if len(sub.Items) == 0 {
		return entitlements.Changes{}
	}
	changes, err := h.tryConverge(sub)
	require.NoError(h.t, err)
	return changes
}

func (h *house) end(subscription string) entitlements.Changes {
	h.t.Helper()
	changes, err := h.in(subscription, nil, func(ctx context.Context, tx *lockorder.Tx) (entitlements.Changes, error) {
		return entitlements.EndSubscription(ctx, tx, act, subscription, entitlements.EndSubscriptionEnded)
	})
	require.NoError(h.t, err)
	return changes
}

// has returns what a pool may use, "speed=5 storage=10".
func (h *house) has(pool uuid.UUID) string {
	h.t.Helper()
	return h.one(`SELECT coalesce(string_agg(resource_key || '=' || coalesce(numeric_value::text, boolean_value::text), ' ' ORDER BY resource_key), '')
		FROM core.pool_entitlements WHERE pool_id = $1`, pool)
}

// holds returns the live positions of a pool: "free default active, gold it_1 suspended".
func (h *house) holds(pool uuid.UUID) string {
	h.t.Helper()
	return h.one(`SELECT coalesce(string_agg(v, ', ' ORDER BY v COLLATE "C"), '') FROM (
		SELECT p.slug || CASE WHEN x.quantity > 1 THEN '×' || x.quantity ELSE '' END || ' ' || coalesce(x.item_id, x.source) || ' ' || x.status
		FROM core.positions x JOIN core.products p ON p.id = x.product_id WHERE x.pool_id = $1 AND x.status <> 'ended') held (v)`, pool)
}

// rows returns every row of what a pool holds and may use with its place and version in the table: it changes with any write.
func (h *house) rows(pool uuid.UUID) string {
	h.t.Helper()
	return h.one(`SELECT string_agg(v, E'\n' ORDER BY v) FROM (
		SELECT 'entitlement ' || resource_key || ' ' || ctid || ' ' || xmin FROM core.pool_entitlements WHERE pool_id = $1
		UNION ALL SELECT 'position ' || id || ' ' || ctid || ' ' || xmin FROM core.positions WHERE pool_id = $1
		UNION ALL SELECT 'ledger ' || id FROM core.ledger WHERE pool_id = $1) r (v)`, pool)
}

func (h *house) one(sql string, args ...any) string {
	h.t.Helper()
	var s *string
	require.NoError(h.t, h.pool.QueryRow(h.t.Context(), sql, args...).Scan(&s))
	if s == nil {
		return ""
	}
	return *s
}
