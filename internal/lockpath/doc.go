// Package lockpath is the table of paths: every way through the code that opens a transaction, with the locks that it takes
// and their order. What a transaction calls itself in [lockorder.Spec], in a span, a metric, an error or a list of locks
// is a name of this table; the tests hold what paths do against what the table says, and LOCKS.md is made from it.
//
// # Adding a path
//
// Add one variable, in the file of its area:
//
//	// SubscriptionPark is activities.Subscriptions.ParkSubscription.
//	var SubscriptionPark = path(Path{
//		Name: "subscription-park", Area: Subscriptions, Kind: lockorder.Plain,
//		Keys: []Step{{Class: lockorder.Subscription}},
//		Rows: []Step{{Class: lockorder.ParkedWork, When: "where it is parked already"}},
//		Does: "Parks a subscription whose reconcile failed for good.",
//		By:   []string{"activity ParkSubscription"},
//	})
//
// and open the transaction by it:
//
//	err := db.Run(ctx, lockpath.SubscriptionPark.Spec(lockorder.SubscriptionKey(id)), func(ctx context.Context, tx *lockorder.Tx) error {
//
// Then let a test run it on a database that reports its locks (see package locktest), and run make locks, which writes
// down what it was seen to take and makes LOCKS.md anew.
//
// # What fails when it is not so
//
//   - A path whose steps do not ascend in rank, or that lists a key after a row: this package's tests.
//   - A transaction that takes a lock which its path does not list, or in another order, or under a kind that is not the path's,
//     and a transaction whose path is not in the table: make test, after the tests, by package lockdoc.
//   - A path that no test commits, and a step without a When that no test takes: the same.
//   - A page or a record that is older than the table: make check.
//
// Names that begin with "test" are for transactions that tests make up; no path may have one.
package lockpath
