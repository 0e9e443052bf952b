package lockorder_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// TestTurnsAndPauses looks at the lengths.
func TestTurnsAndPauses(t *testing.T) {
	t.Parallel()
	lengths := map[time.Duration]bool{}
	for number := 1; number < 50; number++ {
		full := min(lockorder.FirstTurn<<min(number-1, 10), lockorder.LongestTurn)
		for range 20 {
			turn := lockorder.TurnLength(number)
			lengths[turn] = true
			if turn > full || turn < full*4/5 {
				t.Errorf("turn %d lasts %s, want %s or up to a fifth less", number, turn, full)
			}
			if pause := lockorder.PauseAfter(turn); pause < turn || pause < lockorder.LeastPause || pause > 3*time.Second {
				t.Errorf("after a turn of %s the pause is %s", turn, pause)
			}
		}
	}
	if len(lengths) < 500 {
		t.Errorf("only %d different lengths: there is no jitter", len(lengths))
	}
}

// holdShared takes the rendezvous shared until the returned function ends it.
func holdShared(t *testing.T, conn *pgx.Conn) (end func()) {
	t.Helper()
	exec(t, conn, "BEGIN")
	exec(t, conn, "SELECT pg_advisory_xact_lock_shared($1)", rendezvous().Key())
	return func() { exec(t, conn, "COMMIT") }
}

// TestRuleChangeWaitsInTurns lets a rule change wait for a shared holder with one connection: between the turns the
// connection is free and shared takers pass; once the holder is gone, the change gets through.
func TestRuleChangeWaitsInTurns(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	var got atomic.Pointer[lockorder.Event]
	db := open(t, d, oneConn, func(o *lockorder.Options) {
		o.Observe = func(e lockorder.Event) {
			if e.Kind == lockorder.RuleChange {
				got.Store(&e)
			}
		}
	})
	holder, look := d.Conn(t), d.Conn(t)
	end := holdShared(t, holder)
	began := time.Now()
	done := start(func() error { return db.Run(context.Background(), ruleChange(), nothing) })
	for range 2 {
		until(t, "it waits", func() bool { return lockWaiters(t, look, rendezvous()) == 1 })
		until(t, "the turn ends", func() bool { return lockWaiters(t, look, rendezvous()) == 0 })
		if err := db.Run(t.Context(), materializing(), nothing); err != nil {
			t.Errorf("in the pause: %v", err)
		}
	}
	end()
	if err := receive(t, done, "the rule change"); err != nil {
		t.Fatal(err)
	}
	if e := got.Load(); e.Turn < 3 || e.Waited < time.Second || e.Waited > time.Since(began) {
		t.Errorf("it got the rendezvous in turn %d after %s", e.Turn, e.Waited)
	}
	if n := db.Stat().NewConnsCount(); n != 1 {
		t.Errorf("%d connections were made, want one", n)
	}
}

// TestChangeInProgress lets the budget of a rule change end: while the rendezvous, a declared key, or a row is busy.
func TestChangeInProgress(t *testing.T) {
	t.Parallel()
	const budget = 2 * time.Second
	key := subscriptions(1)[0]
	for name, test := range map[string]struct {
		spec lockorder.Spec
		hold string
		arg  func(row lockorder.Lock) any
		fn   bool // locks the row
	}{
		"the rendezvous": {ruleChange(), "SELECT pg_advisory_xact_lock_shared($1)", func(lockorder.Lock) any { return rendezvous().Key() }, false},
		"a declared key": {ruleChange(key), "SELECT pg_advisory_xact_lock($1)", func(lockorder.Lock) any { return key.Key() }, false},
		"a row":          {ruleChange(), "SELECT FROM core.pools WHERE id = $1 FOR NO KEY UPDATE", func(row lockorder.Lock) any { return identity(row) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := pgtest.New(t)
			db := open(t, d, func(o *lockorder.Options) { o.RuleChangeBudget = budget })
			holder, look := d.Conn(t), d.Conn(t)
			row := pools(t, holder, 1)[0]
			exec(t, holder, "BEGIN")
			exec(t, holder, test.hold, test.arg(row))
			began, runs := time.Now(), 0
			err := db.Run(t.Context(), test.spec, func(ctx context.Context, tx *lockorder.Tx) error {
				runs++
				if test.fn {
					return tx.Lock(ctx, row)
				}
				return nil
			})
			took := time.Since(began)
			wantVerdict(t, err, lockorder.VerdictBusy)
			if !errors.Is(err, lockorder.ErrChangeInProgress) || !errors.Is(err, lockorder.ErrBusy) {
				t.Errorf("the error is %v", err)
			}
			wantText(t, err, "change in progress", "turns in")
			if took > budget+budget/10 || took < budget/4 {
				t.Errorf("a budget of %s took %s", budget, took)
			}
			if test.fn && runs < 2 || !test.fn && runs != 0 {
				t.Errorf("fn ran %d times", runs)
			}
			if n := query[int](t, look, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"); n != 1 {
				t.Errorf("%d transactions are open, want the holder's", n)
			}
			exec(t, holder, "COMMIT")
			run(t, db, test.spec, nothing)
		})
	}
}

