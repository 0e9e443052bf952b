package lockorder_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// TestSpecBudget replaces the budget of one transaction.
func TestSpecBudget(t *testing.T) {
	t.Parallel()
	db := open(t, pgtest.New(t))
	spec := plain()
	spec.Budget = 100 * time.Millisecond
	began := time.Now()
	err := db.Run(t.Context(), spec, func(ctx context.Context, tx *lockorder.Tx) error {
		<-ctx.Done()
		return ctx.Err()
	})
	wantVerdict(t, err, lockorder.VerdictBusy)
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("a budget of 100 ms took %s", took)
	}
}

// TestLockTimeout ends a wait before the budget does.
func TestLockTimeout(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t, pgtest.Setting("deadlock_timeout", "100ms"))
	db := open(t, d, func(o *lockorder.Options) { o.LockTimeout = 300 * time.Millisecond })
	holder := d.Conn(t)
	row := pools(t, holder, 1)[0]
	key := subscriptions(1)[0]
	exec(t, holder, "BEGIN")
	exec(t, holder, "SELECT pg_advisory_xact_lock($1)", key.Key())
	exec(t, holder, "UPDATE core.pools SET name = name WHERE id = $1", identity(row))
	for what, fn := range map[string]func(ctx context.Context, tx *lockorder.Tx) error{
		"the key": func(ctx context.Context, tx *lockorder.Tx) error { return tx.Lock(ctx, key) },
		"the row": func(ctx context.Context, tx *lockorder.Tx) error { return tx.Lock(ctx, row) },
		"a write": func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE core.pools SET name = name WHERE id = $1", identity(row))
			return err
		},
	} {
		began := time.Now()
		err := db.Run(t.Context(), plain(), fn)
		wantVerdict(t, err, lockorder.VerdictLockTimeout)
		if took := time.Since(began); took < 250*time.Millisecond || took > 3*time.Second {
			t.Errorf("%s was waited for %s, want 300 ms", what, took)
		}
		var e *lockorder.Error
		if errors.As(err, &e); what != "a write" && e.Doing == "" {
			t.Errorf("the error does not say that %s was waited for: %v", what, err)
		}
	}
}

// TestWaitNotBegun has a server whose deadlock timer outlasts what is left: a busy lock is refused at once, a free one
// is had.
func TestWaitNotBegun(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t, pgtest.Setting("deadlock_timeout", "3s"))
	db := open(t, d)
	holder := d.Conn(t)
	rows := pools(t, holder, 2)
	keys := subscriptions(2)
	exec(t, holder, "BEGIN")
	exec(t, holder, "SELECT pg_advisory_xact_lock($1)", keys[0].Key())
	exec(t, holder, "SELECT FROM core.pools WHERE id = $1 FOR NO KEY UPDATE", identity(rows[0]))

	attempt := func(keys []lockorder.Lock, fn func(ctx context.Context, tx *lockorder.Tx) error) error {
		t.Helper()
		spec := plain(keys...)
		spec.Budget = 2900 * time.Millisecond
		began := time.Now()
		err := db.Run(t.Context(), spec, fn)
		if took := time.Since(began); took > 1500*time.Millisecond {
			t.Errorf("it took %s to answer %v", took, err)
		}
		return err
	}
	lock := func(l lockorder.Lock) func(ctx context.Context, tx *lockorder.Tx) error {
		return func(ctx context.Context, tx *lockorder.Tx) error { return tx.Lock(ctx, l) }
	}
	wantVerdict(t, attempt(keys[:1], nothing), lockorder.VerdictBusy)
	wantVerdict(t, attempt(nil, lock(keys[0])), lockorder.VerdictBusy)
	wantVerdict(t, attempt(nil, lock(rows[0])), lockorder.VerdictBusy)
	for _, free := range []lockorder.Lock{keys[1], rows[1]} {
		if err := attempt(nil, lock(free)); err != nil {
			t.Errorf("%s is free and cannot be had: %v", free, err)
		}
	}
	if err := attempt(keys[1:], nothing); err != nil {
		t.Errorf("a free key cannot be had at opening: %v", err)
	}
}

// TestNothingWaitsUnderTheExclusiveRendezvous asks for busy locks in a rule change.
func TestNothingWaitsUnderTheExclusiveRendezvous(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d, func(o *lockorder.Options) { o.RuleChangeBudget = 400 * time.Millisecond }) // one turn
	holder := d.Conn(t)
	rows := pools(t, holder, 2)
	keys := subscriptions(2)
	exec(t, holder, "BEGIN")
	exec(t, holder, "SELECT pg_advisory_xact_lock($1)", keys[0].Key())
	exec(t, holder, "UPDATE core.pools SET name = name WHERE id = $1", identity(rows[0]))

	attempt := func(spec lockorder.Spec, fn func(ctx context.Context, tx *lockorder.Tx) error) error {
		t.Helper()
		began := time.Now()
		err := db.Run(t.Context(), spec, fn)
		if took := time.Since(began); took > 900*time.Millisecond { // one more than deadlock_timeout would be a wait
			t.Errorf("it took %s to answer %v", took, err)
		}
		return err
	}
	wantVerdict(t, attempt(ruleChange(keys[0]), nothing), lockorder.VerdictBusy)
	for _, l := range []lockorder.Lock{keys[0], rows[0]} {
		least := time.Hour
		for range 5 { // a machine that is busy itself may be slow once
			wantVerdict(t, attempt(ruleChange(), func(ctx context.Context, tx *lockorder.Tx) error {
				began := time.Now()
				defer func() { least = min(least, time.Since(began)) }()
				return tx.Lock(ctx, l)
			}), lockorder.VerdictBusy)
		}
		if least > 80*time.Millisecond { // what an unannounced wait may take is 100 ms
			t.Errorf("%s was waited for, %s at least, rather than tried", l, least)
		}
	}
	wantVerdict(t, attempt(ruleChange(), func(ctx context.Context, tx *lockorder.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE core.pools SET name = name WHERE id = $1", identity(rows[0]))
		if lockorder.SQLState(err) != "55P03" {
			t.Errorf("a write of a busy row answers %v", err)
		}
		return err
	}), lockorder.VerdictBusy)
	if err := attempt(ruleChange(keys[1]), func(ctx context.Context, tx *lockorder.Tx) error { return tx.Lock(ctx, rows[1]) }); err != nil {
		t.Errorf("free locks cannot be had: %v", err)
	}

	// The rendezvous itself is waited for, and after that wait too nothing waits.
	other := d.Conn(t)
	exec(t, other, "BEGIN")
	exec(t, other, "SELECT pg_advisory_xact_lock_shared($1)", rendezvous().Key())
	ran := false
	done := start(func() error {
		spec := ruleChange()
		spec.Budget = 3 * time.Second
		return db.Run(t.Context(), spec, func(ctx context.Context, tx *lockorder.Tx) error {
			ran = true
			began := time.Now()
			defer func() {
				if took := time.Since(began); took > 900*time.Millisecond {
					t.Errorf("the statement waited %s", took)
				}
			}()
			_, err := tx.Exec(ctx, "UPDATE core.pools SET name = name WHERE id = $1", identity(rows[0]))
			return err
		})
	})
	until(t, "the rule change waits", func() bool { return lockWaiters(t, holder, rendezvous()) == 1 })
	exec(t, other, "COMMIT")
	wantVerdict(t, receive(t, done, "the rule change"), lockorder.VerdictBusy)
	if !ran {
		t.Error("the rule change got no turn")
	}
}
