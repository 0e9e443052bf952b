package lockmetrics_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/bursarhq/bursar/internal/locktest"
	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/internal/telemetry/lockmetrics"
	"github.com/bursarhq/bursar/lockorder"
)

func TestMain(m *testing.M) { locktest.Main(m) }

// rig is a database whose locks are measured.
type rig struct {
	*testing.T
	db      *lockorder.DB
	metrics *lockmetrics.Metrics
	reader  *sdkmetric.ManualReader
	tracer  *sdktrace.TracerProvider
}

// lockTimeout is long enough for a waiter to be seen, and above the test server's deadlock_timeout.
const lockTimeout = 400 * time.Millisecond

func newRig(t *testing.T, change ...func(*lockorder.Options)) *rig {
	t.Helper()
	r := &rig{T: t, reader: sdkmetric.NewManualReader(), tracer: sdktrace.NewTracerProvider()}
	var err error
	r.metrics, err = lockmetrics.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader)))
	require.NoError(t, err)
	d := pgtest.New(t, pgtest.Setting("deadlock_timeout", "100ms"))
	options := lockorder.Options{MaxConns: 4, LaneShare: 0.25}
	for _, c := range change {
		c(&options)
	}
	locktest.Watch(&options)
	r.metrics.Configure(&options)
	r.db, err = lockorder.Open(t.Context(), d.URL(), options)
	require.NoError(t, err)
	t.Cleanup(r.db.Close)
	require.NoError(t, r.metrics.Watch(r.db))
	return r
}

// lastHold is how long a holder goes on after its release: whoever waits by then waits at least as long.
const lastHold = 60 * time.Millisecond

// hold runs a transaction that holds locks until release is called, which waits for its end.
func (r *rig) hold(spec lockorder.Spec) (release func()) {
	r.Helper()
	held, end, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- r.db.Run(r.Context(), spec, func(ctx context.Context, tx *lockorder.Tx) error {
			close(held)
			<-end
			_, err := tx.Exec(ctx, "SELECT pg_sleep($1)", lastHold.Seconds())
			return err
		})
	}()
	select {
	case <-held:
	case err := <-done:
		r.Fatalf("%s did not get its locks: %v", spec.Path, err)
	}
	return func() { close(end); require.NoError(r, <-done) }
}

// start runs a transaction in a trace of its own, and returns once it waits for a lock.
func (r *rig) start(spec lockorder.Spec) (trace string, done chan error) {
	r.Helper()
	ctx, span := r.tracer.Tracer("test").Start(r.Context(), "webhook")
	done = make(chan error, 1)
	go func() {
		defer span.End()
		done <- r.db.Run(ctx, spec, func(context.Context, *lockorder.Tx) error { return nil })
	}()
	require.Eventually(r, func() bool { used, _ := r.db.Lane(); return used == 1 }, 10*time.Second, time.Millisecond, "nothing waits")
	return span.SpanContext().TraceID().String(), done
}

// collect returns what has been measured, by instrument, and all of it as JSON.
func (r *rig) collect() (map[string]metricdata.Metrics, string) {
	r.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(r, r.reader.Collect(r.Context(), &all))
	byName := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		require.Equal(r, lockmetrics.Scope, scope.Scope.Name)
		for _, m := range scope.Metrics {
			byName[m.Name] = m
		}
	}
	text, err := json.Marshal(all.ScopeMetrics)
	require.NoError(r, err)
	return byName, string(text)
}

// histogram is the series of a histogram that has the attributes, and no others.
func (r *rig) histogram(name string, attributes ...attribute.KeyValue) metricdata.HistogramDataPoint[float64] {
	r.Helper()
	all, text := r.collect()
	require.Contains(r, all, name)
	require.Equal(r, "s", all[name].Unit)
	set := attribute.NewSet(attributes...)
	for _, p := range all[name].Data.(metricdata.Histogram[float64]).DataPoints {
		if p.Attributes.Equals(&set) {
			return p
		}
	}
	r.Fatalf("%s has no series %v: %s", name, attributes, text)
	return metricdata.HistogramDataPoint[float64]{}
}

// counts are the values of a counter by its attributes, as texts.
func (r *rig) counts(name string) map[string]int64 {
	r.Helper()
	all, _ := r.collect()
	values := map[string]int64{}
	if m, ok := all[name]; ok {
		for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
			values[p.Attributes.Encoded(attribute.DefaultEncoder())] = p.Value
		}
	}
	return values
}

func (r *rig) gauge(name string) int64 {
	r.Helper()
	all, _ := r.collect()
	require.Contains(r, all, name)
	points := all[name].Data.(metricdata.Gauge[int64]).DataPoints
	require.Len(r, points, 1)
	return points[0].Value
}

