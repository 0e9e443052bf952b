package lockorder_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// TestObserve listens to what transactions take: each lock once, with what was held before it, in order.
func TestObserve(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	var mu sync.Mutex
	var heard []lockorder.Event
	db := open(t, d, func(o *lockorder.Options) {
		o.Observe = func(e lockorder.Event) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, e)
		}
	})
	holder, look := d.Conn(t), d.Conn(t)
	keys := subscriptions(2)
	rows := pools(t, holder, 2)
	exec(t, holder, "BEGIN")
	exec(t, holder, "SELECT pg_advisory_xact_lock($1)", keys[1].Key())
	done := start(func() error {
		return db.Run(t.Context(), materializing(keys[1], keys[0]), func(ctx context.Context, tx *lockorder.Tx) error {
			if err := tx.Lock(ctx, rows[1], rows[0]); err != nil {
				return err
			}
			if _, err := tx.LockExisting(ctx, lockorder.ParkedWorkRow("subscription", "sub_1")); err != nil {
				return err
			}
			_ = tx.Lock(ctx, lockorder.CustomerRow("cus_1")) // refused
			return tx.Lock(ctx, keys[0], rows[1])            // held
		})
	})
	until(t, "the key is waited for", func() bool { return lockWaiters(t, look, keys[1]) == 1 })
	waiting := time.Now()
	exec(t, look, "SELECT pg_sleep(0.05)")
	exec(t, holder, "COMMIT")
	waited := time.Since(waiting)
	if err := receive(t, done, "the transaction"); err != nil {
		t.Fatal(err)
	}

	want := []lockorder.Lock{rendezvous(), keys[0], keys[1], rows[0], rows[1]}
	names := func(locks []lockorder.Lock) (names []string) {
		for _, l := range locks {
			names = append(names, l.String())
		}
		return names
	}
	if len(heard) != len(want) {
		t.Fatalf("%d locks were heard of, want %d: %+v", len(heard), len(want), heard)
	}
	for i, e := range heard {
		if e.Path != "test" || e.Kind != lockorder.Materializing || e.Took.String() != want[i].String() {
			t.Errorf("event %d is %s by %s of kind %s, want %s", i, e.Took, e.Path, e.Kind, want[i])
		}
		if !slices.Equal(names(e.Held), names(want[:i])) {
			t.Errorf("before %s it held %v, want %v", e.Took, names(e.Held), names(want[:i]))
		}
		if wasWaitedFor := e.Took.Key() == keys[1].Key(); wasWaitedFor && e.Waited < waited/2 || e.Took.Class().Kind == lockorder.Advisory && !wasWaitedFor && e.Waited != 0 {
			t.Errorf("%s was waited for %s", e.Took, e.Waited)
		}
	}
}

// recorder keeps what a DB reports.
type recorder struct {
	mu      sync.Mutex
	refused []lockorder.Refusal
	ended   []lockorder.TxEvent
}

func (r *recorder) listen(o *lockorder.Options) {
	o.Refused = func(e lockorder.Refusal) { r.mu.Lock(); defer r.mu.Unlock(); r.refused = append(r.refused, e) }
	o.Ended = func(e lockorder.TxEvent) { r.mu.Lock(); defer r.mu.Unlock(); r.ended = append(r.ended, e) }
}

// take returns what was reported since the last call.
func (r *recorder) take() (refused []lockorder.Refusal, ended []lockorder.TxEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	refused, ended, r.refused, r.ended = r.refused, r.ended, nil, nil
	return refused, ended
}

type contextKey struct{}