// TestBusyRowEndsTheTurn frees a row between two turns: fn runs again and commits, and the first run has left nothing.
func TestBusyRowEndsTheTurn(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d)
	holder, look := d.Conn(t), d.Conn(t)
	exec(t, look, scratch)
	row := pools(t, holder, 1)[0]
	for _, how := range []string{"a lock", "a lock, swallowed", "a write"} {
		exec(t, look, "UPDATE scratch SET v = 0")
		exec(t, holder, "BEGIN")
		exec(t, holder, "SELECT FROM core.pools WHERE id = $1 FOR NO KEY UPDATE", identity(row))
		runs := 0
		run(t, db, ruleChange(), func(ctx context.Context, tx *lockorder.Tx) error {
			if runs++; runs == 2 {
				exec(t, holder, "COMMIT")
			}
			if _, err := tx.Exec(ctx, "UPDATE scratch SET v = v + 1 WHERE n = 1"); err != nil {
				return err
			}
			if how == "a write" {
				_, err := tx.Exec(ctx, "UPDATE core.pools SET name = name WHERE id = $1", identity(row))
				return err
			}
			err := tx.Lock(ctx, row)
			if how == "a lock, swallowed" {
				return nil
			}
			return err
		})
		if n := query[int](t, look, "SELECT v FROM scratch WHERE n = 1"); n != 1 || runs != 2 {
			t.Errorf("%s: fn ran %d times and the row was changed %d times; want twice and once", how, runs, n)
		}
	}
}

// TestHeldTooLong exceeds the budget of the exclusive hold: in a statement, in Go, in many short statements.
func TestHeldTooLong(t *testing.T) {
	t.Parallel()
	const hold = 300 * time.Millisecond
	d := pgtest.New(t)
	db := open(t, d, oneConn, func(o *lockorder.Options) { o.ExclusiveHold = hold })
	look := d.Conn(t)
	exec(t, look, scratch)
	for name, fn := range map[string]func(ctx context.Context, tx *lockorder.Tx) error{
		"a statement": func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := tx.Exec(ctx, "SELECT pg_sleep(9)")
			return err
		},
		"a statement on a context of its own": func(_ context.Context, tx *lockorder.Tx) error {
			_, err := tx.Exec(context.Background(), "SELECT pg_sleep(9)")
			return err
		},
		"Go": func(ctx context.Context, tx *lockorder.Tx) error {
			<-ctx.Done()
			return nil
		},
		"many statements": func(ctx context.Context, tx *lockorder.Tx) error {
			for {
				if _, err := tx.Exec(ctx, "UPDATE scratch SET v = v + 1 WHERE n = 1"); err != nil {
					return err
				}
			}
		},
	} {
		runs, began := 0, time.Now()
		err := db.Run(t.Context(), ruleChange(), func(ctx context.Context, tx *lockorder.Tx) error {
			runs++
			return fn(ctx, tx)
		})
		wantVerdict(t, err, lockorder.VerdictHeldTooLong)
		if !errors.Is(err, lockorder.ErrHeldTooLong) || errors.Is(err, lockorder.ErrBusy) || runs != 1 {
			t.Errorf("%s: after %d runs: %v", name, runs, err)
		}
		if took := time.Since(began); took < hold || took > hold+400*time.Millisecond {
			t.Errorf("%s: it took %s", name, took)
		}
	}
	if n := query[int](t, look, "SELECT v FROM scratch WHERE n = 1"); n != 0 {
		t.Errorf("%d updates were committed", n)
	}
	run(t, db, ruleChange(), nothing)
	run(t, db, materializing(), func(ctx context.Context, tx *lockorder.Tx) error { // only the exclusive hold is budgeted
		_, err := tx.Exec(ctx, "SELECT pg_sleep(0.5)")
		return err
	})
	if n := db.Stat().NewConnsCount(); n != 1 {
		t.Errorf("%d connections were made, want one", n)
	}
}

