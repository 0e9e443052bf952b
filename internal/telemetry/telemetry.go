package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	temporalotel "go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/interceptor"
)

// flushTimeout bounds the last export: a collector that is gone must not hold up the end of a process.
const flushTimeout = 5 * time.Second

// Enabled tells whether the environment asks for traces.
func Enabled() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// Setup makes the process export its traces, when the environment asks for it, under a service name such as
// "bursar-worker". The function it returns sends what is left and stops; it takes a few seconds at most, may be called
// twice, and is never nil.
func Setup(ctx context.Context, service string) (shutdown func(context.Context) error, err error) {
	otel.SetTextMapPropagator(propagation.TraceContext{})
	none := func(context.Context) error { return nil }
	if !Enabled() {
		return none, nil
	}
	// The service's name and version come first: what the environment says goes before them.
	res, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", service), attribute.String("service.version", Version())),
		resource.WithFromEnv(),
	)
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return none, fmt.Errorf("traces: OTEL_RESOURCE_ATTRIBUTES or OTEL_SERVICE_NAME cannot be read: %w", err)
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return none, fmt.Errorf("traces: the exporter cannot be made; check the OTEL_EXPORTER_OTLP_ variables: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithBatcher(exporter))
	otel.SetTracerProvider(provider)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		slog.Warn("traces: something could not be exported", "error", err)
	}))
	return func(ctx context.Context) error {
		// The caller's context has often ended by now; the flush has a bound of its own.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			return fmt.Errorf("traces: the last spans could not be sent: %w", err)
		}
		return nil
	}, nil
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

// ConfigurePool makes each statement of a pool a span of the trace it runs in. It fits lockorder.Options.Configure. Outside a
// trace it costs nothing.
func ConfigurePool(config *pgxpool.Config) {
	config.ConnConfig.Tracer = otelpgx.NewTracer(otelpgx.WithDisableConnectionDetailsInAttributes())
}

// Version is the version of the running program: the module's, or the revision it was built from, or "devel".
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "devel"
}
