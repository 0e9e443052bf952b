package lockorder_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// TestCancelAtAnyInstant cancels the caller at random instants of a transaction: the connection lives on, holds nothing,
// and its next statement is not hit. Eight connections share the rounds, all at the same time, since each cancelled
// statement takes pgx a tenth of a second.
func TestCancelAtAnyInstant(t *testing.T) {
	t.Parallel()
	var group sync.WaitGroup
	for part := range 8 {
		group.Go(cancelRounds(t, uint64(part), 50))
	}
	group.Wait()
}

// cancelRounds prepares a connection to a database of its own, where a pooler too has one backend for it; what it returns
// runs the rounds, on any goroutine.
func cancelRounds(t *testing.T, seed uint64, count int) func() {
	t.Helper()
	d := pgtest.New(t)
	db := open(t, d, oneConn)
	look := d.Conn(t)
	rows := pools(t, look, 2)
	keys := subscriptions(2)
	random := rand.New(rand.NewPCG(seed, 1))
	body := func(ctx context.Context, tx *lockorder.Tx) error {
		if err := tx.Lock(ctx, rows...); err != nil {
			return err
		}
		for range 3 {
			if _, err := tx.Exec(ctx, "UPDATE core.pools SET name = name WHERE id = $1", identity(rows[0])); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "SELECT pg_sleep(0.0005)"); err != nil {
				return err
			}
		}
		return nil
	}
	var pid uint32
	run(t, db, materializing(keys...), func(ctx context.Context, tx *lockorder.Tx) error {
		pid = tx.PID()
		return body(ctx, tx)
	})
	began := time.Now()
	run(t, db, materializing(keys...), body) // everything is prepared by now
	span := 2 * time.Since(began)
	return func() {
		cancelled, done := 0, 0
		for round := range count {
			ctx, cancel := context.WithCancel(t.Context())
			timer := time.AfterFunc(time.Duration(random.Int64N(int64(span))), cancel)
			err := db.Run(ctx, materializing(keys...), body)
			timer.Stop()
			cancel()
			switch {
			case err == nil:
				done++
			case lockorder.VerdictOf(err) == lockorder.VerdictCancelled:
				cancelled++
			default:
				t.Errorf("connection %d, round %d: %v", seed, round, err)
			}
			// pg_locks on another connection, then the same connection again.
			var n int
			if err := look.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE pid = $1", int64(pid)).Scan(&n); n != 0 || err != nil {
				t.Errorf("connection %d, round %d: %d locks remain (%v)", seed, round, n, err)
			}
			if err := db.Run(t.Context(), plain(), func(ctx context.Context, tx *lockorder.Tx) error {
				if tx.PID() != pid {
					t.Errorf("connection %d, round %d: the connection was lost", seed, round)
					pid = tx.PID()
				}
				_, err := tx.Exec(ctx, "SELECT pg_sleep(0.001)")
				return err
			}); err != nil {
				t.Errorf("connection %d, round %d: the next transaction: %v", seed, round, err)
			}
		}
		if cancelled == 0 || done == 0 {
			t.Errorf("connection %d: %d rounds were cancelled and %d were not: the instants do not spread", seed, cancelled, done)
		}
		t.Logf("connection %d: %d rounds were cancelled and %d were not", seed, cancelled, done)
	}
}

// TestCancelledWaiters cancels transactions that wait: for a key, for a row, and for a connection.
func TestCancelledWaiters(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d, oneConn)
	look, holder := d.Conn(t), d.Conn(t)
	row := pools(t, look, 1)[0]
	key := subscriptions(1)[0]
	exec(t, holder, "BEGIN")
	exec(t, holder, "SELECT pg_advisory_xact_lock($1)", key.Key())
	exec(t, holder, "SELECT FROM core.pools WHERE id = $1 FOR NO KEY UPDATE", identity(row))
	cause := errors.New("the worker stops")
	lockRow := func(ctx context.Context, tx *lockorder.Tx) error { return tx.Lock(ctx, row) }
	for name, test := range map[string]struct {
		spec lockorder.Spec
		fn   func(ctx context.Context, tx *lockorder.Tx) error
	}{
		"for a key": {plain(key), nothing},
		"for a row": {plain(), lockRow},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		done := start(func() error { return db.Run(ctx, test.spec, test.fn) })
		until(t, "it waits", func() bool { return anyWaits(t, look) })

		// Another waits for the one connection meanwhile.
		waitCtx, waitCancel := context.WithCancel(t.Context())
		waiting := start(func() error { return db.Run(waitCtx, plain(), nothing) })
		until(t, "the other waits for the connection", func() bool { return db.Stat().EmptyAcquireCount() > 0 || db.Stat().AcquiredConns() == 1 })
		waitCancel()
		wantVerdict(t, receive(t, waiting, "the one that waits for a connection"), lockorder.VerdictCancelled)

		cancel(cause)
		wantVerdict(t, receive(t, done, name), lockorder.VerdictCancelled)
		if anyWaits(t, look) {
			t.Errorf("%s: it still waits on the server", name)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	err := db.Run(ctx, plain(), func(context.Context, *lockorder.Tx) error {
		cancel(cause)
		return nil
	})
	wantVerdict(t, err, lockorder.VerdictCancelled)
	if !errors.Is(err, cause) {
		t.Errorf("the cause is lost: %v", err)
	}
	if n := db.Stat().NewConnsCount(); n != 1 {
		t.Errorf("%d connections were made, want one", n)
	}
}
