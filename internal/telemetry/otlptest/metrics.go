package otlptest

import (
	"encoding/hex"
	"strings"

	metrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

// Point is one series of a received metric.
type Point struct {
	Metric, Unit      string
	Scope             string // the library that made it
	Service, Instance string
	Attributes        map[string]string
	Value             float64 // of a counter or gauge; the sum of a histogram
	Count             uint64  // of a histogram
	Bounds            []float64
	Buckets           []uint64
	Exemplars         []Exemplar
}

// Exemplar is one measurement of a point.
type Exemplar struct {
	Trace      string // hexadecimal
	Value      float64
	Attributes map[string]string
}

func (r *Receiver) takeMetrics(export *metrics.ExportMetricsServiceRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.metrics = append(r.metrics, export.ResourceMetrics...)
}

// Points returns the series that have been received so far, in the order of their arrival: of a counter or a histogram each
// export has the sum up to then.
func (r *Receiver) Points() (all []Point) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range r.metrics {
		about := texts(resource.GetResource().GetAttributes())
		for _, scope := range resource.ScopeMetrics {
			for _, m := range scope.Metrics {
				p := Point{Metric: m.Name, Unit: m.Unit, Scope: scope.GetScope().GetName(), Service: about["service.name"], Instance: about["service.instance.id"]}
				for _, h := range m.GetHistogram().GetDataPoints() {
					p.Attributes, p.Value, p.Count = texts(h.Attributes), h.GetSum(), h.Count
					p.Bounds, p.Buckets, p.Exemplars = h.ExplicitBounds, h.BucketCounts, exemplars(h.Exemplars)
					all = append(all, p)
				}
				for _, n := range append(m.GetSum().GetDataPoints(), m.GetGauge().GetDataPoints()...) {
					p.Attributes, p.Value, p.Exemplars = texts(n.Attributes), n.GetAsDouble()+float64(n.GetAsInt()), exemplars(n.Exemplars)
					all = append(all, p)
				}
			}
		}
	}
	return all
}

func exemplars(received []*metricspb.Exemplar) (all []Exemplar) {
	for _, e := range received {
		all = append(all, Exemplar{Trace: hex.EncodeToString(e.TraceId), Value: e.GetAsDouble() + float64(e.GetAsInt()), Attributes: texts(e.FilteredAttributes)})
	}
	return all
}

// MetricsText is all that has been received of metrics as JSON, resources, names and exemplars included: what must be nowhere in
// it is looked for there.
func (r *Receiver) MetricsText() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var text strings.Builder
	for _, resource := range r.metrics {
		text.WriteString(protojson.Format(resource))
	}
	return text.String()
}
