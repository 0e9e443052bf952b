package lockorder_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// TestRowWaitedForIsChangedOrGone changes and deletes rows while they are waited for.
func TestRowWaitedForIsChangedOrGone(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d)
	holder, look := d.Conn(t), d.Conn(t)
	for _, gone := range []bool{false, true} {
		rows := pools(t, holder, 4)
		busy := rows[1]
		if query[bool](t, holder, "SELECT is_default FROM core.pools WHERE id = $1", identity(busy)) {
			rows[1], rows[2] = rows[2], rows[1] // a default pool cannot be deleted
			busy = rows[1]
		}
		exec(t, holder, "BEGIN")
		if gone {
			exec(t, holder, "DELETE FROM core.pools WHERE id = $1", identity(busy))
		} else {
			exec(t, holder, "UPDATE core.pools SET name = 'changed' WHERE id = $1", identity(busy))
		}
		nobody := lockorder.PoolRow(uuid.New())
		var missing []lockorder.Lock
		var name string
		done := start(func() error {
			return db.Run(t.Context(), plain(), func(ctx context.Context, tx *lockorder.Tx) (err error) {
				if missing, err = tx.LockExisting(ctx, append(rows, nobody)...); err != nil {
					return err
				}
				if err := tx.Require(rows[0], rows[2], rows[3]); err != nil {
					return err
				}
				if err := tx.Require(busy); (err == nil) == gone {
					t.Errorf("gone: %t; the row waited for: %v", gone, err)
				}
				return tx.QueryRow(ctx, "SELECT coalesce((SELECT name FROM core.pools WHERE id = $1), '')", identity(busy)).Scan(&name)
			})
		})
		until(t, "the row is waited for", func() bool { return anyWaits(t, look) })
		comment := query[string](t, look, "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
		wantWaitFor(t, comment, busy)
		exec(t, holder, "COMMIT")
		if err := receive(t, done, "the rows"); err != nil {
			t.Fatal(err)
		}
		texts := map[string]bool{}
		for _, m := range missing {
			texts[m.Text()] = true
		}
		if len(texts) != len(missing) || !texts[nobody.Text()] || texts[busy.Text()] != gone || gone != (len(missing) == 2) {
			t.Errorf("gone: %t; missing: %v", gone, missing)
		}
		if want := map[bool]string{true: "", false: "changed"}[gone]; name != want {
			t.Errorf("what the row holds is read as %q, want %q", name, want)
		}
	}
}

