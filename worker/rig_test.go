package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/db"
	"github.com/bursarhq/bursar/internal/devstack"
	"github.com/bursarhq/bursar/internal/locktest"
	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/internal/stripeapi/standin"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows"
	"github.com/bursarhq/bursar/workflows/contract"
)

// temporalServer is one real Temporal server for the tests of this package. It starts without any search attribute.
var temporalServer = sync.OnceValues(func() (*devstack.Temporal, error) {
	return devstack.StartTemporal(context.Background(), devstack.TemporalOptions{
		Progress: func(line string) { fmt.Fprintln(os.Stderr, line) },
	})
})

func TestMain(m *testing.M) {
	lockOptions = watchedOptions
	if os.Getenv(workerProcess) != "" {
		if err := errors.Join(runWorkerProcess(), locktest.EndProcess()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	locktest.Main(m, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		server, err := temporalServer()
		if err != nil {
			return nil // the tests have told
		}
		return server.Stop(ctx)
	})
}

// watchedOptions are the product's, seen by the order graph.
func watchedOptions() lockorder.Options { return locktest.Watched(db.LockOptions()) }

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// namespace makes a namespace of the test's own on the real server and returns how to reach it.
func namespace(t *testing.T, name string) TemporalConfig {
	t.Helper()
	server, err := temporalServer()
	require.NoError(t, err)
	config := TemporalConfig{Address: server.Address(), Namespace: name}
	namespaces, err := client.NewNamespaceClient(client.Options{HostPort: server.Address()})
	require.NoError(t, err)
	defer namespaces.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, namespaces.Register(ctx, &workflowservice.RegisterNamespaceRequest{
		Namespace: name, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	}))
	c := dial(t, config)
	require.Eventually(t, func() bool {
		_, err := c.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: name})
		return err == nil
	}, 30*time.Second, 100*time.Millisecond, "the namespace comes into use")
	return config
}

func dial(t *testing.T, config TemporalConfig) client.Client {
	t.Helper()
	c, err := config.Dial(t.Context(), quiet())
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

const catalogue = `
INSERT INTO core.resource_keys (key, kind, aggregation) VALUES ('sites', 'numeric', 'sum');
INSERT INTO core.entitlement_sets (slug, name) SELECT s, s FROM unnest(ARRAY['free', 'gold']) s;
INSERT INTO core.set_rules (set_id, resource_key, kind, numeric_value)
	SELECT id, 'sites', 'numeric', CASE slug WHEN 'free' THEN 1 ELSE 20 END FROM core.entitlement_sets;
INSERT INTO core.products (slug, name) SELECT s, initcap(s) FROM unnest(ARRAY['free', 'gold']) s;
INSERT INTO core.product_sets (product_id, set_id) SELECT p.id, e.id FROM core.products p JOIN core.entitlement_sets e USING (slug);
INSERT INTO core.ladders (slug, name) VALUES ('membership', 'Membership');
INSERT INTO core.tiers (product_id, ladder_id, rank)
	SELECT p.id, l.id, CASE p.slug WHEN 'free' THEN 0 ELSE 1 END FROM core.ladders l, core.products p;
INSERT INTO core.organization_types (slug, name, default_product_id) SELECT 'member', 'Member', id FROM core.products WHERE slug = 'free';
INSERT INTO stripe.price_mappings (stripe_price_id, product_id) SELECT 'price_gold', id FROM core.products WHERE slug = 'gold';`

// rig is a running worker with everything around it: its own database and namespace, a stand-in for Stripe.
type rig struct {
	t        *testing.T
	config   Config
	database *pgtest.DB
	stripe   *standin.Server
	db       *lockorder.DB // the test's own, not the worker's
	operator *activities.Operator
	starter  workflows.Starter
	temporal client.Client

	// stop asks the worker to end; ended is its error once it has.
	stop  context.CancelFunc
	ended chan error
}

func newRig(t *testing.T, name string) *rig {
	t.Helper()
	r := &rig{t: t, database: pgtest.New(t), stripe: standin.New(standin.Options{})}
	url, err := r.stripe.Start(context.Background())
	require.NoError(t, err)
	t.Cleanup(r.stripe.Close)
	options := watchedOptions()
	options.MaxConns = 4
	r.db, err = lockorder.Open(t.Context(), r.database.URL(), options)
	require.NoError(t, err)
	t.Cleanup(r.db.Close)
	conn := r.database.Conn(t)
	_, err = conn.Exec(t.Context(), catalogue)
	require.NoError(t, err)
	r.stripe.PutProduct(standin.Product{ID: "prod_gold", Name: "Gold"})
	_, err = r.stripe.PutPrice(standin.Price{ID: "price_gold", Product: "prod_gold", UnitAmount: 100, Interval: "month"})
	require.NoError(t, err)

	r.config, err = LoadConfig(func(name string) string {
		return map[string]string{
			"DATABASE_URL": r.database.URL(), "STRIPE_API_KEY": "sk_test_4eC39HqLyjWDarjtT1zdp7dc", "STRIPE_API_URL": url,
			"BURSAR_PARKED_RETRY_INTERVAL": "1s", "BURSAR_SHUTDOWN_TIMEOUT": "10s",
		}[name]
	})
	require.NoError(t, err)
	r.config.Temporal = namespace(t, name)
	r.temporal = dial(t, r.config.Temporal)
	r.operator = &activities.Operator{DB: r.db}
	r.starter = workflows.Starter{Client: r.temporal}
	return r
}

// start runs the worker until stop, or the test's end, and returns once it is ready.
func (r *rig) start(options Options) {
	r.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r.stop, r.ended = stop, make(chan error, 1)
	ready := make(chan struct{})
	options.Ready = func() { close(ready) }
	options.Logger = quiet()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.ended <- Run(ctx, r.config, options)
	}()
	r.t.Cleanup(func() { stop(); <-done })
	select {
	case <-ready:
	case err := <-r.ended:
		r.t.Fatalf("the worker did not start: %v", err)
	case <-time.After(90 * time.Second):
		r.t.Fatal("the worker is not ready after 90 s")
	}
}

