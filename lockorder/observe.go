package lockorder

import (
	"context"
	"time"
)

// Event tells that a transaction got a lock.
type Event struct {
	// Context is that of the transaction: it holds the span that the lock belongs to.
	Context context.Context
	// Path and Kind are the transaction's.
	Path string
	Kind Kind
	// Held is what it held before, in the order of the ranks.
	Held []Lock
	// Took is what it got; the rendezvous is one of the locks.
	Took Lock
	// Waited is how long the statement took that may have waited for it; zero for one that was only tried. For the
	// exclusive rendezvous it is the time since Run began, all turns and pauses included.
	Waited time.Duration
	// Turn is the turn in which a rule change got it, counted from one; 0 for other transactions.
	Turn int
}

// Refusal tells that a lock was busy and was not got.
type Refusal struct {
	// Context is that of the transaction.
	Context context.Context
	// Path and Kind are the transaction's.
	Path string
	Kind Kind
	// Lock is what was busy.
	Lock Lock
	// Waited is how long it was waited for; zero where the wait was not begun.
	Waited time.Duration
	// Verdict says why: VerdictBusy where the wait could not begin (no place in the lane, no time left) or the turn or the
	// budget ended, VerdictLockTimeout, VerdictDeadlock, VerdictCancelled, or that of another failure.
	Verdict Verdict
	// Turn is the turn of a rule change, counted from one; 0 for other transactions.
	Turn int
}

// TxEvent tells that a transaction ended. Each turn of a rule change is one.
type TxEvent struct {
	// Context is the one that the transaction was run with, and the span of the transaction.
	Context context.Context
	// Path and Kind are the transaction's.
	Path string
	Kind Kind
	// Verdict is "" when it was committed, and Err, which says more and may name identities, nil.
	Verdict Verdict
	Err     error
	// Took is the time of the whole, the wait for a connection included.
	Took time.Duration
	// Holds are the classes of which it held a lock, in the order in which it came to them.
	Holds []Hold
	// Turn is the turn of a rule change, counted from one; 0 for other transactions.
	Turn int
}

// Hold is how long a transaction held locks of a class: from the first that it got to its end.
type Hold struct {
	Class *Class
	For   time.Duration
}

// holdStart is when a transaction got its first lock of a class.
type holdStart struct {
	class *Class
	at    time.Time
}

// observe reports a lock that was got, before it counts as held.
func (tx *Tx) observe(ctx context.Context, took Lock, waited time.Duration) {
	if tx.db.opts.Ended != nil && (len(tx.holds) == 0 || !tx.holdsClass(took.class)) {
		tx.holds = append(tx.holds, holdStart{took.class, time.Now()})
	}
	if tx.db.opts.Observe == nil {
		return
	}
	event := Event{Context: ctx, Path: tx.spec.Path, Kind: tx.spec.Kind, Held: sorted(tx.locks), Took: took, Waited: waited, Turn: tx.turn.no()}
	tx.db.opts.Observe(event)
	tx.locks = append(tx.locks, took)
}

func (tx *Tx) holdsClass(class *Class) bool {
	for _, h := range tx.holds {
		if h.class == class {
			return true
		}
	}
	return false
}

// refused reports a lock that was not got, and returns why.
func (tx *Tx) refused(ctx context.Context, l Lock, waited time.Duration, err error) error {
	if refused := tx.db.opts.Refused; refused != nil {
		refused(Refusal{Context: ctx, Path: tx.spec.Path, Kind: tx.spec.Kind, Lock: l, Waited: waited,
			Verdict: VerdictOf(fail(ctx, tx.spec, err)), Turn: tx.turn.no()})
	}
	return err
}

// ended reports the end of a transaction that began at a time; tx is nil where it got no connection.
func (db *DB) ended(ctx context.Context, spec Spec, t *turn, tx *Tx, began time.Time, err error) {
	if db.opts.Ended == nil {
		return
	}
	now := time.Now()
	event := TxEvent{Context: ctx, Path: spec.Path, Kind: spec.Kind, Verdict: VerdictOf(err), Err: err, Took: now.Sub(began), Turn: t.no()}
	if tx != nil {
		for _, h := range tx.holds {
			event.Holds = append(event.Holds, Hold{h.class, now.Sub(h.at)})
		}
	}
	db.opts.Ended(event)
}
