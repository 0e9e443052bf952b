package lockorder_test

import (
	"context"
	"slices"
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
