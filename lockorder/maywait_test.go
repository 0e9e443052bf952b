package lockorder_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

const insertScratch = "INSERT INTO scratch VALUES ($1) ON CONFLICT DO NOTHING"

// insertMayWait inserts a row of the scratch table in the lane, and tells through made whether it did.
func insertMayWait(n int, made *int64) func(ctx context.Context, tx *lockorder.Tx) error {
	return func(ctx context.Context, tx *lockorder.Tx) error {
		tag, err := tx.MayWait("scratch.n", "7").Exec(ctx, insertScratch, n)
		if made != nil {
			*made = tag.RowsAffected()
		}
		return err
	}
}

// TestMayWait has forty want to insert one unique key on a pool of five: two wait and say for what, all others are refused at
// once, and unrelated work flows.
func TestMayWait(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d, func(o *lockorder.Options) { o.MaxConns, o.LockTimeout, o.Budget = 5, 30*time.Second, 40*time.Second })
	holder, look := d.Conn(t), d.Conn(t)
	exec(t, look, scratch)
	exec(t, holder, "BEGIN")
	exec(t, holder, insertScratch, 7)
	const waiters = 40
	done := make(chan error, waiters)
	made := make([]int64, waiters)
	for i := range waiters {
		go func() { done <- db.Run(context.Background(), materializing(), insertMayWait(7, &made[i])) }()
	}
	for range waiters - 2 {
		err := receive(t, done, "a refusal")
		wantVerdict(t, err, lockorder.VerdictBusy)
		wantText(t, err, "the lane is full: 2 already wait", "waiting for unique-key scratch.n 7")
	}
	until(t, "two wait", func() bool { return waiting(t, look) == 2 })
	says := query[string](t, look, "SELECT min(query) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
	if class, identity, path, ok := lockorder.ParseWaitComment(says); !ok || class != "unique-key" || !slices.Equal(identity, []string{"scratch.n", "7"}) || path != "test" {
		t.Errorf("the waiting statement does not say for what: %s", says)
	}
	for range 50 {
		began := time.Now()
		run(t, db, plain(), func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := tx.Exec(ctx, "SELECT 1")
			return err
		})
		if took := time.Since(began); took > time.Second {
			t.Errorf("unrelated work took %s", took)
		}
	}
	exec(t, holder, "ROLLBACK")
	for range 2 {
		if err := receive(t, done, "a waiter"); err != nil {
			t.Error(err)
		}
	}
	total := int64(0)
	for _, n := range made {
		total += n
	}
	if n := query[int](t, look, "SELECT count(*) FROM scratch WHERE n = 7"); n != 1 || total != 1 {
		t.Errorf("there are %d rows, and %d were told that they made one", n, total)
	}
	if inUse, _ := db.Lane(); inUse != 0 {
		t.Errorf("%d places are still taken", inUse)
	}
}

// TestMayWaitEnds ends statements that may wait: without a wait, by the lock time-out, by a conflict, and under the exclusive
// rendezvous; and refuses what is none.
func TestMayWaitEnds(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t, pgtest.Setting("deadlock_timeout", "20ms"))
	var r recorder
	db := open(t, d, oneConn, r.listen, func(o *lockorder.Options) {
		o.LockTimeout, o.RuleChangeBudget = 400*time.Millisecond, 450*time.Millisecond // one turn
	})
	holder, look := d.Conn(t), d.Conn(t)
	exec(t, look, scratch)
	for range 3 { // one place: it is given back each time
		run(t, db, plain(), func(ctx context.Context, tx *lockorder.Tx) error {
			var n int
			q := tx.MayWait("scratch.n")
			if err := q.QueryRow(ctx, "INSERT INTO scratch VALUES ($1) ON CONFLICT (n) DO UPDATE SET v = 5 RETURNING v", 8).Scan(&n); err != nil {
				return err
			}
			if err := q.QueryRow(ctx, "SELECT v FROM scratch WHERE n = -1").Scan(&n); !errors.Is(err, pgx.ErrNoRows) {
				t.Errorf("no row: %v", err)
			}
			return nil
		})
	}
	exec(t, holder, "BEGIN")
	exec(t, holder, insertScratch, 7)
	r.take()
	for name, test := range map[string]struct {
		spec  lockorder.Spec
		want  lockorder.Verdict
		least time.Duration
		most  time.Duration
	}{
		"a time-out":                     {plain(), lockorder.VerdictLockTimeout, 390 * time.Millisecond, 800 * time.Millisecond},
		"under the exclusive rendezvous": {ruleChange(), lockorder.VerdictBusy, 90 * time.Millisecond, 350 * time.Millisecond},
	} {
		began := time.Now()
		wantVerdict(t, db.Run(t.Context(), test.spec, insertMayWait(7, nil)), test.want)
		if took := time.Since(began); took < test.least || took > test.most {
			t.Errorf("%s took %s", name, took)
		}
		if refused, _ := r.take(); len(refused) != 1 || refused[0].Lock.Class().Name != "unique-key" || refused[0].Verdict != test.want || refused[0].Waited <= 0 {
			t.Errorf("%s: the refusals are %+v", name, refused)
		}
	}
	conflict := db.Run(t.Context(), plain(), func(ctx context.Context, tx *lockorder.Tx) error {
		_, err := tx.MayWait("scratch.n").Exec(ctx, "INSERT INTO scratch VALUES (8)")
		return err
	})
	wantVerdict(t, conflict, lockorder.VerdictConflict)
	if refused, _ := r.take(); len(refused) != 0 {
		t.Errorf("a conflict is reported as a refusal: %+v", refused)
	}
	run(t, db, plain(), func(ctx context.Context, tx *lockorder.Tx) error {
		q := tx.MayWait("scratch.n")
		for _, sql := range []string{"COMMIT", "SELECT FROM scratch FOR UPDATE", "SELECT pg_advisory_xact_lock(1)", "INSERT INTO scratch VALUES (9); INSERT INTO scratch VALUES (10)"} {
			if _, err := q.Exec(ctx, sql); !errors.Is(err, lockorder.ErrForbidden) {
				t.Errorf("%s answers %v", sql, err)
			}
			if err := q.QueryRow(ctx, sql).Scan(); !errors.Is(err, lockorder.ErrForbidden) {
				t.Errorf("%s answers %v", sql, err)
			}
		}
		if _, err := q.Query(ctx, "SELECT 1"); !errors.Is(err, lockorder.ErrForbidden) {
			t.Errorf("Query answers %v", err)
		}
		return nil
	})
	var late lockorder.Querier
	var row pgx.Row
	run(t, db, plain(), func(ctx context.Context, tx *lockorder.Tx) error {
		late = tx.MayWait("scratch.n")
		row = late.QueryRow(ctx, "SELECT 1")
		return nil
	})
	_, err := late.Exec(t.Context(), "SELECT 1")
	if rowErr := row.Scan(new(int)); !errors.Is(err, lockorder.ErrDone) || !errors.Is(rowErr, lockorder.ErrDone) {
		t.Errorf("after the end: %v, %v", err, rowErr)
	}
}