// awaitEnd returns the worker's error once it has ended.
func (r *rig) awaitEnd(within time.Duration) error {
	r.t.Helper()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(within):
		r.t.Fatalf("the worker has not ended within %s", within)
		return errors.New("unreachable")
	}
}

func (r *rig) organization(slug string) {
	r.t.Helper()
	_, err := r.operator.CreateOrganization(r.t.Context(), activities.NewOrganizationRequest{Slug: slug, Name: slug, Type: "member"})
	require.NoError(r.t, err)
}

func (r *rig) customer() string { return r.stripe.PutCustomer(standin.Customer{Name: "Acme"}).ID }

func (r *rig) link(customer, slug string) {
	r.t.Helper()
	_, err := r.operator.LinkCustomer(r.t.Context(), activities.LinkCustomerRequest{Customer: customer, Organization: slug})
	require.NoError(r.t, err)
}

func (r *rig) subscribe(customer string) string {
	r.t.Helper()
	made, err := r.stripe.PutSubscription(standin.Subscription{Customer: customer, Items: []standin.Item{{Price: "price_gold", Quantity: 1}}})
	require.NoError(r.t, err)
	return made.ID
}

// sites is what the organisation may use of the key sites.
func (r *rig) sites(slug string) (n int) {
	r.t.Helper()
	require.NoError(r.t, r.db.Reader().QueryRow(r.t.Context(), `SELECT coalesce(sum(e.numeric_value), 0)::int FROM core.pool_entitlements e
		JOIN core.pools p ON p.id = e.pool_id JOIN core.organizations o ON o.id = p.organization_id WHERE o.slug = $1`, slug).Scan(&n))
	return n
}

// outcome waits until the subscription's workflow has closed and returns what it did last.
func (r *rig) outcome(subscription string) contract.ReconcileResult {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 60*time.Second)
	defer cancel()
	var result contract.SubscriptionReconcileResult
	require.NoError(r.t, r.temporal.GetWorkflow(ctx, contract.SubscriptionWorkflowID(subscription), "").Get(ctx, &result))
	return result.Last
}

// count counts workflows by a visibility query.
func (r *rig) count(query string) int64 {
	counted, err := r.temporal.CountWorkflow(r.t.Context(), &workflowservice.CountWorkflowExecutionsRequest{Query: query})
	if err != nil {
		r.t.Logf("count %s: %v", query, err)
		return -1
	}
	return counted.GetCount()
}
