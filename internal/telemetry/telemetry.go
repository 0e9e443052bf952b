package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
)

// flushTimeout bounds the last export: a collector that is gone must not hold up the end of a process.
const flushTimeout = 5 * time.Second

// asksFor tells whether the environment asks for a signal, TRACES or METRICS.
func asksFor(signal string) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_"+signal+"_EXPORTER") == "none" {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
}

// Setup makes the process export its traces and metrics, where the environment asks for them, under a service name such as
// "bursar-worker". The function it returns sends what is left and stops; it takes a few seconds at most, may be called
// twice, and is never nil.
func Setup(ctx context.Context, service string) (shutdown func(context.Context) error, err error) {
	otel.SetTextMapPropagator(propagation.TraceContext{})
	none := func(context.Context) error { return nil }
	if !TracesEnabled() && !MetricsEnabled() {
		return none, nil
	}
	res, err := describe(ctx, service)
	if err != nil {
		return none, err
	}
	var stops []func(context.Context) error
	if TracesEnabled() {
		provider, err := newTracerProvider(ctx, res)
		if err != nil {
			return none, err
		}
		otel.SetTracerProvider(provider)
		stops = append(stops, provider.Shutdown)
	}
	if MetricsEnabled() {
		provider, err := newMeterProvider(ctx, res)
		if err != nil {
			return none, errors.Join(err, stop(ctx, stops))
		}
		otel.SetMeterProvider(provider)
		stops = append(stops, provider.Shutdown)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		slog.Warn("telemetry: something could not be exported", "error", err)
	}))
	return func(ctx context.Context) error { return stop(ctx, stops) }, nil
}

// describe is what every span and measurement says of its process. What the environment says goes before the rest. Each
// process has an instance's id, or the counters of two workers on one host would be taken for one's.
func describe(ctx context.Context, service string) (*resource.Resource, error) {
	res, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithHost(),
		resource.WithService(),
		resource.WithAttributes(attribute.String("service.name", service), attribute.String("service.version", Version())),
		resource.WithFromEnv(),
	)
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("telemetry: OTEL_RESOURCE_ATTRIBUTES or OTEL_SERVICE_NAME cannot be read: %w", err)
	}
	return res, nil
}

// stop sends what is left, of each side by side. The caller's context has often ended by now: the flush has a bound of its
// own.
func stop(ctx context.Context, stops []func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	errs := make([]error, len(stops))
	var all sync.WaitGroup
	for i, shutdown := range stops {
		all.Go(func() {
			if err := shutdown(ctx); !errors.Is(err, sdkmetric.ErrReaderShutdown) { // which says that it was stopped before
				errs[i] = err
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("telemetry: what was left could not be sent: %w", err)
	}
	return nil
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
