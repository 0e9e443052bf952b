package lockorder_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// TestDeclaredKeysAreSorted makes the second of the declared keys busy: nothing above it may be held, whatever the order
// of the declaration.
func TestDeclaredKeysAreSorted(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d)
	look, holder := d.Conn(t), d.Conn(t)
	keys := subscriptions(4)
	invoice := lockorder.InvoiceKey("in_1")
	exec(t, holder, "BEGIN")
	exec(t, holder, "SELECT pg_advisory_xact_lock($1)", keys[1].Key())
	declared := []lockorder.Lock{invoice, keys[3], keys[1], keys[2], keys[0], keys[1], keys[3]}
	opened := start(func() error { return db.Run(t.Context(), plain(declared...), nothing) })
	until(t, "the opening waits", func() bool { return lockWaiters(t, look, keys[1]) == 1 })
	for _, l := range []lockorder.Lock{keys[2], keys[3], invoice} {
		if got := lockState(t, look, 0, l); got != "" {
			t.Errorf("%s is %s while an earlier key is waited for", l, got)
		}
	}
	if got := lockState(t, look, 0, keys[0]); got != "granted" {
		t.Errorf("the key before the busy one is %q", got)
	}
	exec(t, holder, "COMMIT")
	if err := receive(t, opened, "the opening"); err != nil {
		t.Fatal(err)
	}
	if declared[0].Text() != invoice.Text() {
		t.Error("the caller's keys were sorted in place")
	}
}

// TestLaterKeysWait takes a busy key through an open transaction.
func TestLaterKeysWait(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d)
	look, holder := d.Conn(t), d.Conn(t)
	keys := subscriptions(2)
	exec(t, holder, "BEGIN")
	exec(t, holder, "SELECT pg_advisory_xact_lock($1)", keys[1].Key())
	done := start(func() error {
		return db.Run(t.Context(), plain(keys[0]), func(ctx context.Context, tx *lockorder.Tx) error { return tx.Lock(ctx, keys[1]) })
	})
	until(t, "the transaction waits", func() bool { return lockWaiters(t, look, keys[1]) == 1 })
	waiting := query[string](t, look, `SELECT query FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`)
	wantWaitFor(t, waiting, keys[1])
	exec(t, holder, "COMMIT")
	if err := receive(t, done, "the key"); err != nil {
		t.Error(err)
	}
}

// TestCommentCannotEnd puts what ends a comment into an identity that is waited for.
func TestCommentCannotEnd(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d)
	conn := d.Conn(t)
	exec(t, conn, "CREATE TABLE harmed ()")
	for _, id := range []string{"*/ DROP TABLE harmed; /*", "/*/ DROP TABLE harmed; --", "*/*", "*//*"} {
		key := lockorder.SubscriptionKey(id)
		exec(t, conn, "BEGIN")
		exec(t, conn, "SELECT pg_advisory_xact_lock($1)", key.Key())
		done := start(func() error { return db.Run(t.Context(), plain(key), nothing) })
		until(t, "the key is waited for", func() bool { return lockWaiters(t, conn, key) == 1 })
		wantWaitFor(t, query[string](t, conn, `SELECT query FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`), key)
		exec(t, conn, "COMMIT")
		if err := receive(t, done, "the key"); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	if !query[bool](t, conn, "SELECT to_regclass('harmed') IS NOT NULL") {
		t.Error("an identity ended the comment that it stands in")
	}
}

