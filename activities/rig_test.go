package activities_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/db"
	"github.com/bursarhq/bursar/internal/locktest"
	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/internal/stripeapi"
	"github.com/bursarhq/bursar/internal/stripeapi/standin"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows/contract"
)

func TestMain(m *testing.M) { locktest.Main(m) }

// rig is a database with a catalogue, a stand-in for Stripe with its prices, and the activities between them, through the
// real client over HTTP. Ladder membership: free (the floor of every member), silver, gold. Product extra is on no ladder.
type rig struct {
	t        testing.TB
	database *pgtest.DB
	db       *lockorder.DB
	pool     *pgxpool.Pool
	stripe   *standin.Server
	client   *stripeapi.Client
	subs     *activities.Subscriptions
	operator *activities.Operator
}

const catalogue = `
INSERT INTO core.resource_keys (key, kind, aggregation) VALUES ('sites', 'numeric', 'sum'), ('storage', 'numeric', 'max'), ('support', 'boolean', 'max');
INSERT INTO core.entitlement_sets (slug, name) SELECT s, s FROM unnest(ARRAY['free', 'silver', 'gold', 'extra']) s;
INSERT INTO core.set_rules (set_id, resource_key, kind, numeric_value, boolean_value)
	SELECT e.id, v.key, CASE WHEN v.n IS NULL THEN 'boolean' ELSE 'numeric' END, v.n, v.b
	FROM (VALUES ('free', 'sites', 1, NULL::boolean), ('silver', 'sites', 5, NULL), ('silver', 'storage', 50, NULL), ('gold', 'sites', 20, NULL),
		('gold', 'storage', 200, NULL), ('gold', 'support', NULL, true), ('extra', 'sites', 2, NULL)) v (slug, key, n, b)
	JOIN core.entitlement_sets e ON e.slug = v.slug;
INSERT INTO core.products (slug, name) SELECT s, initcap(s) FROM unnest(ARRAY['free', 'silver', 'gold', 'extra']) s;
INSERT INTO core.product_sets (product_id, set_id) SELECT p.id, e.id FROM core.products p JOIN core.entitlement_sets e USING (slug);
INSERT INTO core.ladders (slug, name) VALUES ('membership', 'Membership');
INSERT INTO core.tiers (product_id, ladder_id, rank) SELECT p.id, l.id, r.rank FROM core.ladders l, (VALUES ('free', 0), ('silver', 1), ('gold', 2)) r (slug, rank) JOIN core.products p USING (slug);
INSERT INTO core.organization_types (slug, name, default_product_id) SELECT 'member', 'Member', id FROM core.products WHERE slug = 'free';
INSERT INTO stripe.price_mappings (stripe_price_id, product_id) SELECT 'price_' || slug, id FROM core.products WHERE slug IN ('silver', 'gold', 'extra');
INSERT INTO stripe.product_mappings (stripe_product_id, product_id) SELECT 'prod_' || slug, id FROM core.products WHERE slug = 'gold';`

// What each product confers, as entitlements prints it.
const (
	free   = "sites=1"
	silver = "sites=5 storage=50"
	gold   = "sites=20 storage=200 support=true"
)

func newRig(t *testing.T, options ...pgtest.Option) *rig {
	t.Helper()
	return newRigWith(t, lockorder.Options{}, options...)
}

func newRigWith(t *testing.T, bounds lockorder.Options, options ...pgtest.Option) *rig {
	t.Helper()
	r := &rig{t: t, database: pgtest.New(t, options...), stripe: standin.New(standin.Options{})}
	own := db.LockOptions()
	bounds.NowSQL, bounds.Guard, bounds.GuardState, bounds.MaxConns = own.NowSQL, own.Guard, own.GuardState, 16
	locktest.Watch(&bounds)
	var err error
	r.db, err = lockorder.Open(t.Context(), r.database.URL(), bounds)
	require.NoError(t, err)
	t.Cleanup(r.db.Close)
	r.pool = r.database.Pool(t)
	_, err = r.pool.Exec(t.Context(), catalogue)
	require.NoError(t, err)

	r.client = stripeapi.New(stripeConfig(startStripe(t, r.stripe)))
	r.subs = &activities.Subscriptions{DB: r.db, Stripe: r.client}
	r.operator = &activities.Operator{DB: r.db}
	return r
}