// TestRuleChangeCancelledInThePause cancels the caller between two turns.
func TestRuleChangeCancelledInThePause(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d, oneConn)
	holder, look := d.Conn(t), d.Conn(t)
	defer holdShared(t, holder)()
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the worker stops")
	done := start(func() error { return db.Run(ctx, ruleChange(), nothing) })
	until(t, "it waits", func() bool { return lockWaiters(t, look, rendezvous()) == 1 })
	until(t, "the turn ends", func() bool { return db.Stat().AcquiredConns() == 0 })
	cancel(cause)
	err := receive(t, done, "the rule change")
	wantVerdict(t, err, lockorder.VerdictCancelled)
	if !errors.Is(err, cause) {
		t.Errorf("the cause is lost: %v", err)
	}
}

// TestPoliteExclusive is the promise: beside one long shared holder and one rule change, each of 200 materializing
// transactions that has a lane place is delayed by at most one turn, the exclusive hold and its own service; one that is
// refused passes at its next attempts; and the rule change gets through once the holder is gone.
func TestPoliteExclusive(t *testing.T) {
	t.Parallel()
	const (
		work    = 100 * time.Millisecond // of the rule change
		service = 300 * time.Millisecond // of one materializing transaction on a machine that is busy with other tests
	)
	count := rounds(200)
	d := pgtest.New(t)
	var mu sync.Mutex
	var shared, exclusive, total durations
	db := open(t, d, func(o *lockorder.Options) {
		o.MaxConns = 8
		o.Observe = func(e lockorder.Event) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case e.Took.Class() != lockorder.Materialization:
			case e.Kind == lockorder.RuleChange:
				exclusive = append(exclusive, e.Waited)
			default:
				shared = append(shared, e.Waited)
			}
		}
	})
	holder := d.Conn(t)
	rows := pools(t, holder, 20)
	end := holdShared(t, holder)
	change := start(func() error {
		return db.Run(context.Background(), ruleChange(), func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := tx.Exec(ctx, "SELECT pg_sleep($1)", work.Seconds())
			return err
		})
	})
	var refused atomic.Int32
	var group sync.WaitGroup
	limit := make(chan struct{}, 7) // so many at a time: the pool's other connection is the rule change's
	ticks := time.NewTicker(25 * time.Millisecond)
	defer ticks.Stop()
	for i := range count {
		<-ticks.C
		if i == count*3/4 {
			end()
		}
		group.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			for attempt := 1; ; attempt++ {
				began := time.Now()
				err := db.Run(context.Background(), materializing(), func(ctx context.Context, tx *lockorder.Tx) error { return tx.Lock(ctx, rows[i%len(rows)]) })
				took := time.Since(began)
				mu.Lock()
				total = append(total, took)
				mu.Unlock()
				if err == nil {
					if most := lockorder.LongestTurn + work + service; took > most {
						t.Errorf("transaction %d took %s, at most %s is promised", i, took, most)
					}
					return
				}
				refused.Add(1)
				if !errors.Is(err, lockorder.ErrBusy) || attempt == 8 {
					t.Errorf("transaction %d, attempt %d: %v", i, attempt, err)
					return
				}
				if took > time.Second {
					t.Errorf("transaction %d was refused after %s, want at once", i, took)
				}
				time.Sleep(lockorder.LeastPause) // the first back-off of a caller that was refused
			}
		})
	}
	group.Wait()
	if err := receive(t, change, "the rule change"); err != nil {
		t.Errorf("the rule change: %v", err)
	}
	t.Logf("materializing: waits %s; whole %s; %d refusals of %d", shared, total, refused.Load(), len(total))
	t.Logf("rule change: got the rendezvous after %s", exclusive)
	if len(shared) != count || len(exclusive) != 1 {
		t.Errorf("%d materializing transactions and %d rule changes got the rendezvous", len(shared), len(exclusive))
	}
}
