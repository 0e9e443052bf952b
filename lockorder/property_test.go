package lockorder_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// anyKey draws an advisory lock out of few, so that repeats are frequent.
func anyKey() *rapid.Generator[lockorder.Lock] {
	return rapid.Custom(func(t *rapid.T) lockorder.Lock {
		n := rapid.IntRange(0, 5).Draw(t, "n")
		id := string(rune('a' + n))
		unique := uuid.NewSHA1(uuid.NameSpaceOID, []byte(id))
		switch rapid.IntRange(0, 6).Draw(t, "class") {
		case 0:
			return lockorder.SubscriptionKey(id)
		case 1:
			return lockorder.InvoiceKey(id)
		case 2:
			return lockorder.ProductKey(unique)
		case 3:
			return lockorder.WorkspaceKey(unique)
		case 4:
			return lockorder.LifecycleKey(unique)
		case 5:
			return lockorder.DesiredStateKey(id, "organization", id)
		}
		return lockorder.DomainsKey()
	})
}

// TestAnyKeys declares any multiset of keys, and asks for any other later: each comes once, in order, and all are released.
func TestAnyKeys(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	var took []lockorder.Lock
	db := open(t, d, oneConn, func(o *lockorder.Options) {
		o.Observe = func(e lockorder.Event) { took = append(took, e.Took) }
	})
	look := d.Conn(t)
	held := func() int {
		return query[int](t, look, `SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
			WHERE locktype = 'advisory' AND granted`)
	}
	rapid.Check(t, func(rt *rapid.T) {
		kind := rapid.SampledFrom([]lockorder.Kind{lockorder.Plain, lockorder.Materializing, lockorder.RuleChange}).Draw(rt, "kind")
		declared := rapid.SliceOfN(anyKey(), 0, 40).Draw(rt, "declared")
		again := rapid.SliceOfN(rapid.SampledFrom(append(declared, lockorder.DomainsKey())), 0, 10).Draw(rt, "again")
		took = nil
		distinct := map[string]bool{lockorder.DomainsKey().Text(): true}
		for _, k := range declared {
			distinct[k.Text()] = true
		}
		if kind != lockorder.Plain {
			distinct[rendezvous().Text()] = true
		}
		err := db.Run(context.Background(), lockorder.Spec{Path: "any", Kind: kind, Keys: declared}, func(ctx context.Context, tx *lockorder.Tx) error {
			if err := tx.Lock(ctx, append(again, lockorder.DomainsKey())...); err != nil {
				return err
			}
			if err := tx.Require(declared...); err != nil {
				return err
			}
			if n := held(); n != len(distinct) {
				rt.Errorf("%d keys are held, want %d", n, len(distinct))
			}
			return nil
		})
		if err != nil {
			rt.Fatal(err)
		}
		if len(took) != len(distinct) {
			rt.Errorf("%d locks were taken, want %d", len(took), len(distinct))
		}
		for i := 1; i < len(took); i++ {
			a, b := took[i-1], took[i]
			if c := cmp.Or(cmp.Compare(a.Class().Rank, b.Class().Rank), cmp.Compare(a.Key(), b.Key())); c >= 0 {
				rt.Errorf("%s was taken before %s", a, b)
			}
		}
		if n := held(); n != 0 {
			rt.Errorf("%d keys remain", n)
		}
	})
}