// startStripe gives the stand-in its prices and starts it for the length of the test. It returns its URL.
func startStripe(t testing.TB, stripe *standin.Server) string {
	t.Helper()
	for _, p := range []struct{ product, price, interval string }{
		{"silver", "silver", "month"}, {"gold", "gold", "month"}, {"gold", "gold_year", "year"}, {"extra", "extra", "month"}, {"strange", "strange", "month"},
	} {
		stripe.PutProduct(standin.Product{ID: "prod_" + p.product, Name: p.product})
		_, err := stripe.PutPrice(standin.Price{ID: "price_" + p.price, Product: "prod_" + p.product, UnitAmount: 100, Interval: p.interval})
		require.NoError(t, err)
	}
	url, err := stripe.Start(context.Background())
	require.NoError(t, err)
	t.Cleanup(stripe.Close)
	return url
}

func stripeConfig(url string) stripeapi.Config {
	return stripeapi.Config{Key: "sk_test_4eC39HqLyjWDarjtT1zdp7dc", BaseURL: url, Timeout: 20 * time.Second}
}

// member makes an organisation and a Stripe customer that pays for it, and returns the customer's id.
func (r *rig) member(slug string) string {
	r.t.Helper()
	_, err := r.operator.CreateOrganization(r.t.Context(), activities.NewOrganizationRequest{Slug: slug, Name: strings.ToUpper(slug), Type: "member"})
	require.NoError(r.t, err)
	customer := r.stripe.PutCustomer(standin.Customer{Name: slug}).ID
	r.link(customer, slug)
	return customer
}

func (r *rig) link(customer, slug string) activities.LinkCustomerResult {
	r.t.Helper()
	result, err := r.operator.LinkCustomer(r.t.Context(), activities.LinkCustomerRequest{Customer: customer, Organization: slug})
	require.NoError(r.t, err)
	return result
}

// subscribe makes an active subscription at Stripe to the prices, of one each.
func (r *rig) subscribe(customer string, prices ...string) string {
	r.t.Helper()
	sub := standin.Subscription{Customer: customer}
	for _, p := range prices {
		sub.Items = append(sub.Items, standin.Item{Price: "price_" + p, Quantity: 1})
	}
	made, err := r.stripe.PutSubscription(sub)
	require.NoError(r.t, err)
	return made.ID
}

// change changes a subscription at Stripe.
func (r *rig) change(id string, change func(*standin.Subscription)) {
	r.t.Helper()
	sub, ok := r.stripe.GetSubscription(id)
	require.True(r.t, ok)
	change(&sub)
	_, err := r.stripe.PutSubscription(sub)
	require.NoError(r.t, err)
}

func toPrice(price string) func(*standin.Subscription) {
	return func(s *standin.Subscription) { s.Items[0].Price = "price_" + price }
}

func (r *rig) status(id, status string) {
	r.t.Helper()
	require.NoError(r.t, r.stripe.SetStatus(id, status))
}

// reconcile runs the activity once and expects it to succeed.
func (r *rig) reconcile(id string) contract.ReconcileResult {
	r.t.Helper()
	result, err := r.subs.ReconcileSubscription(r.t.Context(), contract.ReconcileRequest{SubscriptionID: id})
	require.NoError(r.t, err)
	return result
}

// persist runs the activity as its workflow would, again as long as the error is a retryable one of the types. It returns
// how many tries it took.
func (r *rig) persist(id string, types ...string) (tries int, err error) {
	for tries = 1; ; tries++ {
		_, err = r.subs.ReconcileSubscription(r.t.Context(), contract.ReconcileRequest{SubscriptionID: id})
		if err == nil || !retryable(err, types...) {
			return tries, err
		}
	}
}

// retryable tells whether err is a retryable one of the types.
func retryable(err error, types ...string) bool {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) || app.NonRetryable() {
		return false
	}
	for _, t := range types {
		if app.Type() == t {
			return true
		}
	}
	return false
}

