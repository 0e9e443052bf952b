package stripeapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/bursarhq/bursar/internal/stripeapi"
	"github.com/bursarhq/bursar/internal/stripeapi/standin"
)

const key = "sk_test_standin0000000000000000"

// rig is a client of a running stand-in that has one product with a monthly price.
type rig struct {
	*stripeapi.Client
	fake  *standin.Server
	price string
	prod  string
}

func start(t *testing.T, cfg stripeapi.Config, opts standin.Options) *rig {
	t.Helper()
	s := standin.New(opts)
	url, err := s.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(s.Close)
	cfg.BaseURL = url
	if cfg.Key == "" {
		cfg.Key = key
	}
	require.NoError(t, cfg.Validate())
	c := stripeapi.New(cfg)
	t.Cleanup(c.Close)
	p := s.PutProduct(standin.Product{Name: "Membership"})
	price, err := s.PutPrice(standin.Price{Product: p.ID, Interval: "month", UnitAmount: 500})
	require.NoError(t, err)
	return &rig{c, s, price.ID, p.ID}
}

// put stores a subscription with n items.
func (r *rig) put(t *testing.T, n int) standin.Subscription {
	t.Helper()
	sub := standin.Subscription{Customer: "cus_1"}
	for range n {
		sub.Items = append(sub.Items, standin.Item{Price: r.price, Quantity: 1})
	}
	sub, err := r.fake.PutSubscription(sub)
	require.NoError(t, err)
	return sub
}

func TestSubscriptionHasAllItems(t *testing.T) {
	r := start(t, stripeapi.Config{}, standin.Options{})
	for _, n := range []int{1, 10, 11, 250} {
		sub := r.put(t, n)
		got, err := r.Subscription(t.Context(), sub.ID)
		require.NoError(t, err)
		require.Len(t, got.Items.Data, n)
		require.False(t, got.Items.HasMore)
		for i, it := range got.Items.Data {
			require.Equal(t, sub.Items[i].ID, it.ID)
			require.Equal(t, r.prod, it.Price.Product.ID)
		}
	}
	_, err := r.Subscription(t.Context(), "")
	require.Error(t, err)
}

func TestCheckoutSession(t *testing.T) {
	r := start(t, stripeapi.Config{}, standin.Options{})
	made, err := r.API().CheckoutSessions.New(&stripe.CheckoutSessionParams{Mode: stripe.String("subscription"),
		SuccessURL: stripe.String("https://example.org"), ClientReferenceID: stripe.String("org"),
		LineItems: []*stripe.CheckoutSessionLineItemParams{{Price: &r.price}}})
	require.NoError(t, err)
	subID, err := r.fake.CompleteCheckout(made.ID)
	require.NoError(t, err)
	got, err := r.CheckoutSession(t.Context(), made.ID)
	require.NoError(t, err)
	require.Equal(t, "org", got.ClientReferenceID)
	require.Equal(t, subID, got.Subscription.ID)
	_, err = r.CheckoutSession(t.Context(), "cs_test_gone")
	require.True(t, stripeapi.IsNotFound(err))
}

func TestErrorKinds(t *testing.T) {
	r := start(t, stripeapi.Config{}, standin.Options{})
	sub := r.put(t, 1)
	get := func(id string) error {
		_, err := r.Subscription(t.Context(), id)
		return err
	}
	kinds := func(err error) [3]bool {
		require.Error(t, err)
		require.NotContains(t, err.Error(), key)
		return [3]bool{stripeapi.IsNotFound(err), stripeapi.IsRateLimited(err), stripeapi.IsAuth(err)}
	}
	err := get("sub_gone")
	require.Equal(t, [3]bool{true, false, false}, kinds(err))
	require.ErrorContains(t, err, `retrieve subscription "sub_gone": No such subscription`)
	require.ErrorContains(t, err, "request req_")
	require.True(t, stripeapi.IsNotFound(fmt.Errorf("wrapped: %w", err)))

	r.fake.FailNextRetryAfter(1, 429, 7*time.Second)
	err = get(sub.ID)
	require.Equal(t, [3]bool{false, true, false}, kinds(err))
	require.Equal(t, 7*time.Second, stripeapi.RetryAfter(err))
	for _, status := range []int{401, 403} {
		r.fake.FailNext(1, status)
		require.Equal(t, [3]bool{false, false, true}, kinds(get(sub.ID)))
	}
	for _, status := range []int{400, 409, 500, 503} {
		r.fake.FailNext(1, status)
		require.Equal(t, [3]bool{}, kinds(get(sub.ID)))
	}
	require.NoError(t, get(sub.ID))
	require.Zero(t, stripeapi.RetryAfter(context.Canceled))
	require.False(t, stripeapi.IsNotFound(nil))
}

// serve answers every request the same way.
func serve(t *testing.T, status int, body string, header ...string) *stripeapi.Client {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	return stripeapi.New(stripeapi.Config{Key: key, BaseURL: s.URL})
}

