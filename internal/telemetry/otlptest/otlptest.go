// Package otlptest receives traces and metrics over OTLP/HTTP, for tests of what is exported.
package otlptest

import (
	"compress/gzip"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	metrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	traces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is one received span.
type Span struct {
	Name             string
	Scope            string // the library that made it
	Service, Version string
	Trace, ID        string // hexadecimal
	Parent           string // hexadecimal, empty for a root
	Attributes       map[string]string
	Failed           bool
}

// Receiver is an OTLP/HTTP endpoint on the loopback interface.
type Receiver struct {
	// URL is what OTEL_EXPORTER_OTLP_ENDPOINT is set to.
	URL string

	mu      sync.Mutex
	spans   []Span
	metrics []*metricspb.ResourceMetrics
}

// Start starts a receiver that ends with the test.
func Start(t testing.TB) *Receiver {
	t.Helper()
	r := &Receiver{}
	server := httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(server.Close)
	r.URL = server.URL
	return r
}

func (r *Receiver) serve(w http.ResponseWriter, request *http.Request) {
	body := io.Reader(request.Body)
	if request.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = unzipped
	}
	raw, err := io.ReadAll(body)
	if err == nil {
		switch request.URL.Path {
		case "/v1/traces":
			var export traces.ExportTraceServiceRequest
			if err = proto.Unmarshal(raw, &export); err == nil {
				r.takeSpans(&export)
			}
		case "/v1/metrics":
			var export metrics.ExportMetricsServiceRequest
			if err = proto.Unmarshal(raw, &export); err == nil {
				r.takeMetrics(&export)
			}
		default:
			err = errors.New("neither the path of traces nor that of metrics")
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.WriteHeader(http.StatusOK)
}

func (r *Receiver) takeSpans(export *traces.ExportTraceServiceRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range export.ResourceSpans {
		about := texts(resource.GetResource().GetAttributes())
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				r.spans = append(r.spans, Span{
					Name: s.Name, Scope: scope.GetScope().GetName(), Service: about["service.name"], Version: about["service.version"],
					Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
					Attributes: texts(s.Attributes), Failed: s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR,
				})
			}
		}
	}
}

// texts are the attributes whose value is a text.
func texts(attributes []*commonpb.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range attributes {
		all[a.Key] = a.GetValue().GetStringValue()
	}
	return all
}

// Spans returns what has been received so far.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}