func (r *rig) text(sql string, args ...any) string {
	r.t.Helper()
	rows, err := r.pool.Query(r.t.Context(), sql, args...)
	require.NoError(r.t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(r.t, err)
	return strings.Join(lines, " ")
}

func (r *rig) count(sql string, args ...any) (n int) {
	r.t.Helper()
	require.NoError(r.t, r.pool.QueryRow(r.t.Context(), sql, args...).Scan(&n))
	return n
}

// entitlements prints what the organisation may use, by key.
func (r *rig) entitlements(slug string) string {
	r.t.Helper()
	return r.text(`SELECT e.resource_key || '=' || coalesce(e.numeric_value::text, e.boolean_value::text)
		FROM core.pool_entitlements e JOIN core.pools p ON p.id = e.pool_id JOIN core.organizations o ON o.id = p.organization_id
		WHERE o.slug = $1 ORDER BY e.resource_key`, slug)
}

// held prints the live positions of the organisation, with their ids when exact is set.
func (r *rig) held(slug string, exact bool) string {
	r.t.Helper()
	return r.text(`SELECT pr.slug || '×' || ps.quantity || ':' || ps.status || CASE WHEN $2 THEN ' ' || ps.id || ' ' || ps.starts_at ELSE '' END
		FROM core.positions ps JOIN core.products pr ON pr.id = ps.product_id JOIN core.pools p ON p.id = ps.pool_id
		JOIN core.organizations o ON o.id = p.organization_id WHERE o.slug = $1 AND ps.status <> 'ended' ORDER BY pr.slug, ps.id`, slug, exact)
}

// frozen prints every row that an act which changes nothing must leave as it is.
func (r *rig) frozen() string {
	r.t.Helper()
	return r.text(`SELECT 'position ' || ctid || to_jsonb(p)::text FROM core.positions p
		UNION ALL SELECT 'entitlement ' || ctid || to_jsonb(e)::text FROM core.pool_entitlements e
		UNION ALL SELECT 'ledger ' || ctid || to_jsonb(l)::text FROM core.ledger l
		UNION ALL SELECT 'item ' || ctid || to_jsonb(i)::text FROM stripe.subscription_items i
		UNION ALL SELECT 'period ' || ctid || to_jsonb(i)::text FROM stripe.subscription_periods i
		UNION ALL SELECT 'subscription ' || (to_jsonb(s) - 'version' - 'reconciled_at')::text FROM stripe.subscriptions s ORDER BY 1`)
}

func (r *rig) version(id string) int64 {
	r.t.Helper()
	v, err := billing.Version(r.t.Context(), r.db.Reader(), id)
	require.NoError(r.t, err)
	return v
}

// parked returns what is parked.
func (r *rig) parked() []billing.Parked {
	r.t.Helper()
	all, err := billing.AllParked(r.t.Context(), r.db.Reader(), billing.ParkedFilter{})
	require.NoError(r.t, err)
	return all
}

// due prints the ids of what is due.
func (r *rig) due() string {
	r.t.Helper()
	due, err := billing.ListDue(r.t.Context(), r.db.Reader(), billing.ParkedKey{}, billing.PageSize)
	require.NoError(r.t, err)
	ids := make([]string, 0, len(due))
	for _, d := range due {
		ids = append(ids, d.ObjectID)
	}
	return strings.Join(ids, " ")
}

// mapPrice maps a price as a change of the catalogue does.
func (r *rig) mapPrice(price, product string) {
	r.t.Helper()
	require.NoError(r.t, r.db.Run(r.t.Context(), lockorder.Spec{Path: "test-map", Kind: lockorder.RuleChange}, func(ctx context.Context, tx *lockorder.Tx) error {
		var id [16]byte
		if err := tx.QueryRow(ctx, `SELECT id FROM core.products WHERE slug = $1`, product).Scan(&id); err != nil {
			return err
		}
		return billing.SetPriceMapping(ctx, tx, "price_"+price, id)
	}))
}

// openTransactions counts the transactions of this process that are open in the database.
func (r *rig) openTransactions() int {
	r.t.Helper()
	return r.count(`SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend'`)
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatalf("waited in vain: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// ledgerAgrees checks that the ledger, replayed, gives what the pools hold.
func (r *rig) ledgerAgrees() {
	r.t.Helper()
	differing := r.text(`WITH last AS (SELECT DISTINCT ON (pool_id, resource_key) pool_id, resource_key, to_value FROM core.ledger ORDER BY pool_id, resource_key, id DESC)
		SELECT resource_key FROM (SELECT pool_id, resource_key, to_value FROM last WHERE to_value IS NOT NULL) l
		FULL JOIN (SELECT pool_id, resource_key, coalesce(to_jsonb(numeric_value), to_jsonb(boolean_value)) AS value FROM core.pool_entitlements) e USING (pool_id, resource_key)
		WHERE l.to_value IS DISTINCT FROM e.value`)
	require.Empty(r.t, differing, "the ledger and the entitlements disagree")
}
