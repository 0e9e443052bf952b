// Package pgtest gives each test a PostgreSQL database of its own with Bursar's schema in it.
//
// The server is a real one that the tests start themselves, at the first use in a test process, and stop at its end;
// where it cannot be started the test fails. Databases are cloned from a template that is migrated once, which takes
// some 70 ms each, so tests can run in parallel and never see each other.
//
//	package billing_test
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
//	func TestLink(t *testing.T) {
//		t.Parallel()
//		db := pgtest.New(t)
//		pool := db.Pool(t)
//		if _, err := pool.Exec(t.Context(), `INSERT INTO …`); err != nil {
//			t.Fatal(err)
//		}
//	}
//
// # The server
//
// It runs without fsync, with log_lock_waits on and a deadlock_timeout of one second; [Setting] changes a parameter
// for one database. A test whose database saw a deadlock fails, also where the server avoided it by another order of its queue, unless
// the test says [Deadlocks]. With DATABASE_URL set, the server that it names is used instead: version 15 or newer, as a
// superuser, since templates are marked in the system catalogue. Templates stay on such a server for the next run,
// named by a hash of the migrations; the databases of the tests do not stay.
//
// [DB.PoolerURL] leads to the same database through a PgBouncer in transaction mode, started at its first use.
//
// # The user
//
// Tests connect as an ordinary role that owns its database, as Bursar does in production: what needs a superuser
// fails. [DB.AdminURL] is for the few tests that have to look from outside.
//
// # The end of a test
//
// The database is dropped even when connections to it are left. A transaction that is still open then is reported as
// a failure of the test: it would hold its locks for ever in production.
package pgtest
