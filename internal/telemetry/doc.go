// Package telemetry sets OpenTelemetry up for a process of Bursar and gives the parts that carry a trace along:
// the Temporal interceptor and the pgx tracer.
//
// Traces and metrics are exported over OTLP/HTTP when OTEL_EXPORTER_OTLP_ENDPOINT is set, or the variable of one of them:
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_EXPORTER_OTLP_METRICS_ENDPOINT. OTEL_TRACES_EXPORTER=none and
// OTEL_METRICS_EXPORTER=none turn one off. The other OTEL_ variables of the specification (headers, sampler, export
// interval, service name, resource attributes) are honoured. Without an endpoint nothing is collected and nothing is sent.
//
// One webhook is one trace: the ingress's request, the signal to Temporal, the workflow's run, its activity, the
// call to Stripe, the transaction and its statements. Statement arguments are not recorded, and baggage of callers is not
// carried into workflow histories.
//
// Metrics carry exemplars: a measurement made inside a sampled trace names that trace. Their attributes are names out of
// the code (paths, classes, verdicts, types), never an identity, so that their number is bounded. The metrics of the locks
// are those of package lockmetrics.
package telemetry
