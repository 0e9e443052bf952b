package lockmetrics

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/bursarhq/bursar/lockorder"
)

// Scope is the name of the meter.
const Scope = "github.com/bursarhq/bursar/lockorder"

// The instruments. Durations are in seconds.
const (
	Wait         = "lockorder.wait.duration"
	Acquisitions = "lockorder.acquisitions"
	Refusals     = "lockorder.refusals"
	Hold         = "lockorder.hold.duration"
	Transaction  = "lockorder.transaction.duration"
	Violations   = "lockorder.violations"
	LaneInUse    = "lockorder.lane.in_use"
	LaneSize     = "lockorder.lane.size"
)

// The attributes.
const (
	Class     = attribute.Key("lockorder.class")     // of the lock, as in the registry
	Path      = attribute.Key("lockorder.path")      // of the transaction
	Kind      = attribute.Key("lockorder.kind")      // of the transaction
	Verdict   = attribute.Key("lockorder.verdict")   // a lockorder.Verdict, or Got, or Committed
	Contended = attribute.Key("lockorder.contended") // "true" where the lock was waited for, or "false"
	Rule      = attribute.Key("lockorder.rule")      // which rule a violation broke
)

// What stands for a verdict where nothing failed.
const (
	Got       = "got"
	Committed = "committed"
)

// Buckets are in seconds. Those of waits tell a turn of a rule change (0.25, 0.5, 1 and 2 s, each up to a fifth less) from
// the next, and have the lock time-out of 5 s as an edge: a wait that timed out lies above it, one that just made it below.
// Those of holds and transactions have the limit of an exclusive hold, 0.9 s, and the budgets of 15 and 30 s as edges.
var (
	waitBuckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 5, 7.5, 10, 15, 30}
	heldBuckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.9, 1.5, 2.5, 5, 10, 15, 30}
)

// Metrics are the instruments of one process. Its methods are safe for use by several goroutines.
type Metrics struct {
	meter        metric.Meter
	wait         metric.Float64Histogram
	acquisitions metric.Int64Counter
	refusals     metric.Int64Counter
	hold         metric.Float64Histogram
	transaction  metric.Float64Histogram
	violations   metric.Int64Counter

	// sets keeps the attributes of what was measured before: a lock is taken more often than a set should be built.
	sets sync.Map // of key to metric.MeasurementOption
}

// New makes the instruments.
func New(provider metric.MeterProvider) (*Metrics, error) {
	m := &Metrics{meter: provider.Meter(Scope)}
	var errs [6]error
	m.wait, errs[0] = m.meter.Float64Histogram(Wait, metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(waitBuckets...),
		metric.WithDescription("How long a busy lock was waited for, by how the wait ended. For the exclusive rendezvous all turns and pauses count, and a turn that ended without it is a wait of its own."))
	m.acquisitions, errs[1] = m.meter.Int64Counter(Acquisitions, metric.WithUnit("{lock}"),
		metric.WithDescription("Locks taken, by whether they had to be waited for."))
	m.refusals, errs[2] = m.meter.Int64Counter(Refusals, metric.WithUnit("{refusal}"),
		metric.WithDescription("Busy locks that were not got, by verdict: lock-timeout, or busy where the wait could not begin."))
	m.hold, errs[3] = m.meter.Float64Histogram(Hold, metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(heldBuckets...),
		metric.WithDescription("How long a transaction held locks of a class, from the first to its end."))
	m.transaction, errs[4] = m.meter.Float64Histogram(Transaction, metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(heldBuckets...),
		metric.WithDescription("How long a transaction took, the wait for a connection included, by verdict. Each turn of a rule change is one."))
	m.violations, errs[5] = m.meter.Int64Counter(Violations, metric.WithUnit("{violation}"),
		metric.WithDescription("Transactions that broke a rule of the locks. Each is a bug."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("the instruments of the locks cannot be made: %w", err)
	}
	return m, nil
}

// Configure makes transactions report to the instruments, and to whoever was told before.
func (m *Metrics) Configure(o *lockorder.Options) {
	o.Observe = both(m.observe, o.Observe)
	o.Refused = both(m.refused, o.Refused)
	o.Ended = both(m.ended, o.Ended)
}

func both[E any](first, then func(E)) func(E) {
	if then == nil {
		return first
	}
	return func(e E) { first(e); then(e) }
}

// Watch measures a database's lane whenever metrics are collected. A process watches one database.
func (m *Metrics) Watch(db *lockorder.DB) error {
	inUse, err := m.meter.Int64ObservableGauge(LaneInUse, metric.WithUnit("{transaction}"),
		metric.WithDescription("Transactions that hold a place to wait for a lock just now."))
	if err != nil {
		return fmt.Errorf("the lane's gauge cannot be made: %w", err)
	}
	size, err := m.meter.Int64ObservableGauge(LaneSize, metric.WithUnit("{transaction}"),
		metric.WithDescription("How many transactions may wait for locks at one time; one more is refused as busy."))
	if err != nil {
		return fmt.Errorf("the lane's gauge cannot be made: %w", err)
	}
	_, err = m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		used, places := db.Lane()
		o.ObserveInt64(inUse, int64(used))
		o.ObserveInt64(size, int64(places))
		return nil
	}, inUse, size)
	if err != nil {
		return fmt.Errorf("the lane cannot be watched: %w", err)
	}
	return nil
}

