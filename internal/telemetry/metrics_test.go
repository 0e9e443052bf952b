package telemetry_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/bursarhq/bursar/internal/telemetry"
	"github.com/bursarhq/bursar/internal/telemetry/otlptest"
)

// count adds one to a counter of the global provider.
func count(t *testing.T, name string) {
	t.Helper()
	counter, err := otel.Meter("test").Int64Counter(name)
	require.NoError(t, err)
	counter.Add(t.Context(), 1)
}

func point(t *testing.T, r *otlptest.Receiver, name string) otlptest.Point {
	t.Helper()
	for _, p := range r.Points() {
		if p.Metric == name {
			return p
		}
	}
	t.Fatalf("no %s was received, but this: %s", name, r.MetricsText())
	return otlptest.Point{}
}

func TestAMeasurementIsExportedWithItsTrace(t *testing.T) {
	clear(t)
	receiver := otlptest.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	require.True(t, telemetry.MetricsEnabled())
	ctx, cancel := context.WithCancel(t.Context())
	shutdown, err := telemetry.Setup(ctx, "bursar-worker")
	require.NoError(t, err)
	spanCtx, span := otel.Tracer("test").Start(ctx, "work")
	took, err := otel.Meter("test").Float64Histogram("took", metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(1, 2))
	require.NoError(t, err)
	took.Record(spanCtx, 1.5)
	span.End()
	took.Record(ctx, 3) // outside a trace
	cancel()            // a process that is told to stop still sends what it has
	require.NoError(t, shutdown(ctx))
	require.NoError(t, shutdown(ctx), "twice is fine")

	p := point(t, receiver, "took")
	require.Equal(t, "bursar-worker", p.Service)
	require.NotEmpty(t, p.Instance, "two workers on one host must be told apart")
	require.Equal(t, []uint64{0, 1, 1}, p.Buckets)
	require.Equal(t, 4.5, p.Value)
	require.Len(t, p.Exemplars, 1)
	require.Equal(t, otlptest.Exemplar{Trace: span.SpanContext().TraceID().String(), Value: 1.5, Attributes: map[string]string{}}, p.Exemplars[0])
}

// Each signal has an endpoint and a switch of its own.
func TestOneSignalWithoutTheOther(t *testing.T) {
	for name, test := range map[string]struct {
		set              func(url string) map[string]string
		traces, measured bool
	}{
		"traces have the endpoint": {func(url string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": url + "/v1/traces"}
		}, true, false},
		"metrics have the endpoint": {func(url string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": url + "/v1/metrics"}
		}, false, true},
		"metrics are off": {func(url string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_METRICS_EXPORTER": "none"}
		}, true, false},
		"traces are off": {func(url string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_TRACES_EXPORTER": "none"}
		}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			clear(t)
			receiver := otlptest.Start(t)
			for k, v := range test.set(receiver.URL) {
				t.Setenv(k, v)
			}
			shutdown, err := telemetry.Setup(t.Context(), "bursar-worker")
			require.NoError(t, err)
			_, span := otel.Tracer("test").Start(t.Context(), "work")
			span.End()
			count(t, "work")
			require.NoError(t, shutdown(t.Context()))
			require.Equal(t, test.traces, len(receiver.Spans()) > 0, "traces")
			require.Equal(t, test.measured, len(receiver.Points()) > 0, "metrics")
		})
	}
}

// A caller of the webhook's door can claim any host: it must not make a series, nor stand in one.
func TestTheHostThatACallerClaimsIsNotMeasured(t *testing.T) {
	clear(t)
	receiver := otlptest.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", receiver.URL+"/v1/metrics")
	shutdown, err := telemetry.Setup(t.Context(), "bursar-ingress")
	require.NoError(t, err)
	door := otelhttp.NewHandler(http.NotFoundHandler(), "door", otelhttp.WithMeterProvider(otel.GetMeterProvider()))
	for _, host := range []string{"one.invalid", "two.invalid:81"} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/webhooks/stripe", nil)
		request.Host = host
		door.ServeHTTP(httptest.NewRecorder(), request)
	}
	require.NoError(t, shutdown(t.Context()))
	require.EqualValues(t, 2, point(t, receiver, "http.server.request.duration").Count)
	require.NotContains(t, receiver.MetricsText(), "invalid")
}

// Temporal's latencies are in seconds: in buckets for milliseconds all of them would fall into the first.
func TestTemporalsLatenciesHaveBucketsInSeconds(t *testing.T) {
	clear(t)
	receiver := otlptest.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", receiver.URL+"/v1/metrics")
	shutdown, err := telemetry.Setup(t.Context(), "bursar-worker")
	require.NoError(t, err)
	metrics := telemetry.TemporalMetrics().WithTags(map[string]string{"task_queue": "bursar"})
	metrics.Timer("temporal_activity_execution_latency").Record(30 * time.Millisecond)
	metrics.Counter("temporal_activity_execution_failed").Inc(2)
	require.NoError(t, shutdown(t.Context()))

	p := point(t, receiver, "temporal_activity_execution_latency")
	require.Equal(t, "bursar", p.Attributes["task_queue"])
	for i, n := range p.Buckets {
		if n == 1 {
			require.Equal(t, []float64{0.025, 0.05}, p.Bounds[i-1:i+1])
		}
	}
	require.EqualValues(t, 1, p.Count)
	require.Equal(t, 2.0, point(t, receiver, "temporal_activity_execution_failed").Value)
}
