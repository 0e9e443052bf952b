// Package lockorder opens PostgreSQL transactions that take every lock in one documented order, with bounded waits.
//
// # The order
//
// Every lock, advisory key or row, belongs to a class, and every class has a rank (see the variables of this
// package, Classes, and LOCKS.md). A transaction takes locks in ascending rank; within an advisory class in
// ascending key, within a row class in ascending identity, byte by byte. Two transactions that keep to this cannot
// wait for each other. The order is not left to the caller: locks may be asked for in any order at once, and are
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
// BEGIN, the settings and one try for each declared key travel in one flight. The tries stop at the first busy key; it and what
// follows are then waited for, one by one, so that nothing later is held during a wait for something earlier.
//
// # Bounds
//
// A transaction has a budget that covers the wait for its connection and everything after. Each wait for a lock ends
// after Options.LockTimeout or what is left of the budget; a wait that could not outlast the server's deadlock timer is not begun, and
// answers ErrBusy. A process that stops while it holds locks is cut off after Options.IdleTimeout, one that dies while it waits
// leaves the queue within Options.CheckInterval. All of these settings are local to the transaction.
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
// transaction answers ROLLBACK and no error. A lost answer is VerdictCommitUnknown. A cancelled
// caller cancels the statement on the server, and the connection lives on.
package lockorder
