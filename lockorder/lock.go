package lockorder

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Lock takes locks, in any order and with repeats: they are sorted here, and those already held cost nothing.
// It answers an error that wraps ErrOrder, before any SQL, when one of them ranks below a lock already held; ErrNoRow
// when a row does not exist. After Now no new lock may be taken, since that clock was read under fewer.
func (tx *Tx) Lock(ctx context.Context, locks ...Lock) error {
	missing, err := tx.LockExisting(ctx, locks...)
	if err == nil && len(missing) > 0 {
		err = failedStep("locking "+missing[0].String(), ErrNoRow)
	}
	return err
}

// LockExisting is Lock for rows that may not exist: it returns those that do not. They are not held, and nothing keeps
// others from inserting them.
func (tx *Tx) LockExisting(ctx context.Context, locks ...Lock) (missing []Lock, err error) {
	wanted, err := tx.admit(locks)
	if err != nil {
		return nil, failedStep("locking", err)
	}
	ctx, cancel := tx.bound(ctx)
	defer cancel()
	return tx.take(ctx, wanted)
}

// take takes sorted locks: keys, and rows class by class, each such run in one flight while nothing in it is busy.
func (tx *Tx) take(ctx context.Context, wanted []Lock) (missing []Lock, err error) {
	for len(wanted) > 0 {
		first, n := wanted[0].class, 1
		for n < len(wanted) && (wanted[n].class == first || first.Kind == Advisory && wanted[n].class.Kind == Advisory) {
			n++
		}
		if first.Kind == Row {
			gone, err := tx.takeRows(ctx, wanted[:n])
			if err != nil {
				return nil, err
			}
			missing = append(missing, gone...)
		} else if err := tx.takeKeys(ctx, wanted[:n]); err != nil {
			return nil, err
		}
		wanted = wanted[n:]
	}
	return missing, nil
}

// admit returns the locks still to be taken, sorted, or why they may not be.
func (tx *Tx) admit(locks []Lock) ([]Lock, error) {
	if tx.done {
		return nil, ErrDone
	}
	var wanted []Lock
	for _, l := range locks {
		if err := l.Err(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrForbidden, err)
		}
		if tx.held[l.id()] {
			continue
		}
		if err := checkAskable(l); err != nil {
			return nil, err
		}
		wanted = append(wanted, l)
	}
	wanted = sorted(wanted)
	if len(wanted) == 0 {
		return nil, nil
	}
	if tx.top.class != nil && compare(wanted[0], tx.top) < 0 {
		return nil, fmt.Errorf("%w: %s was asked for while %s is held; ask for %s before %s, or for both at once",
			ErrOrder, wanted[0], tx.top, wanted[0], tx.top)
	}
	if !tx.now.IsZero() {
		return nil, fmt.Errorf("%w: %s was asked for after the transaction's time was read; read the time under all locks", ErrOrder, wanted[0])
	}
	advisory := tx.advisory
	for _, l := range wanted {
		if l.class.Kind == Advisory {
			advisory++
		}
	}
	if advisory > MaxKeys {
		return nil, fmt.Errorf("%w: %d asked for, %d allowed", ErrTooManyKeys, advisory, MaxKeys)
	}
	return wanted, nil
}

// briefWait bounds the waits that nobody announced (a unique key, a page of a table) under the exclusive rendezvous,
// where no named lock is waited for.
const briefWait = 100 * time.Millisecond

// mayWait takes a place in the lane for a wait for a busy lock, and answers how long it may last; or why it may not
// begin. It may not while the exclusive rendezvous is held; nor when it could not outlast the deadlock timer, since a
// deadlock would show as a time-out; nor when the lane is full. The transaction cannot be committed then.
func (tx *Tx) mayWait() (timeout time.Duration, leave func(), err error) {
	left := time.Until(tx.deadline)
	switch {
	case tx.exclusive():
		err = errExclusiveWaits
	case left <= tx.db.deadlockTimeout && tx.turn == nil:
		err = fmt.Errorf("another transaction holds it, and the server's deadlock_timeout exceeds what is left: %w", errBudget)
	default:
		leave, err = tx.db.lane.enter()
	}
	if err != nil {
		tx.lost = err
		tx.endTurn()
		return 0, nil, err
	}
	if tx.turn != nil { // for the rendezvous: nothing is held, so the wait may be shorter than the deadlock timer
		return min(tx.turn.length, left), leave, nil
	}
	return min(tx.db.opts.LockTimeout, left), leave, nil
}

// mayWaitFor is mayWait for a key. One that is held shared already, as the rendezvous, and was asked for under another
// class's name later, is not waited for: two who do so would wait for each other.
func (tx *Tx) mayWaitFor(k Lock) (timeout time.Duration, leave func(), err error) {
	if k.class != Materialization && tx.shared != nil && *tx.shared == k.key {
		tx.lost = fmt.Errorf("its key is that of the rendezvous, which is held shared: %w", ErrBusy)
		return 0, nil, tx.lost
	}
	return tx.mayWait()
}

// exclusive tells whether the exclusive rendezvous is held.
func (tx *Tx) exclusive() bool { return tx.spec.Kind == RuleChange && tx.top.class != nil }

