// Package locktest proves of a path through the code what a single test run cannot: that it may die anywhere and be run
// again, that it may run beside others in any order, and that its locks keep to the one order.
//
// # Adding a path
//
// A path is an [Act]: a function that does it once, through the database, and the HTTP client, of its [Env]. What it needs to
// know of the set-up it gets by name, since an act may run in another process.
//
//	func reconcile(ctx context.Context, e *locktest.Env) (string, error) {
//		subs := &activities.Subscriptions{DB: e.DB(), Stripe: stripe(e.Get("stripe"), e.Client())}
//		result, err := subs.ReconcileSubscription(ctx, contract.ReconcileRequest{SubscriptionID: e.Get("subscription")})
//		return string(result.Outcome), err
//	}
//
//	func TestMain(m *testing.M) { locktest.Main(m) }
//
//	func TestCrashReconcile(t *testing.T) { locktest.Crash(t, locktest.Scenario{Setup: member, Act: reconcile}) }
//
//	func TestInterleaveReconciles(t *testing.T) {
//		locktest.Interleave(t, locktest.Interleaving{Setup: member, Actors: []locktest.Actor{{"one", reconcile}, {"two", reconcile}}})
//	}
//
// # Crash points
//
// [Crash] runs the act in a child process, the test binary started again for the same test, and records the points at which
// it could die: before each flight of statements to the database is sent, and when its answer has arrived and is not read yet;
// before and after each call through [Env.Client]; and the end, whose success nobody hears of. A flight that only
// prepares statements changes nothing and is no point. Then, for each point, a child dies there by SIGKILL, the act
// is run again undisturbed, by the test's own process, and what stands in the end must be what stands after an undisturbed run. In
// the child the test function runs up to its call of Crash, so nothing that costs or matters may come before it.
//
// # Interleavings
//
// [Interleave] runs two or three acts against each other on one server, each with connections of its own. A flight is a step:
// it is held back until the scheduler lets it go, and then everybody is waited for: until they stand before their next step, have
// ended, or wait in the server for a lock that another one holds, which pg_blocking_pids tells. Where there are few schedules
// all are run. Otherwise those with one pre-emption come first, then random ones with two, from a seed that is printed. After
// each schedule the tables, and what the acts answered, must be as after the acts one by one, in some order; no
// transaction was the victim of a deadlock, and the server rearranged no queue to avoid one. Nor may a transaction of lockorder wait
// in a statement that takes no lock, [Interleaving].Waits excepted: there a lock is missing, whose wait would be bounded and
// in order. The oracle is the acts themselves, one by one, so it cannot tell what they do wrong when they are alone. A failure
// prints its schedule:
//
//	BURSAR_LOCKTEST_SCHEDULE=AABAB   runs that schedule and no other
//	BURSAR_LOCKTEST_SEED=17          makes the same random schedules again
//	BURSAR_LOCKTEST_SCHEDULES=5000   runs so many, for a night
//
// # What is compared
//
// Every row of every table, but for what differs between two equal runs: identity columns and the columns version and
// attempts are left out; a UUID is written as what it names (its row's slug, or the row); a time within the run is
// written as <now>, every other one as it is. Two equal rows are two lines, so that a duplicate shows. What an act does outside the
// database is added by [Scenario].Outside and [Interleaving].Outside.
//
// # Invariants
//
// After every run each registered [Invariant] is checked, those of the schema among them, and that no transaction and
// no advisory lock is left.
//
// # The order graph
//
// Every "held A, took B" is recorded, and every end, of the transactions on this package's databases and on those that a test
// opens with options given to [Watch]. [Main] fails the run of a package where an edge goes against the ranks or edges
// close a circle, and writes them to the folder BURSAR_ORDER_GRAPH_DIR, if set, where package lockdoc finds those of the whole
// module. A path that a test makes up for itself has a name that begins with "test".
package locktest