// TestOrder asks for locks within an open transaction, and says which are refused.
func TestOrder(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	var f flights
	db := open(t, d, f.through)
	conn := d.Conn(t)
	rows := pools(t, conn, 3)
	keys := subscriptions(3)
	parked := lockorder.ParkedWorkRow("subscription", "sub_1")

	tests := []struct {
		name string
		held []lockorder.Lock // rows, taken first
		ask  []lockorder.Lock
		want error
		says []string
	}{
		{"a higher key", nil, []lockorder.Lock{keys[2]}, nil, nil},
		{"a lower key of the class", nil, []lockorder.Lock{keys[0]}, lockorder.ErrOrder, []string{keys[0].String(), keys[1].String()}},
		{"a key after a row", rows[:1], []lockorder.Lock{keys[2]}, lockorder.ErrOrder, []string{keys[2].String(), rows[0].String()}},
		{"a row after a higher row of its class", rows[1:2], []lockorder.Lock{rows[0]}, lockorder.ErrOrder, []string{rows[0].String(), rows[1].String()}},
		{"a row after a lower one", rows[:1], []lockorder.Lock{rows[2]}, nil, nil},
		{"one in order and one out of order", rows[1:2], []lockorder.Lock{rows[2], rows[0]}, lockorder.ErrOrder, nil},
		{"a lower class", rows[:1], []lockorder.Lock{lockorder.CustomerRow("cus_1")}, lockorder.ErrOrder, []string{"customer cus_1", rows[0].String()}},
		{"what is held, though it ranks lower", rows[:2], []lockorder.Lock{rows[0], keys[1]}, nil, nil},
		{"the rendezvous", nil, []lockorder.Lock{rendezvous()}, lockorder.ErrOrder, []string{"rendezvous"}},
		{"the migration lock", nil, []lockorder.Lock{lockorder.MigrationKey("bursar")}, lockorder.ErrOrder, []string{"session"}},
		{"a row that is not there", nil, []lockorder.Lock{lockorder.PoolRow(uuid.New())}, lockorder.ErrNoRow, nil},
		{"nothing", nil, nil, nil, nil},
		{"a missing row does not count as held", nil, []lockorder.Lock{parked}, lockorder.ErrNoRow, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			run(t, db, plain(keys[1]), func(ctx context.Context, tx *lockorder.Tx) error {
				if err := tx.Lock(ctx, test.held...); err != nil {
					return err
				}
				before := f.count()
				err := tx.Lock(ctx, test.ask...)
				if test.want == nil && err != nil || !errors.Is(err, test.want) {
					t.Errorf("got %v, want %v", err, test.want)
				}
				wantText(t, err, test.says...)
				if misuse := lockorder.VerdictOf(err) == lockorder.VerdictMisuse; misuse != errors.Is(err, lockorder.ErrOrder) {
					t.Errorf("the verdict is %q", lockorder.VerdictOf(err))
				} else if misuse && f.count() != before {
					t.Errorf("%d flights were sent for a refused lock", f.count()-before)
				}
				return nil
			})
		})
	}

	t.Run("a missing row leaves what ranks lower free to be asked for", func(t *testing.T) {
		run(t, db, plain(), func(ctx context.Context, tx *lockorder.Tx) error {
			missing, err := tx.LockExisting(ctx, parked, rows[0])
			if err != nil || len(missing) != 1 || missing[0].String() != parked.String() {
				t.Errorf("missing: %v, %v", missing, err)
			}
			if err := tx.Require(parked); !errors.Is(err, lockorder.ErrNotHeld) {
				t.Errorf("a row that is not there is held: %v", err)
			}
			return tx.Lock(ctx, rows[1])
		})
	})
	t.Run("rows before declared keys", func(t *testing.T) {
		err := db.Run(t.Context(), plain(keys[0], rows[0]), nothing)
		if !errors.Is(err, lockorder.ErrOrder) {
			t.Errorf("a row can be declared: %v", err)
		}
	})
	t.Run("after the time was read", func(t *testing.T) {
		run(t, db, plain(keys[0]), func(ctx context.Context, tx *lockorder.Tx) error {
			if err := tx.Lock(ctx, rows[0]); err != nil {
				return err
			}
			if _, err := tx.Now(ctx); err != nil {
				return err
			}
			before := f.count()
			if err := tx.Lock(ctx, rows[1]); !errors.Is(err, lockorder.ErrOrder) || f.count() != before {
				t.Errorf("a new lock after Now: %v, %d flights", err, f.count()-before)
			}
			return tx.Lock(ctx, rows[0], keys[0])
		})
	})
}