// TestEnded listens to how transactions end: which classes they held and for how long, and why they failed.
func TestEnded(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	var r recorder
	db := open(t, d, r.listen)
	rows := pools(t, d.Conn(t), 2)
	keys := subscriptions(2)
	ctx := context.WithValue(t.Context(), contextKey{}, "the caller's")
	failure := errors.New("no")
	const held = 30 * time.Millisecond
	late := func(ctx context.Context, tx *lockorder.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_sleep($1)", held.Seconds()); err != nil {
			return err
		}
		return tx.Lock(ctx, rows...)
	}
	for name, test := range map[string]struct {
		spec    lockorder.Spec
		fn      func(ctx context.Context, tx *lockorder.Tx) error
		verdict lockorder.Verdict
		holds   []string
	}{
		"committed":     {materializing(keys...), late, "", []string{"materialization", "subscription", "pool"}},
		"handed":        {lockorder.Spec{Path: "test", Kind: lockorder.Plain, Keys: keys, Handed: func(h *lockorder.Handed) { h.Queue("SELECT 1") }}, nil, "", []string{"subscription"}},
		"a rule change": {ruleChange(), nothing, "", []string{"materialization"}},
		"no lock":       {plain(), nothing, "", nil},
		"failed":        {plain(keys[0]), func(context.Context, *lockorder.Tx) error { return failure }, lockorder.VerdictOther, []string{"subscription"}},
		"panic":         {plain(keys[0]), func(context.Context, *lockorder.Tx) error { panic(failure) }, lockorder.VerdictOther, []string{"subscription"}},
		"misuse":        {plain(rows[0]), nothing, lockorder.VerdictMisuse, nil},
	} {
		func() {
			defer func() { _ = recover() }()
			_ = db.Run(ctx, test.spec, test.fn)
		}()
		refused, ended := r.take()
		if len(ended) != 1 || len(refused) != 0 {
			t.Fatalf("%s: %d ends and %d refusals were reported", name, len(ended), len(refused))
		}
		e := ended[0]
		var holds []string
		for _, h := range e.Holds {
			holds = append(holds, h.Class.Name)
			if h.For <= 0 || h.For > e.Took {
				t.Errorf("%s: class %s was held %s of %s", name, h.Class.Name, h.For, e.Took)
			}
		}
		if e.Verdict != test.verdict || e.Path != "test" || e.Kind != test.spec.Kind || !slices.Equal(holds, test.holds) || e.Context.Value(contextKey{}) == nil {
			t.Errorf("%s: it ended so: %+v", name, e)
		}
		if turn := e.Turn; (turn == 1) != (e.Kind == lockorder.RuleChange) {
			t.Errorf("%s: the turn is %d", name, turn)
		}
		if name == "committed" && (e.Holds[0].For < held || e.Holds[1].For < held || e.Holds[2].For > e.Holds[0].For-held) {
			t.Errorf("the keys were held for %s at least, the rows for less: %+v", held, e.Holds)
		}
	}
}

// TestRefused listens to waits that end without their lock, and to those that may not begin.
func TestRefused(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t, pgtest.Setting("deadlock_timeout", "20ms"))
	var r recorder
	db := open(t, d, oneConn, r.listen, func(o *lockorder.Options) { o.LockTimeout = 100 * time.Millisecond })
	holder, look := d.Conn(t), d.Conn(t)
	row, key := pools(t, holder, 1)[0], subscriptions(1)[0]
	parked := lockorder.ParkedWorkRow("subscription", "sub_1")
	exec(t, holder, "BEGIN")
	exec(t, holder, "SELECT pg_advisory_xact_lock($1)", key.Key())
	exec(t, holder, "SELECT FROM core.pools WHERE id = $1 FOR NO KEY UPDATE", identity(row))
	exec(t, holder, insertParked, "subscription", "sub_1")
	lock := func(l lockorder.Lock) func(ctx context.Context, tx *lockorder.Tx) error {
		return func(ctx context.Context, tx *lockorder.Tx) error { return tx.Lock(ctx, l) }
	}
	cancelled := func(l lockorder.Lock) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := start(func() error { return db.Run(ctx, plain(), lock(l)) })
		until(t, "it waits, or has waited", func() bool { return anyWaits(t, look) || len(done) > 0 })
		cancel()
		return receive(t, done, "the cancelled one")
	}
	short := plain()
	short.Budget = 15 * time.Millisecond // less than the deadlock timer
	for name, test := range map[string]struct {
		run     func() error
		lock    lockorder.Lock
		waits   bool
		verdict []lockorder.Verdict
	}{
		"a declared key":     {func() error { return db.Run(t.Context(), plain(key), nothing) }, key, true, []lockorder.Verdict{lockorder.VerdictLockTimeout}},
		"a later key":        {func() error { return db.Run(t.Context(), plain(), lock(key)) }, key, true, []lockorder.Verdict{lockorder.VerdictLockTimeout}},
		"a row":              {func() error { return db.Run(t.Context(), plain(), lock(row)) }, row, true, []lockorder.Verdict{lockorder.VerdictLockTimeout}},
		"a row that is made": {func() error { return db.Run(t.Context(), plain(), lockOrMake(parked)) }, parked, true, []lockorder.Verdict{lockorder.VerdictLockTimeout}},
		"cancelled":          {func() error { return cancelled(row) }, row, true, []lockorder.Verdict{lockorder.VerdictCancelled, lockorder.VerdictLockTimeout}},
		"no time":            {func() error { return db.Run(t.Context(), short, lock(key)) }, key, false, []lockorder.Verdict{lockorder.VerdictBusy}},
		"under the exclusive": {func() error {
			s := ruleChange()
			s.Budget = 200 * time.Millisecond
			return db.Run(t.Context(), s, lock(row))
		}, row, false, []lockorder.Verdict{lockorder.VerdictBusy}},
	} {
		if err := test.run(); err == nil {
			t.Fatalf("%s: it got the lock", name)
		}
		refused, ended := r.take()
		if len(refused) != 1 || len(ended) != 1 {
			t.Fatalf("%s: %d refusals and %d ends were reported", name, len(refused), len(ended))
		}
		e := refused[0]
		if e.Lock.Text() != test.lock.Text() || !slices.Contains(test.verdict, e.Verdict) || e.Path != "test" || e.Context == nil || test.waits != (e.Waited > 0) {
			t.Errorf("%s: it was refused so: %+v", name, e)
		}
		if ended[0].Verdict != e.Verdict && ended[0].Kind != lockorder.RuleChange {
			t.Errorf("%s: refused with %s, ended with %s", name, e.Verdict, ended[0].Verdict)
		}
	}
}

