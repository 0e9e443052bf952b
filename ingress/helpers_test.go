package ingress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79/webhook"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/bursarhq/bursar/workflows/contract"
)

const (
	current  = "whsec_current_0123456789abcdef"
	previous = "whsec_previous_0123456789abcdef"
	email    = "ada.member@example.org"
)

// signalled is one signal as Temporal would get it.
type signalled struct {
	subscription string
	contract.ReconcileSignal
}

// temporal stands for Temporal at the interface: it keeps what it is given, fails when told to, and blocks when told to.
type temporal struct {
	mu      sync.Mutex
	got     []signalled
	err     error
	block   chan struct{} // a signal waits until it is closed, or its context ends
	entered chan struct{} // gets one for each signal that waits
}

func (s *temporal) SignalReconcile(ctx context.Context, sub string, sig contract.ReconcileSignal) error {
	s.mu.Lock()
	block, err := s.block, s.err
	s.mu.Unlock()
	if block != nil {
		s.entered <- struct{}{}
		select {
		case <-block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, signalled{sub, sig})
	return nil
}

func (s *temporal) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *temporal) signals() []signalled {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]signalled(nil), s.got...)
}

// counts is a meter provider that keeps the counter's values.
type counts struct {
	noop.MeterProvider
	mu sync.Mutex
	n  map[string]int64
}

func (c *counts) Meter(string, ...metric.MeterOption) metric.Meter { return counterMeter{c: c} }

type counterMeter struct {
	noop.Meter
	c *counts
}

func (m counterMeter) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return counterInt{c: m.c, name: name}, nil
}

type counterInt struct {
	noop.Int64Counter
	c    *counts
	name string
}

func (i counterInt) Add(_ context.Context, n int64, opts ...metric.AddOption) {
	if i.name != "bursar.webhooks" {
		return
	}
	set := metric.NewAddConfig(opts).Attributes()
	kind, _ := set.Value(attribute.Key("type"))
	what, _ := set.Value(attribute.Key("outcome"))
	i.c.mu.Lock()
	defer i.c.mu.Unlock()
	i.c.n[kind.AsString()+"/"+what.AsString()] += n
}

func (c *counts) get(key string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[key]
}

// syncBuffer is a log's text that may be written and read at once.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// rig is a server behind real HTTP.
type rig struct {
	*Server
	url      string
	temporal *temporal
	counts   *counts
	log      *syncBuffer
}

func start(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	r := build(t, change)
	ts := httptest.NewServer(r.Server)
	t.Cleanup(ts.Close)
	r.url = ts.URL
	return r
}

func build(t testing.TB, change func(*Config)) *rig {
	t.Helper()
	r := &rig{temporal: &temporal{entered: make(chan struct{}, 1000)}, counts: &counts{n: map[string]int64{}}, log: &syncBuffer{}}
	cfg := Config{Secrets: []string{current, previous}, Starter: r.temporal, MeterProvider: r.counts,
		Ready:  func(context.Context) error { return nil },
		Logger: slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	require.NoError(t, err)
	r.Server = s
	return r
}

// sign returns the header for a body signed at a time.
func sign(body, secret string, at time.Time) string {
	return webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: []byte(body), Secret: secret, Timestamp: at}).Header
}

// got is an answer.
type got struct {
	status int
	header http.Header
	answer answer
	text   string
}

func (r *rig) post(t *testing.T, body, signature string) got {
	t.Helper()
	return r.do(t, http.MethodPost, "/webhooks/stripe", body, signature)
}

// send posts a body with a right signature.
func (r *rig) send(t *testing.T, body string) got {
	t.Helper()
	return r.post(t, body, sign(body, current, time.Now()))
}

func (r *rig) do(t *testing.T, method, path, body, signature string) got {
	t.Helper()
	g, err := try(t.Context(), r.url, method, path, body, signature)
	require.NoError(t, err)
	return g
}

func try(ctx context.Context, url, method, path, body, signature string) (got, error) {
	req, err := http.NewRequestWithContext(ctx, method, url+path, strings.NewReader(body))
	if err != nil {
		return got{}, err
	}
	if signature != "" {
		req.Header.Set("Stripe-Signature", signature)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return got{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return got{}, err
	}
	g := got{status: resp.StatusCode, header: resp.Header, text: string(text)}
	if method != http.MethodHead {
		if err := json.Unmarshal(text, &g.answer); err != nil {
			return g, fmt.Errorf("the answer %q is no JSON: %w", text, err)
		}
	}
	return g, nil
}

// payload is an event of a type about an object.
func payload(kind, object string) string {
	return `{"id":"evt_1","object":"event","api_version":"2024-06-20","type":"` + kind + `","data":{"object":` + object + `}}`
}

// updated is the common event about a subscription.
func updated(id string) string {
	return payload("customer.subscription.updated", `{"id":"`+id+`","object":"subscription","metadata":{"email":"`+email+`"}}`)
}

var errDown = errors.New("connection refused")
