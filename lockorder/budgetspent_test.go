package lockorder_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// spent is one way of spending a whole budget: against a holder that has what the transaction wants, or by itself.
type spent struct {
	spec lockorder.Spec
	fn   func(ctx context.Context, tx *lockorder.Tx) error
	hold string        // a statement of an open transaction on a connection of its own, if not empty
	arg  []any         // its arguments
	take time.Duration // how long the pool's only connection is taken, if not 0
}

// TestBudget spends whole budgets in every way in which a transaction can wait, all at the same time; none may overrun by
// more than a tenth. The test runs beside no other test, since it measures time.
func TestBudget(t *testing.T) {
	const budget = 3 * time.Second
	d := pgtest.New(t, pgtest.Setting("deadlock_timeout", "200ms"))
	look := d.Conn(t)
	exec(t, look, scratch)
	exec(t, look, "CREATE TABLE locked ()")
	exec(t, look, slowToCommit)
	keys, rows := subscriptions(4), pools(t, look, 2)
	parked := lockorder.ParkedWorkRow("subscription", "sub_1")
	exec(t, look, insertParked, "subscription", "sub_1")

	const advisory = "SELECT pg_advisory_xact_lock($1)"
	lock := func(locks ...lockorder.Lock) func(ctx context.Context, tx *lockorder.Tx) error {
		return func(ctx context.Context, tx *lockorder.Tx) error { return tx.Lock(ctx, locks...) }
	}
	say := func(sql string, args ...any) func(ctx context.Context, tx *lockorder.Tx) error {
		return func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := tx.Exec(ctx, sql, args...)
			return err
		}
	}
	ways := map[string]spent{
		"no connection": {spec: plain(), fn: nothing, take: time.Minute},
		"a connection late, and then a busy key": {
			spec: plain(keys[0]), fn: nothing, hold: advisory, arg: []any{keys[0].Key()}, take: budget / 2,
		},
		"a busy key":        {spec: plain(keys[1]), fn: nothing, hold: advisory, arg: []any{keys[1].Key()}},
		"a busy key, later": {spec: plain(), fn: lock(keys[2]), hold: advisory, arg: []any{keys[2].Key()}},
		"a busy row": {
			spec: plain(), fn: lock(rows[0]), hold: "SELECT FROM core.pools WHERE id = $1 FOR NO KEY UPDATE", arg: []any{identity(rows[0])},
		},
		"a row that no lock announced": {
			spec: plain(), fn: say("UPDATE core.pools SET name = name WHERE id = $1", identity(rows[1])),
			hold: "UPDATE core.pools SET name = name WHERE id = $1", arg: []any{identity(rows[1])},
		},
		"a row of a locked table": {spec: plain(), fn: lock(parked), hold: "LOCK TABLE stripe.parked_work"},
		"a locked table":          {spec: plain(), fn: say("SELECT FROM locked"), hold: "LOCK TABLE locked"},
		"a unique key of an uncommitted insert": {
			spec: plain(), fn: say("INSERT INTO scratch VALUES (7)"), hold: "INSERT INTO scratch VALUES (7)",
		},
		"a slow statement": {spec: plain(), fn: say("SELECT pg_sleep(9)")},
		"a slow statement on a context of its own": {spec: plain(), fn: func(_ context.Context, tx *lockorder.Tx) error {
			_, err := tx.Exec(context.Background(), "SELECT pg_sleep(9)")
			return err
		}},
		"a slow query on a context of its own": {spec: plain(), fn: func(_ context.Context, tx *lockorder.Tx) error {
			rows, err := tx.Query(context.Background(), "SELECT pg_sleep(9)")
			if err != nil {
				return err
			}
			rows.Close()
			return rows.Err()
		}},
		"a slow batch on a context of its own": {spec: plain(), fn: func(_ context.Context, tx *lockorder.Tx) error {
			batch := &pgx.Batch{}
			batch.Queue("SELECT pg_sleep(9)")
			return tx.SendBatch(context.Background(), batch).Close()
		}},
		"rows that trickle": {spec: plain(), fn: func(_ context.Context, tx *lockorder.Tx) error {
			rows, err := tx.Query(context.Background(), "SELECT repeat('x', 9000), pg_sleep(0.02) FROM generate_series(1, 450)")
			if err != nil {
				return err
			}
			for rows.Next() {
				continue
			}
			return rows.Err()
		}},
		"many short statements": {spec: plain(), fn: func(_ context.Context, tx *lockorder.Tx) error {
			for {
				if _, err := tx.Exec(context.Background(), "SELECT pg_sleep(0.02)"); err != nil {
					return err
				}
			}
		}},
		"a slow COMMIT": {spec: plain(), fn: say("INSERT INTO slow_to_commit VALUES (9)")},
		"slow Go": {spec: plain(), fn: func(ctx context.Context, _ *lockorder.Tx) error {
			<-ctx.Done()
			return nil
		}},
	}

	type outcome struct {
		name string
		err  error
		took time.Duration
	}
	var begin []func() outcome
	for name, way := range ways {
		db := open(t, d, oneConn, func(o *lockorder.Options) { o.Budget, o.IdleTimeout = budget, time.Minute })
		run(t, db, plain(), nothing) // no connection is made within the measured time
		if way.hold != "" {
			holder := d.Conn(t)
			exec(t, holder, "BEGIN")
			exec(t, holder, way.hold, way.arg...)
		}
		begin = append(begin, func() outcome {
			began := time.Now()
			if way.take > 0 {
				defer takeConn(t, db, way.take)()
			}
			err := db.Run(t.Context(), way.spec, way.fn)
			return outcome{name, err, time.Since(began)}
		})
	}
	done := make(chan outcome, len(begin))
	for _, fn := range begin {
		go func() { done <- fn() }()
	}
	// pgx lets a connection rest for a tenth of a second after a cancel request, which counts.
	most := budget + budget/10
	if throughPooler() { // which makes a new connection to the server for a cancel request
		most += budget / 10
	}
	for range begin {
		got := receive(t, done, "a budget's end")
		t.Logf("%s: %s: %v", got.name, got.took.Round(time.Millisecond), got.err)
		if verdict := lockorder.VerdictOf(got.err); verdict != lockorder.VerdictBusy || !errors.Is(got.err, lockorder.ErrBusy) {
			t.Errorf("%s: the verdict is %q: %v", got.name, verdict, got.err)
		}
		if got.took < budget-budget/20 || got.took > most {
			t.Errorf("%s: a budget of %s took %s, at most %s is promised", got.name, budget, got.took, most)
		}
	}
}

// takeConn takes the only connection of a pool for a time, at most until the returned function ends it.
func takeConn(t *testing.T, db *lockorder.DB, span time.Duration) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	taken := make(chan struct{})
	done := start(func() error {
		return db.Run(ctx, lockorder.Spec{Path: "taker", Kind: lockorder.Plain, Budget: time.Minute}, func(ctx context.Context, _ *lockorder.Tx) error {
			close(taken)
			select {
			case <-time.After(span):
			case <-ctx.Done():
			}
			return nil
		})
	})
	select {
	case <-taken:
	case err := <-done:
		t.Errorf("the connection cannot be taken: %v", err)
		return cancel
	}
	return func() { cancel(); <-done }
}
