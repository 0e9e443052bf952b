package telemetry

import (
	"context"
	"fmt"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	temporalotel "go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/interceptor"
)

// TracesEnabled tells whether the environment asks for traces.
func TracesEnabled() bool { return asksFor("TRACES") }

func newTracerProvider(ctx context.Context, res *resource.Resource) (*sdktrace.TracerProvider, error) {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("traces: the exporter cannot be made; check the OTEL_EXPORTER_OTLP_ variables: %w", err)
	}
	return sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithBatcher(exporter)), nil
}

// TemporalInterceptor carries the trace of a client's call through signals, updates, workflows and activities. It goes into the
// client's options; workers of that client use it too.
func TemporalInterceptor() (interceptor.Interceptor, error) {
	tracing, err := temporalotel.NewTracingInterceptor(temporalotel.TracerOptions{
		TextMapPropagator: propagation.TraceContext{},
		DisableBaggage:    true,
		// A header that another program wrote must not fail a signal.
		AllowInvalidParentSpans: true,
	})
	if err != nil {
		return nil, fmt.Errorf("traces: the Temporal interceptor cannot be made: %w", err)
	}
	return tracing, nil
}

// ConfigurePool makes each statement of a pool a span of the trace it runs in, and counts its time by kind of operation. It
// fits lockorder.Options.Configure. Where neither traces nor metrics are asked for it costs nothing.
func ConfigurePool(config *pgxpool.Config) {
	config.ConnConfig.Tracer = otelpgx.NewTracer(otelpgx.WithDisableConnectionDetailsInAttributes())
}