func (m *Metrics) observe(e lockorder.Event) {
	class := e.Took.Class().Name
	contended := "false"
	if e.Waited > 0 {
		contended = "true"
		m.wait.Record(e.Context, e.Waited.Seconds(), m.set(key{class: class, path: e.Path, kind: e.Kind, verdict: Got}))
	}
	m.acquisitions.Add(e.Context, 1, m.set(key{class: class, path: e.Path, kind: e.Kind, contended: contended}))
}

func (m *Metrics) refused(r lockorder.Refusal) {
	set := m.set(key{class: r.Lock.Class().Name, path: r.Path, kind: r.Kind, verdict: string(r.Verdict)})
	m.refusals.Add(r.Context, 1, set)
	if r.Waited > 0 { // a wait that ended for nothing is the longest there is: without it the histogram would end too early
		m.wait.Record(r.Context, r.Waited.Seconds(), set)
	}
}

func (m *Metrics) ended(e lockorder.TxEvent) {
	verdict := string(e.Verdict)
	if verdict == "" {
		verdict = Committed
	}
	m.transaction.Record(e.Context, e.Took.Seconds(), m.set(key{path: e.Path, kind: e.Kind, verdict: verdict}))
	for _, h := range e.Holds {
		m.hold.Record(e.Context, h.For.Seconds(), m.set(key{class: h.Class.Name, path: e.Path, kind: e.Kind}))
	}
	if e.Verdict == lockorder.VerdictMisuse {
		m.violations.Add(e.Context, 1, m.set(key{path: e.Path, kind: e.Kind, rule: broken(e.Err)}))
	}
}

// broken names the rule that a misuse broke. A lock out of order may break others in its wake: it comes first.
func broken(err error) string {
	for _, rule := range []struct {
		err  error
		name string
	}{
		{lockorder.ErrOrder, "order"},
		{lockorder.ErrNotHeld, "not-held"},
		{lockorder.ErrNested, "nested"},
		{lockorder.ErrTooManyKeys, "too-many-keys"},
		{lockorder.ErrDone, "after-end"},
		{lockorder.ErrForbidden, "forbidden"},
	} {
		if errors.Is(err, rule.err) {
			return rule.name
		}
	}
	return "other"
}

// key is a set of attributes; an empty one is left out.
type key struct {
	class, path, verdict, contended, rule string
	kind                                  lockorder.Kind
}

func (m *Metrics) set(k key) metric.MeasurementOption {
	if known, ok := m.sets.Load(k); ok {
		return known.(metric.MeasurementOption)
	}
	attributes := []attribute.KeyValue{Path.String(k.path), Kind.String(k.kind.String())}
	for _, more := range []struct {
		key   attribute.Key
		value string
	}{{Class, k.class}, {Verdict, k.verdict}, {Contended, k.contended}, {Rule, k.rule}} {
		if more.value != "" {
			attributes = append(attributes, more.key.String(more.value))
		}
	}
	known, _ := m.sets.LoadOrStore(k, metric.WithAttributeSet(attribute.NewSet(attributes...)))
	return known.(metric.MeasurementOption)
}
