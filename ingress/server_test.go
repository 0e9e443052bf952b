package ingress

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/bursarhq/bursar/workflows/contract"
)

// newRequest is a webhook with a right signature and a recorder for its answer.
func newRequest(body string) (*httptest.ResponseRecorder, *http.Request) {
	req := httptest.NewRequest(http.MethodPost, "/webhooks/stripe", strings.NewReader(body))
	req.Header.Set("Stripe-Signature", sign(body, current, time.Now()))
	return httptest.NewRecorder(), req
}

// serve runs the server on a real listener and returns the function that ends its context, and its result.
func serve(t *testing.T, r *rig) (end context.CancelFunc, result <-chan error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r.url = "http://" + listener.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, listener) }()
	return cancel, done
}

func wait[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(10 * time.Second):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

func TestDrainFinishesWhatIsInFlight(t *testing.T) {
	r := build(t, nil)
	r.temporal.block = make(chan struct{})
	end, result := serve(t, r)
	answered := make(chan got, 1)
	go func() {
		body := updated("sub_1")
		g, err := try(context.Background(), r.url, "POST", "/webhooks/stripe", body, sign(body, current, time.Now()))
		if err != nil {
			g.text = err.Error()
		}
		answered <- g
	}()
	wait(t, r.temporal.entered, "the signal to begin")
	end()
	// Nothing new is accepted while the old is finished.
	require.Eventually(t, func() bool {
		c, err := net.DialTimeout("tcp", strings.TrimPrefix(r.url, "http://"), time.Second)
		if err == nil {
			c.Close()
		}
		return err != nil
	}, 10*time.Second, time.Millisecond)
	select {
	case err := <-result:
		t.Fatalf("ended with a request in flight: %v", err)
	default:
	}
	close(r.temporal.block)
	g := wait(t, answered, "the answer")
	require.Equal(t, 200, g.status, g.text)
	require.NoError(t, wait(t, result, "the end"))
	require.Len(t, r.temporal.signals(), 1)
}

func TestDrainIsBounded(t *testing.T) {
	r := build(t, func(c *Config) { c.ShutdownTimeout, c.SignalTimeout = 50*time.Millisecond, time.Minute })
	r.temporal.block = make(chan struct{})
	defer close(r.temporal.block)
	end, result := serve(t, r)
	answered := make(chan error, 1)
	go func() {
		body := updated("sub_1")
		_, err := try(context.Background(), r.url, "POST", "/webhooks/stripe", body, sign(body, current, time.Now()))
		answered <- err
	}()
	wait(t, r.temporal.entered, "the signal to begin")
	end()
	require.ErrorContains(t, wait(t, result, "the end"), "the drain took longer than 50ms")
	require.Error(t, wait(t, answered, "the cut"), "a request that was cut off must not look taken")
}

// A caller that hangs up does not take its event back.
func TestHangUpDoesNotUndoTheSignal(t *testing.T) {
	r := build(t, nil)
	r.temporal.block = make(chan struct{})
	end, result := serve(t, r)
	ctx, hangUp := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		body := updated("sub_1")
		_, err := try(ctx, r.url, "POST", "/webhooks/stripe", body, sign(body, current, time.Now()))
		answered <- err
	}()
	wait(t, r.temporal.entered, "the signal to begin")
	hangUp()
	require.ErrorIs(t, wait(t, answered, "the hang-up"), context.Canceled)
	close(r.temporal.block)
	end()
	require.NoError(t, wait(t, result, "the end"))
	require.Len(t, r.temporal.signals(), 1)
}

func TestRunListens(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer busy.Close()
	r := build(t, func(c *Config) { c.Addr = busy.Addr().String() })
	require.ErrorContains(t, r.Run(t.Context()), "cannot listen on "+busy.Addr().String())

	r = build(t, func(c *Config) { c.Addr = "127.0.0.1:0" })
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- r.Run(ctx) }()
	require.Eventually(t, func() bool { return strings.Contains(r.log.String(), "ingress is listening") }, 10*time.Second, time.Millisecond)
	cancel()
	require.NoError(t, wait(t, result, "the end"))
}

func TestHealthAndReadiness(t *testing.T) {
	var down error
	r := start(t, func(c *Config) {
		c.Ready = func(ctx context.Context) error {
			if _, bounded := ctx.Deadline(); !bounded {
				return context.DeadlineExceeded
			}
			return down
		}
	})
	require.Equal(t, 200, r.do(t, "GET", "/healthz", "", "").status)
	require.Equal(t, 200, r.do(t, "GET", "/readyz", "", "").status)
	require.Equal(t, 200, r.do(t, "HEAD", "/readyz", "", "").status)
	down = errDown
	g := r.do(t, "GET", "/readyz", "", "")
	require.Equal(t, 503, g.status)
	require.NotContains(t, g.text, errDown.Error())
	require.Equal(t, 200, r.do(t, "GET", "/healthz", "", "").status)
	down = nil
	r.draining.Store(true)
	require.Equal(t, 503, r.do(t, "GET", "/readyz", "", "").status)
}

// The span of a webhook is what the signal is sent under; a caller's own trace is linked to, not joined.
func TestTraceGoesOnToTheSignal(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	tp := trace.NewTracerProvider(trace.WithSyncer(spans))
	probe := &spanProbe{tp: tp}
	r := build(t, func(c *Config) { c.TracerProvider, c.Starter = tp, probe })
	rec, req := newRequest(updated("sub_1"))
	r.ServeHTTP(rec, req)
	require.Equal(t, 200, rec.Code)
	got := spans.GetSpans()
	require.Len(t, got, 2)
	require.Equal(t, "signal", got[0].Name)
	require.Equal(t, "POST /webhooks/stripe", got[1].Name)
	require.Equal(t, got[1].SpanContext.SpanID(), got[0].Parent.SpanID())
	attrs := map[string]string{}
	for _, a := range got[1].Attributes {
		attrs[string(a.Key)] = a.Value.Emit()
		require.NotContains(t, a.Value.Emit(), email)
	}
	require.Equal(t, "sub_1", attrs["bursar.subscription_id"])
	require.Equal(t, "signalled", attrs["bursar.outcome"])
}

// spanProbe makes a span where the signal would be sent.
type spanProbe struct{ tp *trace.TracerProvider }

func (p *spanProbe) SignalReconcile(ctx context.Context, _ string, _ contract.ReconcileSignal) error {
	_, span := p.tp.Tracer("probe").Start(ctx, "signal")
	span.End()
	return nil
}

func TestConfigNamesAllProblems(t *testing.T) {
	_, err := New(Config{Secrets: []string{"whsec_short", "whsec_0123456789 abcdef"}, Tolerance: -1, SignalTimeout: -1, ShutdownTimeout: -1, RetryAfter: -1})
	for _, want := range []string{"number 1 is shorter", "number 2 holds a space", "webhook tolerance", "signal time-out", "shutdown time-out", "retry-after", "starter", "readiness"} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "0123456789")
	require.ErrorContains(t, Config{}.Validate(), "none is set")
}