// What is not Stripe's answer is never taken for "not found", nor for a subscription, and none of it is repeated.
func TestStrangeAnswersAreTransient(t *testing.T) {
	for name, c := range map[string]*stripeapi.Client{
		"proxy page":      serve(t, 404, "<html>member@example.org</html>"),
		"unknown address": serve(t, 404, `{"error":{"type":"invalid_request_error","message":"Unrecognized request URL"}}`),
		"empty object":    serve(t, 200, `{}`),
		"another object":  serve(t, 200, `{"id":"sub_2","object":"subscription","status":"active","items":{"data":[]}}`),
		"no items":        serve(t, 200, `{"id":"sub_1","object":"subscription","status":"active"}`),
		"cut":             serve(t, 200, `{"id":"sub_1","email":"member@example.org"`),
		"redirect":        serve(t, 302, "", "Location", "https://example.org/"),
		"lock time-out":   serve(t, 429, `{"error":{"type":"invalid_request_error","code":"lock_timeout","message":"busy"}}`),
		"echo of the key": serve(t, 400, `{"error":{"type":"invalid_request_error","message":"you sent `+key+`"}}`),
		"endless pages":   serve(t, 200, `{"id":"sub_1","object":"subscription","status":"active","items":{"has_more":true,"data":[]},"has_more":true,"data":[]}`),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.Subscription(t.Context(), "sub_1")
			require.Error(t, err)
			require.False(t, stripeapi.IsNotFound(err) || stripeapi.IsAuth(err) || stripeapi.IsRateLimited(err), err)
			require.NotContains(t, err.Error(), key)
			require.NotContains(t, err.Error(), "member@example.org")
		})
	}
}

func TestTimeoutsAndCancellation(t *testing.T) {
	r := start(t, stripeapi.Config{Timeout: 60 * time.Millisecond, MaxRetries: 5}, standin.Options{})
	sub := r.put(t, 1)
	r.fake.Hang(time.Hour)
	began := time.Now()
	_, err := r.Subscription(t.Context(), sub.ID)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "no answer within 60ms")
	require.Less(t, time.Since(began), 5*time.Second, "retries must not outlast the bound")
	require.Equal(t, 1, r.fake.Reads(sub.ID))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = r.Subscription(ctx, sub.ID)
	require.ErrorIs(t, err, context.Canceled)
}

func TestRetriesAreTheCallersChoice(t *testing.T) {
	r := start(t, stripeapi.Config{}, standin.Options{})
	sub := r.put(t, 1)
	r.fake.FailNext(1, 500)
	_, err := r.Subscription(t.Context(), sub.ID)
	require.Error(t, err)
	require.Equal(t, 1, r.fake.Reads(sub.ID))

	var log bytes.Buffer
	r = start(t, stripeapi.Config{MaxRetries: 1, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}, standin.Options{})
	sub = r.put(t, 1)
	r.fake.FailNext(1, 500)
	_, err = r.Subscription(t.Context(), sub.ID)
	require.NoError(t, err)
	require.Equal(t, 2, r.fake.Reads(sub.ID))
	require.Contains(t, log.String(), "Initiating retry")
	require.NotContains(t, log.String(), key)
	require.NotContains(t, log.String(), sub.Items[0].ID, "no body in the log")
}

func TestCallIsASpanUnderTheCallers(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	tp := trace.NewTracerProvider(trace.WithSyncer(spans))
	var propagated atomic.Bool
	base := roundTrip(func(r *http.Request) (*http.Response, error) {
		propagated.Store(propagated.Load() || r.Header.Get("Traceparent") != "" || r.Header.Get("Baggage") != "")
		return http.DefaultTransport.RoundTrip(r)
	})
	r := start(t, stripeapi.Config{TracerProvider: tp, HTTPClient: &http.Client{Transport: base}}, standin.Options{})
	sub := r.put(t, 1)
	ctx, parent := tp.Tracer("test").Start(t.Context(), "activity")
	_, err := r.Subscription(ctx, sub.ID)
	require.NoError(t, err)
	parent.End()
	got := spans.GetSpans()
	require.Len(t, got, 2)
	require.Equal(t, "stripe GET subscriptions", got[0].Name)
	require.Equal(t, parent.SpanContext().SpanID(), got[0].Parent.SpanID())
	require.False(t, propagated.Load(), "our trace context is not Stripe's business")
	text, err := json.Marshal(got)
	require.NoError(t, err)
	require.NotContains(t, string(text), key)

	// An id without a digit is one too.
	spans.Reset()
	_, err = r.Subscription(t.Context(), "sub_tiBFEkzXynbvDEacphamVhkA")
	require.Error(t, err)
	require.Equal(t, "stripe GET subscriptions", spans.GetSpans()[0].Name)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestLivemodeAndValidation(t *testing.T) {
	for k, live := range map[string]bool{"sk_test_x": false, "rk_test_x": false, "sk_live_x": true, "rk_live_x": true} {
		cfg := stripeapi.Config{Key: k}
		require.NoError(t, cfg.Validate())
		require.Equal(t, live, stripeapi.New(cfg).Livemode())
	}
	for _, cfg := range []stripeapi.Config{
		{}, {Key: "pk_test_x"}, {Key: "sk_test_a b"}, {Key: "sk_test_a\n"},
		{Key: key, Timeout: -1}, {Key: key, MaxRetries: -1},
		{Key: key, BaseURL: "http://stripe.example.org"}, {Key: key, BaseURL: "nonsense"}, {Key: key, BaseURL: "https://u:p@example.org"},
	} {
		err := cfg.Validate()
		require.Error(t, err)
		require.NotContains(t, err.Error(), key)
		_, err = stripeapi.New(cfg).Subscription(t.Context(), "sub_1")
		require.True(t, stripeapi.IsAuth(err), "%v", err)
		if cfg.Key != "" {
			require.NotContains(t, err.Error(), strings.TrimSpace(cfg.Key))
		}
	}
	require.NoError(t, stripeapi.Config{Key: key, BaseURL: "http://[::1]:12111"}.Validate())
}