// explain says what a lock time-out means: under the exclusive rendezvous, that something was busy; where the wait was
// cut to what was left of the budget, that the budget has ended.
func (tx *Tx) explain(err error) error {
	timedOut := SQLState(err) == "55P03"
	switch {
	case timedOut && tx.exclusive():
		tx.endTurn()
		return fmt.Errorf("%w: %w", errExclusiveWaits, err)
	case timedOut && tx.turn != nil:
		tx.endTurn()
		return fmt.Errorf("another transaction holds it, and the turn of %s is over: %w: %w", tx.turn.length.Round(time.Millisecond), ErrBusy, err)
	case tx.turn != nil && !tx.exclusive() && time.Until(tx.deadline) <= 0: // the budget cut the turn short
		tx.endTurn()
		return err
	case !timedOut:
		return err
	case time.Until(tx.deadline) < briefWait:
		return fmt.Errorf("%w: %w", errBudget, err)
	}
	return err
}

// endTurn says that something was busy, so that a rule change takes another turn.
func (tx *Tx) endTurn() {
	if tx.turn != nil {
		tx.turn.over = true
	}
}

// takeKeys takes advisory keys in order: tried up to the first that is busy; that one is waited for, in the lane, and
// then the rest is tried.
func (tx *Tx) takeKeys(ctx context.Context, keys []Lock) error {
	for len(keys) > 0 {
		args := make([]any, len(keys))
		for i, k := range keys {
			args[i] = k.key
		}
		var got int
		if err := tx.conn.QueryRow(ctx, tryKeysSQL(len(keys)), args...).Scan(&got); err != nil {
			return failedStep("locking "+keys[0].String(), err)
		}
		for _, k := range keys[:got] {
			tx.note(ctx, k, 0)
		}
		if keys = keys[got:]; len(keys) == 0 {
			return nil
		}
		if err := tx.waitForKey(ctx, keys[0]); err != nil {
			return failedStep("waiting for "+keys[0].String(), err)
		}
		keys = keys[1:]
	}
	return nil
}

// waitForKey waits for one busy key, in the lane.
func (tx *Tx) waitForKey(ctx context.Context, k Lock) error {
	timeout, leave, err := tx.mayWaitFor(k)
	if err != nil {
		return tx.refused(ctx, k, 0, err)
	}
	defer leave()
	shared := ""
	if k.class == Materialization && tx.shared != nil {
		shared = "_shared"
	}
	// Statements of one message are statements of their own: the time-out is set before the wait begins, and the
	// rendezvous is announced after it has ended.
	var sql strings.Builder
	fmt.Fprintf(&sql, "%sSELECT set_config('lock_timeout', '%s', true); SELECT pg_advisory_xact_lock%s(%d)", waitComment(k, tx.spec.Path), millis(timeout), shared, k.key)
	if k.class == Materialization {
		fmt.Fprintf(&sql, "; SELECT set_config('lockorder.rendezvous', '%s', true)", tx.spec.Kind.rendezvous())
		if tx.spec.Kind == RuleChange {
			fmt.Fprintf(&sql, ", set_config('lock_timeout', '%s', true)", millis(briefWait))
		}
	}
	begun := time.Now()
	if _, err := tx.conn.Exec(ctx, sql.String()); err != nil {
		return tx.refused(ctx, k, time.Since(begun), tx.explain(err))
	}
	tx.note(ctx, k, time.Since(begun))
	return nil
}

// note records that a lock is held, and how long it was waited for.
func (tx *Tx) note(ctx context.Context, l Lock, waited time.Duration) {
	if tx.turn != nil && l.class == Materialization {
		tx.granted()
		waited = time.Since(tx.turn.began)
	}
	tx.observe(ctx, l, waited)
	tx.held[l.id()] = true
	if l.class.Kind == Advisory {
		tx.advisory++
	}
	if tx.top.class == nil || compare(l, tx.top) > 0 {
		tx.top = l
	}
}

// Require answers an error that wraps ErrNotHeld unless every one of the locks is held. Functions that rely on a
// lock begin with it.
func (tx *Tx) Require(locks ...Lock) error {
	if tx.done {
		return failedStep("requiring a lock", ErrDone)
	}
	for _, l := range locks {
		if err := l.Err(); err != nil {
			return failedStep("requiring a lock", fmt.Errorf("%w: %w", ErrForbidden, err))
		}
		if !tx.held[l.id()] {
			return failedStep("requiring a lock", fmt.Errorf("%w: %s", ErrNotHeld, l))
		}
	}
	return nil
}

// RequireKind answers an error that wraps ErrNotHeld unless the transaction is of one of the kinds.
func (tx *Tx) RequireKind(kinds ...Kind) error {
	if tx.done {
		return failedStep("requiring a kind", ErrDone)
	}
	for _, k := range kinds {
		if k == tx.spec.Kind {
			return nil
		}
	}
	return failedStep("requiring a kind", fmt.Errorf("%w: this needs a transaction of kind %v, not %s", ErrNotHeld, kinds, tx.spec.Kind))
}
