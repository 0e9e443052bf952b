// Package telemetry sets OpenTelemetry up for a process of Bursar and gives the parts that carry a trace along:
// the Temporal interceptor and the pgx tracer.
//
// Traces are exported over OTLP/HTTP when OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set. The
// other OTEL_ variables of the specification (headers, sampler, service name, resource attributes) are honoured.
// Without an endpoint nothing is collected and nothing is sent.
//
// One webhook is one trace: the ingress's request, the signal to Temporal, the workflow's run, its activity, the
// call to Stripe, the transaction and its statements. Statement arguments are not recorded, and baggage of callers is not
// carried into workflow histories.
package telemetry
