// Package lockorder opens PostgreSQL transactions that take every lock in one documented order, with bounded waits.
//
// # The order
//
// Every lock, advisory key or row, belongs to a class, and every class has a rank (see the variables of this
// package, Classes, and LOCKS.md). A transaction takes locks in ascending rank; within an advisory class in
// ascending key, within a row class in ascending identity, byte by byte. Two transactions that keep to this cannot
// wait for each other. (Two identities that share a 64-bit key are one lock. That two pairs of them, of two classes, do so
// crosswise is left to the server: it finds the deadlock, and one of the two answers VerdictDeadlock, with nothing done.)
// The order is not left to the caller: locks may be asked for in any order at once, and are
// sorted here; a lock asked for later that ranks below one already held is refused before any SQL is sent.
//
//	err := db.Run(ctx, lockorder.Spec{
//		Path: "subscription-active",
//		Kind: lockorder.Materializing,
//		Keys: []lockorder.Lock{lockorder.SubscriptionKey("sub_1PqRsT2eZvKYlo2C")},
//	}, func(ctx context.Context, tx *lockorder.Tx) error {
//		if err := tx.Lock(ctx, lockorder.PoolRow(a), lockorder.PoolRow(b)); err != nil {
//			return err
//		}
//		now, err := tx.Now(ctx)
//		…
//	})
//
// # Kinds
//
// A transaction is Plain, Materializing or RuleChange. The last two take the rendezvous, shared or exclusive, as their
// first lock: a rule change finishes before a materializing transaction starts or starts after it. SQL functions that
// materialize check the transaction-local setting lockorder.rendezvous, which is made with the grant.
//
// # Opening
//
// BEGIN, the settings and one try for each declared key travel in one flight. The tries stop at the first busy key; that
// one is waited for, and then the rest is tried again, so that nothing later is held during a wait for something earlier.
// Rows are taken in the same way: one by one in one flight, up to the first that is busy. A transaction with keys, one
// update and COMMIT is three flights; each later lock or result adds one.
//
// Statements handed over with Spec.Handed travel in the flight of the opening, which raises (Options.Guard) unless every
// declared lock was got: two flights in all. Where a lock was busy none of them ran; the transaction opens again without
// them, on the same budget, and sends them once it holds its locks. They may read, and write what a declared key
// covers; they never take a lock that could wait.
//
// # The lane
//
// A transaction that waits keeps a connection. So every wait for a key or a row, at opening or later, needs a place in a
// lane of Options.LaneShare of the pool, which all handles of the pool share; it is held only during the wait. Where
// there is none the transaction is rolled back and answers ErrBusy at once: nobody waits for a place. The lane does not
// see a wait within a statement of the caller's (a write of a row that it did not lock, a unique key): that one is
// bounded by the lock time-out alone. LockOrMake makes a row in the lane, and Tx.MayWait runs any statement in it that
// may wait for a unique key.
//
// # Rule changes
//
// One that waits for the exclusive rendezvous keeps every new shared taker behind it. So it waits in turns, each of
// them a transaction of its own, of 250 ms at first and 2 s at most, with a pause between two that is at least as long as
// the turn and as half a second; it has no connection meanwhile. A materializing transaction that has a lane place is
// delayed by one turn and one exclusive hold at most, and one that was refused gets through in the next pause. The hold
// itself is budgeted, by Options.ExclusiveHold: beyond it the change is rolled back with ErrHeldTooLong. While it holds the
// rendezvous nothing waits: a busy lock ends the turn. Each turn runs fn anew, so the fn of a RuleChange must be able to
// run more than once. When Options.RuleChangeBudget ends, the answer is ErrChangeInProgress.
//
// # Bounds
//
// A transaction has a budget that covers the wait for its connection and everything after. Each wait for a lock ends
// after Options.LockTimeout or what is left of the budget; a wait that could not outlast the server's deadlock timer is
// not begun, and answers ErrBusy. A transaction whose lock was refused cannot be committed, also when fn swallows the
// error. A process that stops while it holds locks is cut off after Options.IdleTimeout, one that dies while it waits
// leaves the queue within Options.CheckInterval. COMMIT too is cancelled when the budget ends, and answers whether it was
// done. The settings are local to the transaction.
//
// Through a pooler of transactions, such as PgBouncer, set Options.Pooled: no statement is then prepared by name, and
// nothing is set but by the opening.
//
// # Seeing locks
//
// Options.Holder names who runs a transaction in pg_stat_activity, and each statement that waits carries a comment that
// ParseWaitComment reads: the class and identity that it waits for, and its path. Options.Observe, Refused and Ended
// tell of each lock that was got, or was busy and not got, and of each end with the time that locks were held; DB.Lane
// tells how full the lane is.
//
// # Rules for statements
//
// Transactions are READ COMMITTED. A lock is a statement of its own, and what it guards is read in a later one: a
// statement that waits and reads sees what was there before. There are no savepoints, and no plpgsql EXCEPTION block
// may run: both drop advisory locks without a word. Time is Tx.Now, read from the database under the locks.
//
// # Failure
//
// Every error of Run is an *Error with a Verdict, told from the SQLSTATE. COMMIT's answer is checked: an aborted
// transaction answers ROLLBACK and no error. A lost answer is VerdictCommitUnknown. A cancelled caller cancels the
// statement on the server, and the connection lives on.
package lockorder
