package lockorder

import "time"

// Event tells that a transaction got a lock.
type Event struct {
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

// observe reports a lock that was got, before it counts as held.
func (tx *Tx) observe(took Lock, waited time.Duration) {
	if tx.db.opts.Observe == nil {
		return
	}
	event := Event{Path: tx.spec.Path, Kind: tx.spec.Kind, Held: sorted(tx.locks), Took: took, Waited: waited}
	if tx.turn != nil {
		event.Turn = tx.turn.number
	}
	tx.db.opts.Observe(event)
	tx.locks = append(tx.locks, took)
}
