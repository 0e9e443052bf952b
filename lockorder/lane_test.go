package lockorder_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// TestLane lets many want one lock on a pool of five: two wait, all others are refused at once, and unrelated work flows.
func TestLane(t *testing.T) {
	t.Parallel()
	key := subscriptions(1)[0]
	for name, test := range map[string]struct {
		spec lockorder.Spec
		hold func(holder *pgx.Conn, row lockorder.Lock) // what the holder takes
		fn   func(row lockorder.Lock) func(ctx context.Context, tx *lockorder.Tx) error
	}{
		"a key, at opening": {plain(key), func(holder *pgx.Conn, _ lockorder.Lock) {
			exec(t, holder, "SELECT pg_advisory_xact_lock($1)", key.Key())
		}, func(lockorder.Lock) func(context.Context, *lockorder.Tx) error { return nothing }},
		"a key, later": {plain(), func(holder *pgx.Conn, _ lockorder.Lock) {
			exec(t, holder, "SELECT pg_advisory_xact_lock($1)", key.Key())
		}, func(lockorder.Lock) func(context.Context, *lockorder.Tx) error {
			return func(ctx context.Context, tx *lockorder.Tx) error { return tx.Lock(ctx, key) }
		}},
		"the rendezvous": {materializing(), func(holder *pgx.Conn, _ lockorder.Lock) {
			exec(t, holder, "SELECT pg_advisory_xact_lock($1)", rendezvous().Key())
		}, func(lockorder.Lock) func(context.Context, *lockorder.Tx) error { return nothing }},
		"a row": {materializing(), func(holder *pgx.Conn, row lockorder.Lock) {
			exec(t, holder, "UPDATE core.pools SET name = name WHERE id = $1", identity(row))
		}, func(row lockorder.Lock) func(context.Context, *lockorder.Tx) error {
			return func(ctx context.Context, tx *lockorder.Tx) error { return tx.Lock(ctx, row) }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := pgtest.New(t)
			db := open(t, d, func(o *lockorder.Options) { o.MaxConns, o.LockTimeout, o.Budget = 5, 30*time.Second, 40*time.Second })
			limited := db.Limited(100) // its own limit is far; the lane is the same
			holder, look := d.Conn(t), d.Conn(t)
			rows := pools(t, holder, 2)
			exec(t, holder, "BEGIN")
			test.hold(holder, rows[0])

			const waiters = 40
			done := make(chan error, waiters)
			for i := range waiters {
				by := db
				if i%2 == 1 {
					by = limited
				}
				go func() { done <- by.Run(context.Background(), test.spec, test.fn(rows[0])) }()
			}
			for range waiters - 2 {
				err := receive(t, done, "a refusal")
				wantVerdict(t, err, lockorder.VerdictBusy)
				wantText(t, err, "the lane is full: 2 already wait")
			}
			until(t, "two wait", func() bool { return waiting(t, look) == 2 })
			for range 50 {
				began := time.Now()
				run(t, db, plain(lockorder.SubscriptionKey("sub_other")), func(ctx context.Context, tx *lockorder.Tx) error { return tx.Lock(ctx, rows[1]) })
				if took := time.Since(began); took > time.Second {
					t.Errorf("unrelated work took %s", took)
				}
			}
			exec(t, holder, "COMMIT")
			for range 2 {
				if err := receive(t, done, "a waiter"); err != nil {
					t.Error(err)
				}
			}
			// Their places are free again: as many may wait once more.
			exec(t, holder, "BEGIN")
			test.hold(holder, rows[0])
			for range 2 {
				go func() { done <- db.Run(context.Background(), test.spec, test.fn(rows[0])) }()
			}
			until(t, "two wait again", func() bool { return waiting(t, look) == 2 })
			exec(t, holder, "COMMIT")
			for range 2 {
				if err := receive(t, done, "a waiter"); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// waiting counts the backends of this database that wait for a lock.
func waiting(t *testing.T, look *pgx.Conn) int {
	t.Helper()
	return query[int](t, look, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
}

// TestLanePlaceIsGivenBack ends waits in every way on a lane of one place.
func TestLanePlaceIsGivenBack(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t, pgtest.Setting("deadlock_timeout", "20ms"))
	db := open(t, d, oneConn, func(o *lockorder.Options) { o.LockTimeout = 100 * time.Millisecond })
	holder, look := d.Conn(t), d.Conn(t)
	row := pools(t, holder, 1)[0]
	key := subscriptions(1)[0]
	exec(t, holder, "BEGIN")
	exec(t, holder, "SELECT pg_advisory_xact_lock($1)", key.Key())
	exec(t, holder, "SELECT FROM core.pools WHERE id = $1 FOR NO KEY UPDATE", identity(row))
	lock := func(l lockorder.Lock) func(ctx context.Context, tx *lockorder.Tx) error {
		return func(ctx context.Context, tx *lockorder.Tx) error { return tx.Lock(ctx, l) }
	}
	for _, l := range []lockorder.Lock{key, row} {
		for range 3 { // a place that were kept would answer busy
			wantVerdict(t, db.Run(t.Context(), plain(), lock(l)), lockorder.VerdictLockTimeout)
			ctx, cancel := context.WithCancel(t.Context())
			done := start(func() error { return db.Run(ctx, plain(), lock(l)) })
			until(t, "it waits, or has waited", func() bool { return anyWaits(t, look) || len(done) > 0 })
			cancel()
			if v := lockorder.VerdictOf(receive(t, done, "the cancelled one")); v != lockorder.VerdictCancelled && v != lockorder.VerdictLockTimeout {
				t.Errorf("the verdict is %q", v)
			}
		}
	}
}

// TestRefusedLockIsNotCommitted swallows the refusal of a lock.
func TestRefusedLockIsNotCommitted(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d, twoConns)
	holder, look := d.Conn(t), d.Conn(t)
	exec(t, look, scratch)
	keys := subscriptions(2)
	exec(t, holder, "BEGIN")
	exec(t, holder, "SELECT pg_advisory_xact_lock($1)", keys[0].Key())
	first := start(func() error { return db.Run(t.Context(), plain(keys[0]), nothing) })
	until(t, "the lane is full", func() bool { return waiting(t, look) == 1 })
	err := db.Run(t.Context(), plain(), func(ctx context.Context, tx *lockorder.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO scratch VALUES (7)"); err != nil {
			return err
		}
		if err := tx.Lock(ctx, keys[0]); !errors.Is(err, lockorder.ErrBusy) {
			t.Errorf("the lock is not refused: %v", err)
		}
		return nil
	})
	wantVerdict(t, err, lockorder.VerdictBusy)
	exec(t, holder, "COMMIT")
	if err := receive(t, first, "the waiter"); err != nil {
		t.Error(err)
	}
	if n := query[int](t, look, "SELECT count(*) FROM scratch WHERE n = 7"); n != 0 {
		t.Error("a transaction without its lock was committed")
	}
}
