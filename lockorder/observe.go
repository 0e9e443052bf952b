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
	// Waited is how long the statement took that may have waited for it; zero for one that was only tried.
	Waited time.Duration
}

// observe reports a lock that was got, before it counts as held.
func (tx *Tx) observe(took Lock, waited time.Duration) {
	if tx.db.opts.Observe == nil {
		return
	}
	tx.db.opts.Observe(Event{Path: tx.spec.Path, Kind: tx.spec.Kind, Held: sorted(tx.locks), Took: took, Waited: waited})
	tx.locks = append(tx.locks, took)
}
