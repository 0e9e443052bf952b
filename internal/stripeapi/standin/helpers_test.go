package standin_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/client"
	"go.uber.org/goleak"

	"github.com/bursarhq/bursar/internal/stripeapi/standin"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreAnyFunction("internal/poll.runtime_pollWait"))
}

const testKey = "sk_test_standin0000000000000000"

// rig is a running stand-in with the real client bound to it.
type rig struct {
	*standin.Server
	api *client.API
	url string
}

func start(t *testing.T, opts standin.Options) *rig {
	t.Helper()
	s := standin.New(opts)
	url, err := s.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return &rig{s, stripeClient(url, testKey), url}
}

// stripeClient is the official client with nothing of Bursar's around it.
func stripeClient(url, key string) *client.API {
	return client.New(key, stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL: stripe.String(url), MaxNetworkRetries: stripe.Int64(0), HTTPClient: &http.Client{Timeout: 10 * time.Second},
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull}, EnableTelemetry: stripe.Bool(false),
	}))
}

// plans are a product with a monthly, another monthly, and a yearly price.
type plans struct{ product, basic, pro, yearly, once string }

func (r *rig) plans(t *testing.T) plans {
	t.Helper()
	p := r.PutProduct(standin.Product{Name: "Membership"})
	made := plans{product: p.ID}
	for _, x := range []struct {
		id       *string
		amount   int64
		interval string
	}{{&made.basic, 500, "month"}, {&made.pro, 1500, "month"}, {&made.yearly, 15000, "year"}, {&made.once, 700, ""}} {
		price, err := r.PutPrice(standin.Price{Product: p.ID, UnitAmount: x.amount, Interval: x.interval})
		require.NoError(t, err)
		*x.id = price.ID
	}
	return made
}

// subscribe creates a subscription of a new customer to the prices through the API.
func (r *rig) subscribe(t *testing.T, prices ...string) *stripe.Subscription {
	t.Helper()
	c := r.PutCustomer(standin.Customer{Email: "ada@example.org"})
	params := &stripe.SubscriptionParams{Customer: stripe.String(c.ID)}
	for _, p := range prices {
		params.Items = append(params.Items, &stripe.SubscriptionItemsParams{Price: stripe.String(p)})
	}
	sub, err := r.api.Subscriptions.New(params)
	require.NoError(t, err)
	return sub
}

func (r *rig) types() []string {
	var out []string
	for _, e := range r.Events() {
		out = append(out, e.Type)
	}
	return out
}

// refused asserts that err is Stripe's error with the status and code.
func refused(t *testing.T, err error, status int, code string) *stripe.Error {
	t.Helper()
	se, ok := errors.AsType[*stripe.Error](err)
	require.True(t, ok, "not an error object: %v", err)
	require.Equal(t, status, se.HTTPStatusCode, se.Msg)
	require.Equal(t, code, string(se.Code), se.Msg)
	require.NotEmpty(t, se.RequestID)
	return se
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