// TestCountersUnderRowLocks lets eight workers read and write counters under row locks: none is lost, though each row changes
// between the statement's snapshot and its lock.
func TestCountersUnderRowLocks(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t, pgtest.Setting("deadlock_timeout", "100ms"))
	db := open(t, d, func(o *lockorder.Options) { o.MaxConns, o.LaneShare = 8, 1 })
	look := d.Conn(t)
	rows := pools(t, look, 3)
	exec(t, look, "UPDATE core.pools SET name = '0 ' || id")
	const workers, rounds = 8, 40
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for range rounds {
				err := db.Run(t.Context(), plain(), func(ctx context.Context, tx *lockorder.Tx) error {
					if err := tx.Lock(ctx, rows[2], rows[0], rows[1]); err != nil {
						return err
					}
					for _, row := range rows {
						var n int
						if err := tx.QueryRow(ctx, "SELECT split_part(name, ' ', 1)::int FROM core.pools WHERE id = $1", identity(row)).Scan(&n); err != nil {
							return err
						}
						if _, err := tx.Exec(ctx, "UPDATE core.pools SET name = $2 WHERE id = $1", identity(row), fmt.Sprintf("%d %s", n+1, identity(row))); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	for _, row := range rows {
		if n := query[int](t, look, "SELECT split_part(name, ' ', 1)::int FROM core.pools WHERE id = $1", identity(row)); n != workers*rounds {
			t.Errorf("%s counts %d, want %d", row, n, workers*rounds)
		}
	}
}

// TestSkipLockedOverASetDeadlocks is the control for the order of rows: a set locked with SKIP LOCKED takes B past a busy A.
func TestSkipLockedOverASetDeadlocks(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t, pgtest.Deadlocks(), pgtest.Setting("deadlock_timeout", "100ms"))
	first, second := d.Conn(t), d.Conn(t)
	rows := pools(t, first, 2)
	a, b := identity(rows[0]), identity(rows[1])
	exec(t, first, "BEGIN")
	exec(t, first, "SELECT FROM core.pools WHERE id = $1 FOR NO KEY UPDATE", a)
	exec(t, second, "BEGIN")
	exec(t, second, "SELECT FROM core.pools WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED", []string{a, b})
	waits := start(func() error {
		_, err := second.Exec(context.Background(), "SELECT FROM core.pools WHERE id = $1 FOR NO KEY UPDATE", a)
		return err
	})
	_, firstErr := first.Exec(t.Context(), "SELECT FROM core.pools WHERE id = $1 FOR NO KEY UPDATE", b)
	exec(t, first, "ROLLBACK")
	if secondErr := receive(t, waits, "the second"); lockorder.SQLState(firstErr) != "40P01" && lockorder.SQLState(secondErr) != "40P01" {
		t.Errorf("no deadlock: %v, %v", firstErr, secondErr)
	}
}

const insertParked = `INSERT INTO stripe.parked_work (kind, object_id, reason, detail, subscription_id, parked_at, last_tried_at)
	VALUES ($1, $2, 'not_found', 'a test', $2, now(), now()) ON CONFLICT DO NOTHING`

// TestLockOrMake has eight transactions make one row at once.
func TestLockOrMake(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d, func(o *lockorder.Options) { o.MaxConns, o.LaneShare = 8, 1 })
	look := d.Conn(t)
	row := lockorder.ParkedWorkRow("subscription", "sub_1")
	var made atomic.Int32
	var inside atomic.Int32
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			err := db.Run(t.Context(), plain(), func(ctx context.Context, tx *lockorder.Tx) error {
				mine, err := tx.LockOrMake(ctx, row, insertParked, "subscription", "sub_1")
				if err != nil {
					return err
				}
				if mine {
					made.Add(1)
				}
				if inside.Add(1) != 1 {
					t.Error("two hold the row")
				}
				defer inside.Add(-1)
				if _, err := tx.Exec(ctx, "SELECT pg_sleep(0.01)"); err != nil {
					return err
				}
				if again, err := tx.LockOrMake(ctx, row, insertParked, "subscription", "sub_1"); again || err != nil {
					t.Errorf("asked again: made %t, %v", again, err)
				}
				return tx.Require(row)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := made.Load(); n != 1 {
		t.Errorf("%d made the row, want one", n)
	}
	if n := query[int](t, look, "SELECT count(*) FROM stripe.parked_work"); n != 1 {
		t.Errorf("there are %d rows, want one", n)
	}
	other := lockorder.ParkedWorkRow("subscription", "sub_2")
	err := db.Run(t.Context(), plain(), func(ctx context.Context, tx *lockorder.Tx) error {
		_, err := tx.LockOrMake(ctx, other, insertParked, "subscription", "sub_3")
		return err
	})
	if !errors.Is(err, lockorder.ErrNoRow) {
		t.Errorf("an insert of another row answers %v", err)
	}
	for _, text := range []string{
		"INSERT INTO stripe.parked_work (kind, object_id) VALUES ('a', 'b')",
		"SELECT 1", "", "DELETE FROM stripe.parked_work",
		"INSERT INTO x SELECT FROM y FOR UPDATE ON CONFLICT DO NOTHING",
		"INSERT INTO x SELECT pg_advisory_lock(1) ON CONFLICT DO NOTHING",
		"INSERT INTO x VALUES (1) ON CONFLICT DO NOTHING; INSERT INTO x VALUES (1) ON CONFLICT DO NOTHING",
	} {
		err := db.Run(t.Context(), plain(), func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := tx.LockOrMake(ctx, other, text)
			return err
		})
		wantVerdict(t, err, lockorder.VerdictMisuse)
	}
}

// TestMakingWaitsInTheLane waits for another transaction that makes the same row.
func TestMakingWaitsInTheLane(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d, twoConns)
	holder, look := d.Conn(t), d.Conn(t)
	exec(t, holder, "BEGIN")
	exec(t, holder, insertParked, "subscription", "sub_1")
	attempt := func(ctx context.Context, tx *lockorder.Tx) error {
		_, err := tx.LockOrMake(ctx, lockorder.ParkedWorkRow("subscription", "sub_1"), insertParked, "subscription", "sub_1")
		return err
	}
	first := start(func() error { return db.Run(t.Context(), plain(), attempt) })
	until(t, "it waits", func() bool { return waiting(t, look) == 1 })
	began := time.Now()
	wantVerdict(t, db.Run(t.Context(), plain(), attempt), lockorder.VerdictBusy)
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the refusal took %s", took)
	}
	exec(t, holder, "COMMIT")
	if err := receive(t, first, "the one that waits"); err != nil {
		t.Error(err)
	}
}
