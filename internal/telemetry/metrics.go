package telemetry

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.temporal.io/sdk/client"
	temporalotel "go.temporal.io/sdk/contrib/opentelemetry"
)

// MetricsEnabled tells whether the environment asks for metrics.
func MetricsEnabled() bool { return asksFor("METRICS") }

// newMeterProvider exports every minute, or as OTEL_METRIC_EXPORT_INTERVAL says. Measurements made inside a sampled span keep
// its trace as an exemplar, which is the SDK's default; OTEL_METRICS_EXEMPLAR_FILTER changes it.
func newMeterProvider(ctx context.Context, res *resource.Resource) (*sdkmetric.MeterProvider, error) {
	exporter, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("metrics: the exporter cannot be made; check the OTEL_EXPORTER_OTLP_ variables: %w", err)
	}
	return sdkmetric.NewMeterProvider(append(Views(), sdkmetric.WithResource(res),
		sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter)))...), nil
}

// latencies are buckets for what Temporal measures, in seconds: from a poll that finds its task to a workflow that waits for
// days. The SDK's own are meant for milliseconds.
var latencies = []float64{0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600, 86400}

// Views are the options that make the libraries' metrics fit: Temporal's latencies get buckets in seconds, and an HTTP
// server's metrics lose the host and the port that the caller claims, which anybody can make up without end.
func Views() []sdkmetric.Option {
	return []sdkmetric.Option{
		sdkmetric.WithView(sdkmetric.NewView(
			sdkmetric.Instrument{Name: "temporal_*", Kind: sdkmetric.InstrumentKindHistogram, Unit: "s"},
			sdkmetric.Stream{Aggregation: sdkmetric.AggregationExplicitBucketHistogram{Boundaries: latencies}})),
		sdkmetric.WithView(sdkmetric.NewView(
			sdkmetric.Instrument{Name: "http.server.*"},
			sdkmetric.Stream{AttributeFilter: attribute.NewDenyKeysFilter("server.address", "server.port")})),
	}
}

// TemporalMetrics gives a Temporal client the process's metrics: what its workers poll, run, retry and wait for. It is nil,
// which Temporal takes for none, where the environment asks for no metrics.
func TemporalMetrics() client.MetricsHandler {
	if !MetricsEnabled() {
		return nil
	}
	return temporalotel.NewMetricsHandler(temporalotel.MetricsHandlerOptions{
		UseMonotonicCounters: true,
		OnError:              otel.Handle, // a metric that cannot be made is no reason to panic
	})
}