// TestRequire asks what is held.
func TestRequire(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d)
	rows := pools(t, d.Conn(t), 2)
	key := subscriptions(1)[0]
	for _, kind := range []lockorder.Kind{lockorder.Plain, lockorder.Materializing, lockorder.RuleChange} {
		run(t, db, lockorder.Spec{Path: "test", Kind: kind, Keys: []lockorder.Lock{key}}, func(ctx context.Context, tx *lockorder.Tx) error {
			if err := tx.Require(key, rows[0]); !errors.Is(err, lockorder.ErrNotHeld) {
				t.Errorf("a row is held before it was taken: %v", err)
			} else {
				wantText(t, err, rows[0].String())
			}
			if err := tx.Lock(ctx, rows[0]); err != nil {
				return err
			}
			if err := tx.Require(rows[0], key); err != nil {
				t.Errorf("what was taken is not held: %v", err)
			}
			if err := tx.Require(rendezvous()); (err == nil) != (kind != lockorder.Plain) {
				t.Errorf("%s: the rendezvous: %v", kind, err)
			}
			for _, other := range []lockorder.Kind{lockorder.Plain, lockorder.Materializing, lockorder.RuleChange} {
				if err := tx.RequireKind(other); (err == nil) != (other == kind) || err != nil && !errors.Is(err, lockorder.ErrNotHeld) {
					t.Errorf("%s, required %s: %v", kind, other, err)
				}
			}
			if err := tx.RequireKind(lockorder.Plain, lockorder.Materializing, lockorder.RuleChange); err != nil {
				t.Errorf("any kind is required: %v", err)
			}
			if tx.Kind() != kind || tx.Path() != "test" {
				t.Errorf("the transaction says that it is %s, %s", tx.Kind(), tx.Path())
			}
			return nil
		})
	}
}