// TestCollidingKeys forces the identities of each class onto three keys: two names of one key are one lock, in one place of
// the order, and eight workers that ask in any order do not deadlock.
func TestCollidingKeys(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t, pgtest.Setting("deadlock_timeout", "100ms"))
	db := open(t, d, func(o *lockorder.Options) { o.MaxConns, o.LaneShare = 8, 1 })
	var keys []lockorder.Lock
	for i := range 12 {
		id := string(rune('a' + i))
		for _, l := range []lockorder.Lock{lockorder.SubscriptionKey(id), lockorder.InvoiceKey(id), lockorder.WorkspaceKey(uuid.NewSHA1(uuid.NameSpaceOID, []byte(id)))} {
			keys = append(keys, lockorder.Collide(l, 3))
		}
	}
	var group sync.WaitGroup
	for worker := range 8 {
		random := rand.New(rand.NewPCG(uint64(worker), 7))
		group.Go(func() {
			for round := range rounds(60) {
				asked := make([]lockorder.Lock, 6)
				for i := range asked {
					asked[i] = keys[random.IntN(len(keys))]
				}
				err := db.Run(t.Context(), plain(asked[:3]...), func(ctx context.Context, tx *lockorder.Tx) error {
					var later []lockorder.Lock // what may still be asked for
					for _, l := range asked[3:] {
						if l.Class() == lockorder.Workspace {
							later = append(later, l)
						}
					}
					if err := tx.Lock(ctx, later...); err != nil && lockorder.VerdictOf(err) != lockorder.VerdictMisuse {
						return err
					}
					return tx.Require(asked[:3]...)
				})
				if err != nil {
					t.Errorf("worker %d, round %d: %v", worker, round, err)
					return
				}
			}
		})
	}
	group.Wait()
	noDeadlock(t, d)
}

// noDeadlock fails the test where the server's log tells of a deadlock, broken or avoided: one that it avoids, by another order of
// its queue, is no error to anybody.
func noDeadlock(t *testing.T, d *pgtest.DB) {
	t.Helper()
	if os.Getenv("DATABASE_URL") != "" {
		t.Log("the log of a server that the tests did not start is not looked at")
		return
	}
	for line := range strings.Lines(d.ServerLog(t)) {
		if strings.Contains(line, "avoided deadlock") || strings.Contains(line, "deadlock detected") {
			t.Errorf("the server's log says: %s", line)
		}
	}
}

// TestCrossedSwaps lets two swaps name one pair of instances in opposite orders: taken as named they deadlock, by ours never.
func TestCrossedSwaps(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t, pgtest.Deadlocks(), pgtest.Setting("deadlock_timeout", "100ms"))
	db := open(t, d, func(o *lockorder.Options) { o.MaxConns, o.LaneShare = 4, 1 })
	a, b := lockorder.LifecycleKey(workspaceA), lockorder.LifecycleKey(uuid.NewSHA1(workspaceA, []byte("b")))
	var group sync.WaitGroup
	for _, pair := range [][2]lockorder.Lock{{a, b}, {b, a}} {
		for range 2 {
			group.Go(func() {
				for range rounds(100) {
					for _, later := range []bool{false, true} {
						spec, fn := plain(pair[:]...), nothing
						if later {
							spec = plain()
							fn = func(ctx context.Context, tx *lockorder.Tx) error { return tx.Lock(ctx, pair[:]...) }
						}
						if err := db.Run(t.Context(), spec, fn); err != nil {
							t.Error(err)
							return
						}
					}
				}
			})
		}
	}
	group.Wait()

	noDeadlock(t, d)

	// The control: as they are named.
	one, two := d.Conn(t), d.Conn(t)
	take := func(conn *pgx.Conn, l lockorder.Lock) error {
		_, err := conn.Exec(context.Background(), "SELECT pg_advisory_xact_lock($1)", l.Key())
		return err
	}
	exec(t, one, "BEGIN")
	exec(t, two, "BEGIN")
	if err := take(one, a); err != nil {
		t.Fatal(err)
	}
	if err := take(two, b); err != nil {
		t.Fatal(err)
	}
	crossed := start(func() error { return take(one, b) })
	errTwo := take(two, a)
	exec(t, two, "ROLLBACK")
	if errOne := receive(t, crossed, "the other"); lockorder.SQLState(errOne) != "40P01" && lockorder.SQLState(errTwo) != "40P01" {
		t.Errorf("the control is wrong: crossed swaps do not deadlock: %v, %v", errOne, errTwo)
	}
}
