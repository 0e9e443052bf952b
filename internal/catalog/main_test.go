package catalog_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/catalog"
	"github.com/bursarhq/bursar/internal/locktest"
	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

func TestMain(m *testing.M) { locktest.Main(m) }

const base = `
resource_keys:
  - {key: storage, kind: numeric, description: Gigabytes}
  - {key: speed, kind: numeric, aggregation: max, window: none}
  - {key: support, kind: boolean}
sets:
  - {id: free, rules: {storage: 1, speed: 1}}
  - {id: silver, name: Silver rules, rules: {storage: 10, speed: 5}}
  - id: gold
    rules:
      storage: 100
      speed: 20
      support: true
products:
  - {id: free, name: Free, sets: [free]}
  - {id: silver, name: Silver, sets: [silver], stripe: {prices: [price_silver]}}
  - {id: gold, name: Gold, sets: [gold], stripe: {prices: [price_gold, price_gold_year], products: [prod_gold]}}
ladders:
  - {id: membership, name: Membership, tiers: [free, silver, gold]}
organization_types:
  - {id: club, name: Club, default: free}
`

type house struct {
	t    testing.TB
	db   *lockorder.DB
	pool *pgxpool.Pool
}

func newHouse(t testing.TB) *house {
	t.Helper()
	database := pgtest.New(t)
	db, err := lockorder.Open(t.Context(), database.URL(), locktest.Watched(lockorder.Options{NowSQL: "SELECT core.clock()"}))
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return &house{t, db, database.Pool(t)}
}

func parse(t testing.TB, text string) *catalog.File {
	t.Helper()
	f, err := catalog.Parse("catalog.yaml", []byte(text))
	require.NoError(t, err)
	return f
}

// plan shows and apply shows and applies a file.
func (h *house) plan(text string) (catalog.Preview, error) {
	return catalog.Plan(h.t.Context(), h.db, parse(h.t, text))
}

func (h *house) apply(text string) (catalog.Preview, error) {
	f := parse(h.t, text)
	shown, err := catalog.Plan(h.t.Context(), h.db, f)
	if err != nil {
		return shown, err
	}
	return catalog.Apply(h.t.Context(), h.db, f, shown)
}

func (h *house) applyShown(text string, shown catalog.Preview) (catalog.Preview, error) {
	return catalog.Apply(h.t.Context(), h.db, parse(h.t, text), shown)
}

func (h *house) mustApply(text string) catalog.Preview {
	h.t.Helper()
	p, err := h.apply(text)
	require.NoError(h.t, err)
	return p
}

// with returns base with replacements, each of which must be there.
func with(t testing.TB, oldNew ...string) string {
	t.Helper()
	for i := 0; i < len(oldNew); i += 2 {
		require.Contains(t, base, oldNew[i])
	}
	return replaced(oldNew...)
}

// replaced returns base with replacements.
func replaced(oldNew ...string) string { return strings.NewReplacer(oldNew...).Replace(base) }

func (h *house) org(slug string) entitlements.Organization {
	h.t.Helper()
	var org entitlements.Organization
	require.NoError(h.t, h.db.Run(h.t.Context(), lockorder.Spec{Path: "organization-create", Kind: lockorder.Materializing},
		func(ctx context.Context, tx *lockorder.Tx) (err error) {
			org, err = entitlements.CreateOrganization(ctx, tx, entitlements.Act{Name: "test"}, entitlements.NewOrganization{Slug: slug, Name: slug, Type: "club"})
			return err
		}))
	return org
}

// subscribe gives an organisation a mirrored subscription of one item to a price, conferring a product.
func (h *house) subscribe(org entitlements.Organization, id, price, stripeProduct, product, status string) {
	h.t.Helper()
	_, err := h.pool.Exec(h.t.Context(), `WITH s AS (
			INSERT INTO stripe.subscriptions (id, version, customer_id, status, stripe_created_at, reconciled_at)
			VALUES ('sub_' || $1, 1, 'cus_1', $4, now(), now()) RETURNING id)
		INSERT INTO stripe.subscription_items (id, subscription_id, price_id, stripe_product_id, quantity) SELECT 'si_' || $1, id, $2, $3, 2 FROM s`,
		id, price, stripeProduct, status)
	require.NoError(h.t, err)
	var productID uuid.UUID
	require.NoError(h.t, h.pool.QueryRow(h.t.Context(), `SELECT id FROM core.products WHERE slug = $1`, product).Scan(&productID))
	act := entitlements.Act{Name: "subscription-reconcile"}
	require.NoError(h.t, h.db.Run(h.t.Context(), lockorder.Spec{
		Path: "subscription-reconcile", Kind: lockorder.Materializing, Keys: []lockorder.Lock{lockorder.SubscriptionKey("sub_" + id)},
	}, func(ctx context.Context, tx *lockorder.Tx) error {
		if err := tx.Lock(ctx, lockorder.PoolRow(org.DefaultPool)); err != nil {
			return err
		}
		_, err := entitlements.ConvergeSubscription(ctx, tx, act, entitlements.Subscription{
			ID: "sub_" + id, Pool: org.DefaultPool, Items: []entitlements.Item{{ID: "si_" + id, Product: productID, Quantity: 2}}, Suspended: status == "paused"})
		return err
	}))
}

// lockPools locks the default pools, which settles what they are owed.
func (h *house) lockPools(orgs ...entitlements.Organization) {
	h.t.Helper()
	pools := make([]uuid.UUID, len(orgs))
	for i, org := range orgs {
		pools[i] = org.DefaultPool
	}
	require.NoError(h.t, h.db.Run(h.t.Context(), lockorder.Spec{Path: "rule-change-drain", Kind: lockorder.Materializing}, func(ctx context.Context, tx *lockorder.Tx) error {
		return entitlements.LockPools(ctx, tx, pools...)
	}))
}

func (h *house) has(org entitlements.Organization) string {
	h.t.Helper()
	return h.one(`SELECT coalesce(string_agg(resource_key || '=' || coalesce(numeric_value::text, boolean_value::text), ' ' ORDER BY resource_key), '')
		FROM core.pool_entitlements WHERE pool_id = $1`, org.DefaultPool)
}

func (h *house) holds(org entitlements.Organization) string {
	h.t.Helper()
	return h.one(`SELECT coalesce(string_agg(v, ', ' ORDER BY v COLLATE "C"), '') FROM (
		SELECT concat_ws(' ', p.slug, coalesce(x.item_id, x.source), x.quantity, x.status) FROM core.positions x JOIN core.products p ON p.id = x.product_id
		WHERE x.pool_id = $1 AND x.status <> 'ended') held (v)`, org.DefaultPool)
}

// everything returns every row of every table with its place and version: it changes with any write.
func (h *house) everything() string {
	h.t.Helper()
	var tables []string
	rows, err := h.pool.Query(h.t.Context(), `SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname IN ('core', 'stripe') ORDER BY 1`)
	require.NoError(h.t, err)
	defer rows.Close()
	for rows.Next() {
		var table string
		require.NoError(h.t, rows.Scan(&table))
		tables = append(tables, table)
	}
	require.NoError(h.t, rows.Err())
	var out strings.Builder
	for _, table := range tables {
		fmt.Fprintf(&out, "%s\n%s\n", table, h.one(`SELECT string_agg(ctid || ' ' || xmin || ' ' || x::text, E'\n' ORDER BY ctid) FROM `+table+` x`))
	}
	return out.String()
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