func spec(path string, kind lockorder.Kind, keys ...lockorder.Lock) lockorder.Spec {
	return lockorder.Spec{Path: path, Kind: kind, Keys: keys}
}

func of(class, path string, kind lockorder.Kind, more ...attribute.KeyValue) []attribute.KeyValue {
	return append(more, lockmetrics.Class.String(class), lockmetrics.Path.String(path), lockmetrics.Kind.String(kind.String()))
}

// A lock that was waited for shows in the histogram of waits, with the trace of the one that waited.
func TestAContendedLock(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const id = "sub_1TheirSecret"
	key := lockorder.SubscriptionKey(id)
	release := r.hold(spec("holder", lockorder.Plain, key))
	trace, done := r.start(spec("subscription-active", lockorder.Materializing, key))
	require.EqualValues(t, 1, r.gauge(lockmetrics.LaneInUse))
	require.EqualValues(t, 1, r.gauge(lockmetrics.LaneSize))
	release()
	require.NoError(t, <-done)
	require.Zero(t, r.gauge(lockmetrics.LaneInUse))

	wait := r.histogram(lockmetrics.Wait, of("subscription", "subscription-active", lockorder.Materializing, lockmetrics.Verdict.String(lockmetrics.Got))...)
	require.EqualValues(t, 1, wait.Count)
	require.GreaterOrEqual(t, wait.Sum, lastHold.Seconds())
	require.Len(t, wait.Exemplars, 1)
	require.Equal(t, trace, hex.EncodeToString(wait.Exemplars[0].TraceID))
	require.Equal(t, map[string]int64{
		"lockorder.class=materialization,lockorder.contended=false,lockorder.kind=materializing,lockorder.path=subscription-active": 1,
		"lockorder.class=subscription,lockorder.contended=false,lockorder.kind=plain,lockorder.path=holder":                         1,
		"lockorder.class=subscription,lockorder.contended=true,lockorder.kind=materializing,lockorder.path=subscription-active":     1,
	}, r.counts(lockmetrics.Acquisitions))

	hold := r.histogram(lockmetrics.Hold, of("subscription", "holder", lockorder.Plain)...)
	require.EqualValues(t, 1, hold.Count)
	require.GreaterOrEqual(t, hold.Sum, lastHold.Seconds())
	require.Empty(t, hold.Exemplars, "the holder ran outside a trace")
	// The rendezvous was held all the time that the key was waited for.
	rendezvous := r.histogram(lockmetrics.Hold, of("materialization", "subscription-active", lockorder.Materializing)...)
	require.GreaterOrEqual(t, rendezvous.Sum, wait.Sum)
	tx := r.histogram(lockmetrics.Transaction, lockmetrics.Path.String("subscription-active"), lockmetrics.Kind.String("materializing"), lockmetrics.Verdict.String(lockmetrics.Committed))
	require.EqualValues(t, 1, tx.Count)
	require.GreaterOrEqual(t, tx.Sum, wait.Sum)
	require.Equal(t, trace, hex.EncodeToString(tx.Exemplars[0].TraceID))
	require.Empty(t, r.counts(lockmetrics.Refusals))
	require.Empty(t, r.counts(lockmetrics.Violations))

	_, text := r.collect()
	require.NotContains(t, text, id)
	require.NotContains(t, text, key.String())
}

// A wait that timed out counts by class, path and verdict, and its length is in the histogram too.
func TestATimeOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *lockorder.Options) { o.LockTimeout = lockTimeout })
	key := lockorder.InvoiceKey("in_1")
	release := r.hold(spec("holder", lockorder.Plain, key))
	trace, done := r.start(spec("invoice-paid", lockorder.Plain, key))
	require.Equal(t, lockorder.VerdictLockTimeout, lockorder.VerdictOf(<-done))
	release()

	timedOut := lockmetrics.Verdict.String("lock-timeout")
	require.Equal(t, map[string]int64{"lockorder.class=invoice,lockorder.kind=plain,lockorder.path=invoice-paid,lockorder.verdict=lock-timeout": 1}, r.counts(lockmetrics.Refusals))
	wait := r.histogram(lockmetrics.Wait, of("invoice", "invoice-paid", lockorder.Plain, timedOut)...)
	require.EqualValues(t, 1, wait.Count)
	require.GreaterOrEqual(t, wait.Sum, lockTimeout.Seconds())
	require.Equal(t, trace, hex.EncodeToString(wait.Exemplars[0].TraceID))
	tx := r.histogram(lockmetrics.Transaction, lockmetrics.Path.String("invoice-paid"), lockmetrics.Kind.String("plain"), timedOut)
	require.EqualValues(t, 1, tx.Count)
}