// TestRowsAreLockedInOrder holds the middle one of three rows: while it is waited for, the one before it is locked and
// the one after it is not.
func TestRowsAreLockedInOrder(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d)
	holder, look := d.Conn(t), d.Conn(t)
	for round := range 6 { // each asks in another order
		rows := pools(t, holder, 3)
		exec(t, holder, "BEGIN")
		exec(t, holder, "SELECT FROM core.pools WHERE id = $1 FOR NO KEY UPDATE", identity(rows[1]))
		asked := slices.Clone(rows)
		for range round {
			asked[0], asked[1], asked[2] = asked[1], asked[2], asked[0]
		}
		if round%2 == 1 {
			slices.Reverse(asked)
		}
		done := start(func() error {
			return db.Run(t.Context(), plain(), func(ctx context.Context, tx *lockorder.Tx) error { return tx.Lock(ctx, asked...) })
		})
		until(t, "the row is waited for", func() bool { return anyWaits(t, look) })
		free := func(l lockorder.Lock) bool {
			return query[int](t, look, `SELECT count(*) FROM (SELECT FROM core.pools WHERE id = $1 FOR NO KEY UPDATE SKIP LOCKED) r`, identity(l)) == 1
		}
		if free(rows[0]) {
			t.Error("the row before the busy one is not locked")
		}
		if !free(rows[2]) {
			t.Error("the row after the busy one is locked already")
		}
		exec(t, holder, "COMMIT")
		if err := receive(t, done, "the rows"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRowsInOppositeOrders lets eight workers ask for the same twenty rows in every order.
func TestRowsInOppositeOrders(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t, pgtest.Deadlocks(), pgtest.Setting("deadlock_timeout", "100ms"))
	db := open(t, d, func(o *lockorder.Options) { o.MaxConns, o.LaneShare = 8, 1 })
	rows := pools(t, d.Conn(t), 20)
	var workers sync.WaitGroup
	for worker := range 8 {
		workers.Go(func() {
			asked := slices.Clone(rows)
			for round := range rounds(125) { // a thousand in all
				rand.Shuffle(len(asked), func(i, j int) { asked[i], asked[j] = asked[j], asked[i] })
				if err := db.Run(t.Context(), materializing(), func(ctx context.Context, tx *lockorder.Tx) error {
					if err := tx.Lock(ctx, asked...); err != nil {
						return err
					}
					_, err := tx.Exec(ctx, "UPDATE core.pools SET name = name WHERE id = $1", identity(asked[0]))
					return err
				}); err != nil {
					t.Errorf("worker %d, round %d: %v", worker, round, err)
					return
				}
			}
		})
	}
	workers.Wait()
	noDeadlock(t, d)

	// The control: two transactions that take two of the rows as they come.
	a, b := d.Conn(t), d.Conn(t)
	lock := func(conn *pgx.Conn, l lockorder.Lock) error {
		_, err := conn.Exec(context.Background(), "SELECT FROM core.pools WHERE id = $1 FOR NO KEY UPDATE", identity(l))
		return err
	}
	exec(t, a, "BEGIN")
	exec(t, b, "BEGIN")
	if err := errors.Join(lock(a, rows[0]), lock(b, rows[1])); err != nil {
		t.Fatal(err)
	}
	crossed := start(func() error { return lock(a, rows[1]) })
	errB := lock(b, rows[0])
	exec(t, b, "ROLLBACK")
	if errA := receive(t, crossed, "the other"); lockorder.SQLState(errA) != "40P01" && lockorder.SQLState(errB) != "40P01" {
		t.Errorf("the control is wrong: opposite orders do not deadlock: %v, %v", errA, errB)
	}
}

// TestNested opens a transaction, or reads, in the context of one.
func TestNested(t *testing.T) {
	t.Parallel()
	db := open(t, pgtest.New(t))
	run(t, db, plain(), func(ctx context.Context, tx *lockorder.Tx) error {
		err := db.Run(ctx, plain(), nothing)
		if !errors.Is(err, lockorder.ErrNested) {
			t.Errorf("a nested Run: %v", err)
		}
		wantVerdict(t, err, lockorder.VerdictMisuse)
		if rows, err := db.Reader().Query(ctx, "SELECT 1"); !errors.Is(err, lockorder.ErrNested) {
			t.Errorf("a nested read: %v", err)
			if err == nil {
				rows.Close()
			}
		}
		if err := db.Reader().QueryRow(ctx, "SELECT 1").Scan(nil); !errors.Is(err, lockorder.ErrNested) {
			t.Errorf("a nested read of a row: %v", err)
		}
		return nil
	})
	var one int
	if err := db.Reader().QueryRow(t.Context(), "SELECT 1").Scan(&one); err != nil || one != 1 {
		t.Errorf("a read outside: %d, %v", one, err)
	}
}

// TestSpecs refuses transactions that are not described.
func TestSpecs(t *testing.T) {
	t.Parallel()
	db := open(t, pgtest.New(t))
	for name, spec := range map[string]lockorder.Spec{
		"no path":        {Kind: lockorder.Plain},
		"no kind":        {Path: "test"},
		"unknown kind":   {Path: "test", Kind: 9},
		"the rendezvous": plain(rendezvous()),
		"migration":      plain(lockorder.MigrationKey("bursar")),
	} {
		err := db.Run(t.Context(), spec, func(context.Context, *lockorder.Tx) error {
			t.Errorf("%s: the transaction opened", name)
			return nil
		})
		wantVerdict(t, err, lockorder.VerdictMisuse)
	}
}

// TestLimited fills the places of a limited handle.
func TestLimited(t *testing.T) {
	t.Parallel()
	db := open(t, pgtest.New(t), twoConns)
	limited := db.Limited(1)
	run(t, limited, plain(), func(context.Context, *lockorder.Tx) error {
		err := limited.Run(t.Context(), plain(), nothing)
		wantVerdict(t, err, lockorder.VerdictBusy)
		if !errors.Is(err, lockorder.ErrBusy) {
			t.Errorf("a full handle answers %v", err)
		}
		return db.Run(t.Context(), plain(), nothing) // the pool has room for others
	})
	run(t, limited, plain(), nothing)
}
