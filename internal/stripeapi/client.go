package stripeapi

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/client"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// DefaultTimeout bounds one call to Stripe, its retries included, when Config.Timeout is zero. The Stripe client's own
// default, 80 s for each of three tries, would outlast any activity.
const DefaultTimeout = 15 * time.Second

// pageSize is the largest page that Stripe's list endpoints give.
const pageSize = 100

// maxPages bounds a paged read, so that a server that answers has_more for ever cannot hold a caller.
const maxPages = 1000

// Config says how to reach Stripe. Only Key is required.
type Config struct {
	// Key is the secret or restricted API key: sk_test_…, sk_live_…, rk_test_… or rk_live_….
	Key string
	// BaseURL is the root of the API, without /v1. Empty means Stripe's own. Anything else than https is accepted for
	// loopback addresses only, since the key travels with every request.
	BaseURL string
	// Timeout bounds one call, retries included. Zero means DefaultTimeout.
	Timeout time.Duration
	// MaxRetries is how often the client itself repeats a call that failed on the network or with a 5xx, within Timeout.
	// Zero means never, which suits activities: their retry policy does it.
	MaxRetries int
	// HTTPClient is used instead of a client with its own connection pool. Its transport is wrapped for tracing.
	HTTPClient *http.Client
	// Logger receives warnings and errors of the client, never a key or a body. Nil means slog.Default().
	Logger *slog.Logger
	// TracerProvider makes the spans of the calls. Nil means the global one.
	TracerProvider trace.TracerProvider
}

// Validate returns what is wrong with the configuration, naming the field, or nil. The key itself is never in the text.
func (c Config) Validate() error {
	if !livemodeKey(c.Key) && !testmodeKey(c.Key) {
		return fmt.Errorf("stripe key: must start with sk_test_, sk_live_, rk_test_ or rk_live_; copy a secret or restricted key from the Stripe dashboard")
	}
	if strings.ContainsFunc(c.Key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("stripe key: contains a space or a control character; copy it again")
	}
	if c.Timeout < 0 {
		return fmt.Errorf("stripe time-out %s: must not be negative", c.Timeout)
	}
	if c.MaxRetries < 0 {
		return fmt.Errorf("stripe retries %d: must not be negative", c.MaxRetries)
	}
	if c.BaseURL == "" {
		return nil
	}
	u, err := url.Parse(c.BaseURL)
	if err != nil || u.Host == "" {
		return fmt.Errorf("stripe base URL: not an absolute URL such as https://api.stripe.com")
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())) {
		return fmt.Errorf("stripe base URL: must be https (plain http is for loopback addresses only)")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("stripe base URL: must have no user, query or fragment")
	}
	return nil
}

// Client calls Stripe. It is safe for concurrent use.
type Client struct {
	api     *client.API
	key     string
	timeout time.Duration
	http    *http.Client
}

// New returns a client for cfg. It makes no call. A configuration that Validate refuses gives a client whose calls fail
// with that reason, so call Validate where configuration is read.
func New(cfg Config) *Client {
	timeout := cfg.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	logger := cfg.Logger
	if logger == nil {
		logger = slog.Default()
	}
	httpClient := tracedHTTPClient(cfg, timeout)
	if err := cfg.Validate(); err != nil {
		httpClient = &http.Client{Transport: refuse{err}}
	}
	backend := &stripe.BackendConfig{
		EnableTelemetry:   stripe.Bool(false),
		HTTPClient:        httpClient,
		LeveledLogger:     leveled{logger, cfg.Key},
		MaxNetworkRetries: stripe.Int64(int64(max(cfg.MaxRetries, 0))),
	}
	if cfg.BaseURL != "" {
		// All three backends get the address, so that no call of this client can reach another host by accident.
		backend.URL = stripe.String(strings.TrimRight(cfg.BaseURL, "/"))
	}
	return &Client{
		api:     client.New(cfg.Key, stripe.NewBackendsWithConfig(backend)),
		key:     cfg.Key,
		timeout: timeout,
		http:    httpClient,
	}
}

// Livemode reports whether the key is a live one, that is whether the objects it reads move real money. An object whose
// livemode differs from this must not be applied.
func (c *Client) Livemode() bool { return livemodeKey(c.key) }

// API returns the underlying Stripe client, bound to the same address, time-out and tracing, for the calls that have no
// method here. Its errors pass through Translate.
func (c *Client) API() *client.API { return c.api }

// Close releases idle connections. The client stays usable.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// call runs fn under the per-call bound and translates its error.
func call[T any](ctx context.Context, c *Client, op, id string, fn func(context.Context) (T, error)) (T, error) {
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	v, err := fn(bounded)
	if err != nil {
		var none T
		return none, c.translate(ctx, op, id, err)
	}
	return v, nil
}

func livemodeKey(key string) bool {
	return strings.HasPrefix(key, "sk_live_") || strings.HasPrefix(key, "rk_live_")
}

func testmodeKey(key string) bool {
	return strings.HasPrefix(key, "sk_test_") || strings.HasPrefix(key, "rk_test_")
}

// tracedHTTPClient returns an HTTP client that makes a span for each request, follows no redirect (the API gives none,
// and one would carry the request elsewhere) and sends none of our trace context or baggage to Stripe.
func tracedHTTPClient(cfg Config, timeout time.Duration) *http.Client {
	c := &http.Client{}
	if cfg.HTTPClient != nil {
		copied := *cfg.HTTPClient
		c = &copied
	}
	if c.Transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 32
		c.Transport = t
	}
	opts := []otelhttp.Option{
		otelhttp.WithPropagators(propagation.NewCompositeTextMapPropagator()),
		otelhttp.WithSpanNameFormatter(spanName),
	}
	if cfg.TracerProvider != nil {
		opts = append(opts, otelhttp.WithTracerProvider(cfg.TracerProvider))
	}
	c.Transport = otelhttp.NewTransport(c.Transport, opts...)
	c.Timeout = timeout
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c
}

// inIDsOnly tells the characters that Stripe's names of resources do not have, and its ids do: digits and capitals.
func inIDsOnly(r rune) bool { return r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' }

// spanName names a span by method and resource, without ids: "stripe GET subscriptions".
func spanName(_ string, r *http.Request) string {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	var words []string
	for i, p := range parts {
		if (i == 0 && p == "v1") || strings.ContainsFunc(p, inIDsOnly) || p == "" {
			continue
		}
		words = append(words, p)
	}
	return "stripe " + r.Method + " " + strings.Join(words, "/")
}