// One that may not wait is refused: it counts, and no wait of no length hides the real ones.
func TestAFullLane(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key := lockorder.SubscriptionKey("sub_1")
	release := r.hold(spec("holder", lockorder.Plain, key))
	_, done := r.start(spec("waiter", lockorder.Plain, key))
	err := r.db.Run(t.Context(), spec("refused", lockorder.Plain, key), nil)
	require.ErrorIs(t, err, lockorder.ErrBusy)
	release()
	require.NoError(t, <-done)
	require.Equal(t, map[string]int64{"lockorder.class=subscription,lockorder.kind=plain,lockorder.path=refused,lockorder.verdict=busy": 1}, r.counts(lockmetrics.Refusals))
	all, text := r.collect()
	require.Len(t, all[lockmetrics.Wait].Data.(metricdata.Histogram[float64]).DataPoints, 1, text)
}

// Every broken rule is named. None of it names what was locked.
func TestViolations(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := t.Context()
	low, high := lockorder.SubscriptionKey("sub_1"), lockorder.ProductKey(uuid.New())
	run := func(path string, keys []lockorder.Lock, fn func(ctx context.Context, tx *lockorder.Tx) error) {
		require.Equal(t, lockorder.VerdictMisuse, lockorder.VerdictOf(r.db.Run(ctx, spec(path, lockorder.Plain, keys...), fn)), path)
	}
	run("backwards", []lockorder.Lock{high}, func(ctx context.Context, tx *lockorder.Tx) error { return tx.Lock(ctx, low) })
	run("backwards", []lockorder.Lock{high}, func(ctx context.Context, tx *lockorder.Tx) error { return tx.Lock(ctx, low) })
	run("without", nil, func(_ context.Context, tx *lockorder.Tx) error { return tx.Require(low) })
	run("twice", nil, func(ctx context.Context, _ *lockorder.Tx) error {
		return r.db.Run(ctx, spec("inner", lockorder.Plain), nil)
	})
	run("nameless", []lockorder.Lock{lockorder.SubscriptionKey("")}, nil)
	many := make([]lockorder.Lock, lockorder.MaxKeys+1)
	for i := range many {
		many[i] = lockorder.ProductKey(uuid.New())
	}
	run("many", many, nil)
	require.Equal(t, map[string]int64{
		"lockorder.kind=plain,lockorder.path=backwards,lockorder.rule=order":    2,
		"lockorder.kind=plain,lockorder.path=without,lockorder.rule=not-held":   1,
		"lockorder.kind=plain,lockorder.path=inner,lockorder.rule=nested":       1,
		"lockorder.kind=plain,lockorder.path=twice,lockorder.rule=nested":       1,
		"lockorder.kind=plain,lockorder.path=nameless,lockorder.rule=forbidden": 1,
		"lockorder.kind=plain,lockorder.path=many,lockorder.rule=too-many-keys": 1,
	}, r.counts(lockmetrics.Violations))
	_, text := r.collect()
	require.NotContains(t, text, "sub_1")
}

// The lengths that matter are told apart: each turn of a rule change, and a wait that timed out from one that did not.
func TestBucketsSuitLockWaits(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	m, err := lockmetrics.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	require.NoError(t, err)
	var o lockorder.Options
	heard := 0
	o.Observe = func(lockorder.Event) { heard++ }
	m.Configure(&o)
	lock := lockorder.InvoiceKey("in_1")
	ms := func(n ...int) (all []time.Duration) {
		for _, n := range n {
			all = append(all, time.Duration(n)*time.Millisecond)
		}
		return all
	}
	lengths := slices.Concat(
		ms(1, 2, 40),                           // short ones
		ms(240, 480, 700, 960, 1400, 1900),     // turns of a rule change, and what lies between them
		ms(4900, 5050, 14_000, 29_000, 60_000), // the lock time-out from both sides, the budgets, and beyond
	)
	for _, waited := range lengths {
		o.Observe(lockorder.Event{Context: t.Context(), Path: "test", Kind: lockorder.Plain, Took: lock, Waited: waited})
	}
	require.Equal(t, len(lengths), heard, "whoever listened before still does")
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	for _, metric := range all.ScopeMetrics[0].Metrics {
		if metric.Name != lockmetrics.Wait {
			continue
		}
		points := metric.Data.(metricdata.Histogram[float64]).DataPoints
		require.Len(t, points, 1)
		filled := 0
		for i, n := range points[0].BucketCounts {
			require.LessOrEqual(t, n, uint64(1), "bucket %d of %v holds two lengths that differ in what they mean", i, points[0].Bounds)
			filled += int(n)
		}
		require.Equal(t, len(lengths), filled)
		require.Equal(t, 0.001, points[0].Bounds[0])
		require.Equal(t, 30.0, points[0].Bounds[len(points[0].Bounds)-1])
		return
	}
	t.Fatal("no histogram of waits")
}
