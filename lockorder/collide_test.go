package lockorder_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// TestOneKeyForAll has every identity of every class, and the rendezvous, share one key: a lock of whatever modes is one lock,
// in the strongest of them, and eight workers of every kind do not deadlock. What was not declared may be refused.
func TestOneKeyForAll(t *testing.T) {
	t.Parallel()
	const one = 42
	d := pgtest.New(t, pgtest.Setting("deadlock_timeout", "100ms"))
	db := open(t, d, func(o *lockorder.Options) { o.MaxConns, o.LaneShare, o.ExclusiveHold = 8, 1, 5*time.Second })
	db.CollideRendezvous(one)
	kinds := []lockorder.Kind{lockorder.Plain, lockorder.Materializing, lockorder.Materializing, lockorder.RuleChange}
	draw := func(n int) *rapid.Generator[[]lockorder.Lock] {
		return rapid.SliceOfN(rapid.Map(anyKey(), func(l lockorder.Lock) lockorder.Lock { return lockorder.CollideAt(l, one) }), 0, n)
	}
	var group sync.WaitGroup
	for worker := range 8 {
		random := rand.New(rand.NewPCG(uint64(worker), 11))
		group.Go(func() {
			for round := range rounds(40) {
				seed := random.Int()
				spec := lockorder.Spec{Path: "any", Kind: kinds[random.IntN(len(kinds))], Keys: draw(5).Example(seed)}
				later := draw(2).Example(seed + 1)
				handed := 0
				if random.IntN(2) == 0 {
					spec.Handed = func(h *lockorder.Handed) {
						h.Queue("SELECT 1").QueryRow(func(row pgx.Row) error { handed++; return row.Scan(nil) })
					}
				}
				asked := false
				err := db.Run(t.Context(), spec, func(ctx context.Context, tx *lockorder.Tx) error {
					if err := tx.Require(spec.Keys...); err != nil {
						return err
					}
					err := tx.Lock(ctx, later...)
					if lockorder.VerdictOf(err) == lockorder.VerdictMisuse { // ranks below what is held
						return nil
					}
					asked = err != nil
					return err
				})
				mayBeRefused := spec.Kind == lockorder.RuleChange || spec.Kind == lockorder.Materializing && asked
				if err != nil && !(mayBeRefused && errors.Is(err, lockorder.ErrBusy)) {
					t.Errorf("worker %d, round %d, %s: %v", worker, round, spec.Kind, err)
					return
				}
				if err == nil && spec.Handed != nil && handed != 1 && spec.Kind != lockorder.RuleChange {
					t.Errorf("the handed statement was read %d times", handed)
				}
			}
		})
	}
	group.Wait()
}

// TestRendezvousShared has the rendezvous share its key with a declared lock, and with one that is asked for later.
func TestRendezvousShared(t *testing.T) {
	t.Parallel()
	const one = 43
	d := pgtest.New(t)
	db := open(t, d, twoConns)
	db.CollideRendezvous(one)
	look := d.Conn(t)
	key, other := lockorder.CollideAt(lockorder.DomainsKey(), one), lockorder.CollideAt(lockorder.DomainsKey(), 44)
	modes := func() string {
		return query[string](t, look, `SELECT coalesce(string_agg(mode, ' ' ORDER BY mode), '') FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
			WHERE locktype = 'advisory' AND objid = 43`)
	}
	run(t, db, materializing(key), func(ctx context.Context, tx *lockorder.Tx) error {
		if got := modes(); got != "ExclusiveLock" {
			t.Errorf("it is held in the modes %q, want exclusive only", got)
		}
		return nil
	})
	run(t, db, materializing(other), func(ctx context.Context, tx *lockorder.Tx) error {
		if got := modes(); got != "ShareLock" {
			t.Errorf("it is held in the modes %q, want shared", got)
		}
		return nil
	})
	// Asked for later it is tried, and not waited for.
	run(t, db, materializing(), func(ctx context.Context, tx *lockorder.Tx) error { return tx.Lock(ctx, key) })
	exec(t, look, "BEGIN")
	exec(t, look, "SELECT pg_advisory_xact_lock_shared(43)")
	err := db.Run(t.Context(), materializing(), func(ctx context.Context, tx *lockorder.Tx) error { return tx.Lock(ctx, key) })
	exec(t, look, "COMMIT")
	wantVerdict(t, err, lockorder.VerdictBusy)
	wantText(t, err, "its key is that of the rendezvous")
}

// TestCrosswiseCollision has the keys of two classes collide crosswise: ranks do not order them, and the server finds the
// deadlock. One is told so and has done nothing; the other is done; and the first can be done again.
func TestCrosswiseCollision(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t, pgtest.Deadlocks(), pgtest.Setting("deadlock_timeout", "100ms"))
	db := open(t, d, func(o *lockorder.Options) { o.MaxConns, o.LaneShare = 2, 1 })
	look := d.Conn(t)
	exec(t, look, scratch)
	held := make(chan struct{}, 2)
	both := make(chan struct{})
	swap := func(n int, first, second int64, meet bool) error {
		return db.Run(t.Context(), plain(lockorder.CollideAt(lockorder.SubscriptionKey("a"), first)), func(ctx context.Context, tx *lockorder.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO scratch VALUES ($1)", n); err != nil {
				return err
			}
			if meet {
				held <- struct{}{}
				<-both
			}
			return tx.Lock(ctx, lockorder.CollideAt(lockorder.InvoiceKey("a"), second))
		})
	}
	one := start(func() error { return swap(11, 1, 2, true) })
	two := start(func() error { return swap(12, 2, 1, true) })
	receive(t, held, "the first key of one")
	receive(t, held, "the first key of the other")
	close(both)
	errOne, errTwo := receive(t, one, "one"), receive(t, two, "the other")
	again := func() error { return swap(11, 1, 2, false) }
	if errOne == nil {
		errOne, errTwo = errTwo, errOne
		again = func() error { return swap(12, 2, 1, false) }
	}
	wantVerdict(t, errOne, lockorder.VerdictDeadlock)
	if errTwo != nil {
		t.Errorf("the other fails too: %v", errTwo)
	}
	if n := query[int](t, look, "SELECT count(*) FROM scratch WHERE n IN (11, 12)"); n != 1 {
		t.Errorf("%d of the two are done, want one", n)
	}
	if err := again(); err != nil {
		t.Fatal(err)
	}
	if n := query[int](t, look, "SELECT count(*) FROM scratch WHERE n IN (11, 12)"); n != 2 {
		t.Errorf("%d of the two are done at last", n)
	}
}