func lockOrMake(row lockorder.Lock) func(ctx context.Context, tx *lockorder.Tx) error {
	return func(ctx context.Context, tx *lockorder.Tx) error {
		_, err := tx.LockOrMake(ctx, row, insertParked, "subscription", "sub_1")
		return err
	}
}

// TestLaneUse reads how full the lane is.
func TestLaneUse(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d, func(o *lockorder.Options) { o.MaxConns = 4 })
	holder := d.Conn(t)
	key := subscriptions(1)[0]
	exec(t, holder, "BEGIN")
	exec(t, holder, "SELECT pg_advisory_xact_lock($1)", key.Key())
	if inUse, size := db.Lane(); inUse != 0 || size != 2 {
		t.Errorf("of an idle lane %d of %d places are in use", inUse, size)
	}
	done := start(func() error { return db.Run(t.Context(), plain(key), nothing) })
	until(t, "one waits", func() bool { inUse, _ := db.Limited(3).Lane(); return inUse == 1 })
	exec(t, holder, "COMMIT")
	if err := receive(t, done, "the key"); err != nil {
		t.Fatal(err)
	}
	if inUse, _ := db.Lane(); inUse != 0 {
		t.Errorf("%d places are still in use", inUse)
	}
}

// TestHolder names who holds the locks to those who look on, for as long as they are held.
func TestHolder(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	type name struct{}
	db := open(t, d, oneConn, func(o *lockorder.Options) {
		o.Holder = func(ctx context.Context, _ string) string { text, _ := ctx.Value(name{}).(string); return text }
	})
	look := d.Conn(t)
	shown := func(pid uint32) string {
		return query[string](t, look, "SELECT application_name FROM pg_stat_activity WHERE pid = $1", int64(pid))
	}
	own := ""
	for _, kind := range []lockorder.Kind{lockorder.Plain, lockorder.Materializing, lockorder.RuleChange} {
		for _, handed := range []func(*lockorder.Handed){nil, func(h *lockorder.Handed) { h.Queue("SELECT 1") }} {
			for holder, want := range map[string]string{
				"":                                  own,
				"subscription-sub_1 active":         "subscription-sub_1 active",
				strings.Repeat("x", 62) + "ü" + "y": strings.Repeat("x", 62) + "?",
				"a\x00'; \xff\n$1":                  "a?'; ??$1",
			} {
				spec := lockorder.Spec{Path: "test", Kind: kind, Keys: subscriptions(2), Handed: handed}
				if err := db.Run(context.WithValue(t.Context(), name{}, holder), spec, func(ctx context.Context, tx *lockorder.Tx) error {
					if got := shown(tx.PID()); got != want {
						t.Errorf("%s: the holder %q is shown as %q, want %q", kind, holder, got, want)
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				if n := query[int](t, look, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1 AND $1 <> ''`, want); n != 0 {
					t.Errorf("%q is still shown", want)
				}
			}
		}
	}
}
