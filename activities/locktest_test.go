package activities_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/catalog"
	"github.com/bursarhq/bursar/internal/locktest"
	"github.com/bursarhq/bursar/internal/stripeapi"
	"github.com/bursarhq/bursar/internal/stripeapi/standin"
	"github.com/bursarhq/bursar/workflows/contract"
)

// scene makes what the acts of crash and interleaving tests find: the rig's catalogue, the stand-in at a time that stands
// still, and what the test adds. Acts run in other processes too: they know of it what is kept in the Env.
type scene struct {
	*rig
	env *locktest.Env
}

// set returns a set-up.
func set(stage func(*scene)) func(testing.TB, *locktest.Env) {
	return func(t testing.TB, e *locktest.Env) { newScene(t, e, stage) }
}

func newScene(t testing.TB, e *locktest.Env, stage func(*scene)) *scene {
	t.Helper()
	conn, err := e.Conn(t.Context())
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), catalogue)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	s := &scene{rig: &rig{t: t, db: e.DB(), stripe: standin.New(standin.Options{})}, env: e}
	s.stripe.Freeze()
	e.Set("stripe", startStripe(t, s.stripe))
	s.client = stripeapi.New(stripeConfig(e.Get("stripe")))
	s.subs, s.operator = subscriptions(e), &activities.Operator{DB: e.DB()}
	if stage != nil {
		stage(s)
	}
	return s
}

// subscribed keeps a subscription under a name.
func (s *scene) subscribed(name, customer string, prices ...string) string {
	id := s.subscribe(customer, prices...)
	s.env.Set(name, id)
	return id
}

func subscriptions(e *locktest.Env) *activities.Subscriptions {
	config := stripeConfig(e.Get("stripe"))
	config.HTTPClient = e.Client()
	return &activities.Subscriptions{DB: e.DB(), Stripe: stripeapi.New(config)}
}

// again tells which errors a workflow, or the person at a command, would answer with another try.
func again(err error) bool {
	return locktest.Busy(err) || errors.Is(err, catalog.ErrDrift) || retryable(err, activities.ErrTypeBusy, activities.ErrTypeLockTimeout, activities.ErrTypeSubscriptionMoving)
}

// reconcileOf reconciles the subscription kept under the name, led to by an event of its own.
func reconcileOf(name string) locktest.Act { return reconcileFor(name, "evt_"+name) }

func reconcileFor(name, event string) locktest.Act {
	return func(ctx context.Context, e *locktest.Env) (string, error) {
		r, err := subscriptions(e).ReconcileSubscription(ctx, contract.ReconcileRequest{
			SubscriptionID: e.Get(name), Events: []contract.ReconcileSignal{{EventID: event, EventType: "customer.subscription.updated"}},
		})
		return strings.TrimSpace(fmt.Sprintf("%s +%d ~%d -%d =%d %s", r.Outcome, r.Conferred, r.Changed, r.Ended, r.Entitlements, r.ParkedReason)), err
	}
}

func parkSubscription(ctx context.Context, e *locktest.Env) (string, error) {
	return "parked", subscriptions(e).ParkSubscription(ctx, contract.ParkRequest{
		SubscriptionID: e.Get("subscription"), Reason: "It failed for good.", Events: []contract.ReconcileSignal{{EventID: "evt_park", EventType: "invoice.paid"}},
	})
}

func linkFromCheckout(ctx context.Context, e *locktest.Env) (string, error) {
	r, err := subscriptions(e).LinkFromCheckout(ctx, contract.LinkRequest{SubscriptionID: e.Get("subscription"), CheckoutSession: e.Get("session")})
	return fmt.Sprintf("linked %v %s", r.Linked, r.Organization), err
}

// linkTo links the kept customer to an organisation. What the link frees is a hint, told from a later read, and not part of
// the outcome.
func linkTo(slug string) locktest.Act {
	return func(ctx context.Context, e *locktest.Env) (string, error) {
		r, err := (&activities.Operator{DB: e.DB()}).LinkCustomer(ctx, activities.LinkCustomerRequest{Customer: e.Get("customer"), Organization: slug})
		var elsewhere *billing.ErrLinkedElsewhere
		if errors.As(err, &elsewhere) {
			return "refused: linked to " + elsewhere.Slug, nil
		}
		return fmt.Sprintf("linked %v", r.Linked), err
	}
}

func createOrganization(ctx context.Context, e *locktest.Env) (string, error) {
	_, err := (&activities.Operator{DB: e.DB()}).CreateOrganization(ctx, activities.NewOrganizationRequest{Slug: "acme", Name: "ACME", Type: "member"})
	if errors.Is(err, entitlements.ErrExists) {
		return "exists", nil
	}
	return "made", err
}

func requestRetry(ctx context.Context, e *locktest.Env) (string, error) {
	_, err := (&activities.Operator{DB: e.DB()}).RequestRetry(ctx, activities.RetryRequest{Objects: []string{e.Get("subscription")}})
	if errors.Is(err, entitlements.ErrNotFound) {
		return "nothing is parked", nil
	}
	return "requested", err
}

func requestRetries(ctx context.Context, e *locktest.Env) (string, error) {
	_, err := (&activities.Operator{DB: e.DB()}).RequestRetry(ctx, activities.RetryRequest{All: true})
	return "requested", err
}

// requestRetriesOf asks for the subscriptions kept under the names, in that order.
func requestRetriesOf(names ...string) locktest.Act {
	return func(ctx context.Context, e *locktest.Env) (string, error) {
		var request activities.RetryRequest
		for _, name := range names {
			request.Objects = append(request.Objects, e.Get(name))
		}
		_, err := (&activities.Operator{DB: e.DB()}).RequestRetry(ctx, request)
		return "requested", err
	}
}

// postedSignals hands signals on by HTTP, as calls to what is outside.
type postedSignals struct {
	url    string
	client *http.Client
}

func (p postedSignals) SignalReconcile(ctx context.Context, id string, sig contract.ReconcileSignal) error {
	body, err := json.Marshal(sig)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/"+id, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// retryParked runs the activity as a worker does.
func retryParked(_ context.Context, e *locktest.Env) (string, error) {
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	parked := &activities.Parked{DB: e.DB(), Signaler: postedSignals{e.Get("signals"), e.Client()}}
	env.RegisterActivity(parked)
	value, err := env.ExecuteActivity(parked.RetryParked)
	if err != nil {
		return "", err
	}
	var r contract.ParkedRetryResult
	err = value.Get(&r)
	return fmt.Sprintf("%d of %d", r.Signalled, r.Due), err
}
