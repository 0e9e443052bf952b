// Package lockview shows who holds which lock, who waits for whom, and what to do about it: with names in place of the
// numbers that PostgreSQL shows. It is what `bursar locks` prints.
//
// # Where the names come from
//
//   - A key in pg_locks is a number. Fixed ones are derived here; others are looked up by core.lock_identities, through
//     indexes over derived keys. An identity that no table holds yet (a subscription at its first reconcile) is taken from
//     the comment of a statement that waits for it, or from the workflow that holds it, once its hash has been compared:
//     a name shown here is never guessed. What is left is told apart by who holds it: Bursar's, which nothing names, or
//     another application's.
//   - A row that is held shows nowhere. The statement that waits for one says in a comment which (lockorder.ParseWaitComment);
//     the holder is who it waits for.
//   - A holder is the workflow, or the command, and the path: lockorder puts the text of Namer into application_name for as
//     long as a transaction lasts.
//
// # What it may and may not
//
// It only reads, outside any transaction, in a few statements. A snapshot is not of one instant: a holder may have gone
// between two of them. The role needs pg_read_all_stats and nothing else; with less, Snapshot.Notes say what is hidden.
package lockview
