package telemetry_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/bursarhq/bursar/internal/telemetry"
	"github.com/bursarhq/bursar/internal/telemetry/otlptest"
)

// clear makes the environment one without any OpenTelemetry setting, and puts the global provider back at the end.
func clear(t *testing.T) {
	for _, name := range []string{
		"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
		"OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER",
		"OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_METRIC_EXPORT_INTERVAL", "OTEL_METRICS_EXEMPLAR_FILTER",
	} {
		t.Setenv(name, "")
	}
	tracers, meters := otel.GetTracerProvider(), otel.GetMeterProvider()
	t.Cleanup(func() { otel.SetTracerProvider(tracers); otel.SetMeterProvider(meters) })
}

func TestASpanIsExported(t *testing.T) {
	clear(t)
	receiver := otlptest.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	require.True(t, telemetry.TracesEnabled())
	ctx, cancel := context.WithCancel(t.Context())
	shutdown, err := telemetry.Setup(ctx, "bursar-worker")
	require.NoError(t, err)
	_, span := otel.Tracer("test").Start(ctx, "work")
	span.End()
	cancel() // a process that is told to stop still sends what it has
	require.NoError(t, shutdown(ctx))
	require.NoError(t, shutdown(ctx), "twice is fine")

	spans := receiver.Spans()
	require.Len(t, spans, 1)
	require.Equal(t, "work", spans[0].Name)
	require.Equal(t, "bursar-worker", spans[0].Service)
	require.Equal(t, telemetry.Version(), spans[0].Version)
}

func TestTheEnvironmentNamesTheService(t *testing.T) {
	clear(t)
	receiver := otlptest.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", receiver.URL+"/v1/traces")
	t.Setenv("OTEL_SERVICE_NAME", "members")
	shutdown, err := telemetry.Setup(t.Context(), "bursar-worker")
	require.NoError(t, err)
	_, span := otel.Tracer("test").Start(t.Context(), "work")
	span.End()
	require.NoError(t, shutdown(t.Context()))
	require.Len(t, receiver.Spans(), 1)
	require.Equal(t, "members", receiver.Spans()[0].Service)
}

func TestWithoutAnEndpointNothingIsCollected(t *testing.T) {
	for name, set := range map[string]map[string]string{
		"no endpoint": nil,
		"disabled":    {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
		"no exporter": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"},
	} {
		t.Run(name, func(t *testing.T) {
			clear(t)
			for k, v := range set {
				t.Setenv(k, v)
			}
			otel.SetTracerProvider(noop.NewTracerProvider())
			otel.SetMeterProvider(noopmetric.NewMeterProvider())
			require.False(t, telemetry.TracesEnabled())
			require.False(t, telemetry.MetricsEnabled())
			require.Nil(t, telemetry.TemporalMetrics())
			shutdown, err := telemetry.Setup(t.Context(), "bursar-worker")
			require.NoError(t, err)
			_, span := otel.Tracer("test").Start(t.Context(), "work")
			require.False(t, span.IsRecording())
			counter, err := otel.Meter("test").Int64Counter("work")
			require.NoError(t, err)
			require.False(t, counter.Enabled(t.Context()))
			require.NoError(t, shutdown(t.Context()))
		})
	}
}

// A collector that takes connections and never answers must not hold up the end of a process.
func TestTheLastFlushIsBounded(t *testing.T) {
	clear(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { silent.Close() })
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+silent.Addr().String())
	shutdown, err := telemetry.Setup(t.Context(), "bursar-worker")
	require.NoError(t, err)
	_, span := otel.Tracer("test").Start(t.Context(), "work")
	span.End()
	count(t, "work")
	began := time.Now()
	require.Error(t, shutdown(t.Context()))
	require.Less(t, time.Since(began), 8*time.Second)
}
