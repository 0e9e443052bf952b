// Package otlptest receives traces over OTLP/HTTP, for tests of what is exported.
package otlptest

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
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

	mu    sync.Mutex
	spans []Span
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
	var export collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(raw, &export)
	}
	if err != nil || request.URL.Path != "/v1/traces" {
		http.Error(w, "not an export of traces", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range export.ResourceSpans {
		about := map[string]string{}
		for _, a := range resource.GetResource().GetAttributes() {
			about[a.Key] = a.GetValue().GetStringValue()
		}
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				span := Span{
					Name: s.Name, Scope: scope.GetScope().GetName(), Service: about["service.name"], Version: about["service.version"],
					Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
					Attributes: map[string]string{}, Failed: s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR,
				}
				for _, a := range s.Attributes {
					span.Attributes[a.Key] = a.GetValue().GetStringValue()
				}
				r.spans = append(r.spans, span)
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.WriteHeader(http.StatusOK)
}

// Spans returns what has been received so far.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}
