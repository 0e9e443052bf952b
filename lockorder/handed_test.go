package lockorder_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// handing is a spec with handed statements that count in scratch and read the count.
func handing(spec lockorder.Spec, called *int, read *int) lockorder.Spec {
	spec.Handed = func(h *lockorder.Handed) {
		*called++
		h.Queue("UPDATE scratch SET v = v + $1 WHERE n = 1", 1)
		h.Queue("SELECT v FROM scratch WHERE n = $1", 1).QueryRow(func(row pgx.Row) error { return row.Scan(read) })
	}
	return spec
}

// TestHanded hands statements to openings whose locks are free, and counts the flights.
func TestHanded(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	var f flights
	db := open(t, d, f.through)
	look := d.Conn(t)
	exec(t, look, scratch)
	keys := subscriptions(3)
	v := 0
	for name, spec := range map[string]lockorder.Spec{
		"no key": plain(), "keys": plain(keys...), "the rendezvous": materializing(), "the rendezvous and keys": materializing(keys...),
		"the exclusive rendezvous": ruleChange(keys[1]),
	} {
		for round := range 3 {
			called, read := 0, 0
			var fn func(context.Context, *lockorder.Tx) error
			if round == 2 {
				fn = func(ctx context.Context, tx *lockorder.Tx) error {
					if read != v+1 {
						t.Errorf("%s: fn runs before the handed statements: they have read %d", name, read)
					}
					return tx.Require(spec.Keys...)
				}
			}
			before := f.count()
			run(t, db, handing(spec, &called, &read), fn)
			v++
			if called != 1 || read != v {
				t.Errorf("%s: Handed was called %d times and read %d, want %d", name, called, read, v)
			}
			if took := f.count() - before; round > 0 && took != 2 {
				t.Errorf("%s: %d flights, want two", name, took)
			}
		}
	}
	if n := query[int](t, look, "SELECT v FROM scratch WHERE n = 1"); n != v {
		t.Errorf("%d updates were committed, want %d", n, v)
	}
}

// TestHandedDoNotRunWhenBusy makes each of the declared locks busy in turn: no handed statement runs before all are held.
func TestHandedDoNotRunWhenBusy(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	var f flights
	db := open(t, d, f.through)
	holder, look := d.Conn(t), d.Conn(t)
	exec(t, look, scratch)
	exec(t, look, "CREATE SEQUENCE ran") // counts runs, those that were rolled back too
	keys := subscriptions(3)
	for i, busy := range append([]lockorder.Lock{rendezvous()}, keys...) {
		for round := range 2 {
			exec(t, look, "UPDATE scratch SET v = 0")
			exec(t, holder, "BEGIN")
			exec(t, holder, "SELECT pg_advisory_xact_lock($1)", busy.Key())
			called, read := 0, 0
			spec := handing(materializing(keys...), &called, &read)
			queue := spec.Handed
			spec.Handed = func(h *lockorder.Handed) {
				queue(h)
				h.Queue("SELECT nextval('ran')")
			}
			before := f.count()
			done := start(func() error { return db.Run(context.Background(), spec, nil) })
			until(t, "it waits", func() bool { return lockWaiters(t, look, busy) == 1 })
			if query[bool](t, look, "SELECT is_called FROM ran") && i+round == 0 {
				t.Error("a handed statement ran while a lock was busy")
			}
			exec(t, holder, "COMMIT")
			if err := receive(t, done, "the transaction"); err != nil {
				t.Fatal(err)
			}
			if n := query[int](t, look, "SELECT v FROM scratch WHERE n = 1"); n != 1 || read != 1 || called != 2 {
				t.Errorf("%s busy: the handed statements ran %d times and read %d; Handed was called %d times", busy, n, read, called)
			}
			if n, want := query[int](t, look, "SELECT last_value::int FROM ran"), 2*i+round+1; n != want {
				t.Errorf("%s busy: the handed statements have run %d times in all, want %d", busy, n, want)
			}
			// Opening, ROLLBACK, opening, wait, what comes after the busy one, the statements, COMMIT.
			want := 7
			if i == len(keys) {
				want = 6 // nothing comes after the last
			}
			if took := f.count() - before; round == 1 && took != want {
				t.Errorf("%s busy: %d flights, want %d", busy, took, want)
			}
		}
	}
}

// TestHandedFail lets handed statements, and the functions that read them, fail.
func TestHandedFail(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d, oneConn)
	look := d.Conn(t)
	exec(t, look, scratch)
	own := errors.New("the caller's own")
	for name, test := range map[string]struct {
		queue func(h *lockorder.Handed)
		want  lockorder.Verdict
	}{
		"a statement":             {func(h *lockorder.Handed) { h.Queue("INSERT INTO scratch VALUES (1)") }, lockorder.VerdictConflict},
		"the guard's own state":   {func(h *lockorder.Handed) { h.Queue("SELECT fails('42704')") }, lockorder.VerdictOther},
		"what reads it":           {func(h *lockorder.Handed) { h.Queue("SELECT 1").QueryRow(func(pgx.Row) error { return own }) }, lockorder.VerdictOther},
		"COMMIT":                  {func(h *lockorder.Handed) { h.Queue("COMMIT") }, lockorder.VerdictMisuse},
		"two statements":          {func(h *lockorder.Handed) { h.Queue("SELECT 1; SELECT 2") }, lockorder.VerdictMisuse},
		"FOR UPDATE":              {func(h *lockorder.Handed) { h.Queue("SELECT FROM scratch for /**/ update") }, lockorder.VerdictMisuse},
		"FOR NO KEY UPDATE":       {func(h *lockorder.Handed) { h.Queue("SELECT FROM scratch FOR NO KEY UPDATE") }, lockorder.VerdictMisuse},
		"FOR SHARE":               {func(h *lockorder.Handed) { h.Queue("SELECT FROM scratch FOR SHARE") }, lockorder.VerdictMisuse},
		"FOR KEY SHARE":           {func(h *lockorder.Handed) { h.Queue("SELECT FROM scratch FOR KEY SHARE") }, lockorder.VerdictMisuse},
		"LOCK":                    {func(h *lockorder.Handed) { h.Queue("LOCK scratch") }, lockorder.VerdictMisuse},
		"an advisory lock":        {func(h *lockorder.Handed) { h.Queue("SELECT pg_advisory_xact_lock(1)") }, lockorder.VerdictMisuse},
		"an advisory lock, cited": {func(h *lockorder.Handed) { h.Queue(`SELECT "pg_advisory_lock"(1)`) }, lockorder.VerdictMisuse},
		"a rewriter":              {func(h *lockorder.Handed) { h.Queue("SELECT 1", toCommit{}) }, lockorder.VerdictMisuse},
		"the first of two":        {func(h *lockorder.Handed) { h.Queue("LOCK scratch"); h.Queue("SELECT 1") }, lockorder.VerdictMisuse},
	} {
		t.Run(name, func(t *testing.T) {
			spec := plain(subscriptions(1)...)
			spec.Handed = func(h *lockorder.Handed) {
				h.Queue("UPDATE scratch SET v = 5 WHERE n = 2").Exec(func(pgconn.CommandTag) error {
					if test.want == lockorder.VerdictMisuse {
						t.Error("SQL was sent before the refusal")
					}
					return nil
				})
				test.queue(h)
			}
			err := db.Run(t.Context(), spec, func(context.Context, *lockorder.Tx) error {
				t.Error("fn runs")
				return nil
			})
			wantVerdict(t, err, test.want)
			if name == "what reads it" != errors.Is(err, own) {
				t.Errorf("the error is %v", err)
			}
			if n := query[int](t, look, "SELECT v FROM scratch WHERE n = 2"); n != 0 {
				t.Error("the statements before the failure were committed")
			}
			run(t, db, plain(), nothing)
		})
	}
	if n := db.Stat().NewConnsCount(); n != 1 {
		t.Errorf("%d connections were made, want one", n)
	}
}

type toCommit struct{}

func (toCommit) RewriteQuery(context.Context, *pgx.Conn, string, []any) (string, []any, error) {
	return "COMMIT", nil, nil
}

// TestGuards tries guards: a function, and those whose error is none, or not the one that was named.
func TestGuards(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	holder, look := d.Conn(t), d.Conn(t)
	exec(t, look, scratch)
	exec(t, look, guardFunction)
	key := subscriptions(1)[0]
	for guard, want := range map[string]lockorder.Verdict{
		"guard()":           "",
		"1":                 lockorder.VerdictMisuse,
		"missing()":         lockorder.VerdictOther,
		"1/(SELECT 0)":      lockorder.VerdictOther,
		"pg_sleep(guard())": lockorder.VerdictOther,
	} {
		db := open(t, d, func(o *lockorder.Options) { o.Guard, o.GuardState = guard, "LO001" })
		exec(t, look, "UPDATE scratch SET v = 0")
		exec(t, holder, "BEGIN")
		exec(t, holder, "SELECT pg_advisory_xact_lock($1)", key.Key())
		called, read := 0, 0
		done := start(func() error { return db.Run(context.Background(), handing(plain(key), &called, &read), nil) })
		until(t, "it waits, or has ended", func() bool { return lockWaiters(t, look, key) == 1 || len(done) > 0 })
		exec(t, holder, "COMMIT")
		if err := receive(t, done, "the transaction"); lockorder.VerdictOf(err) != want {
			t.Errorf("%s: %v", guard, err)
		}
		if n := query[int](t, look, "SELECT v FROM scratch WHERE n = 1"); (n == 1) != (want == "") {
			t.Errorf("%s: the handed statements were committed %d times", guard, n)
		}
	}
	for _, o := range []lockorder.Options{
		{Guard: "guard()"}, {GuardState: "LO001"},
		{Guard: "guard()", GuardState: "57014"}, {Guard: "guard()", GuardState: "55P03"}, {Guard: "guard()", GuardState: "08LO1"},
		{Guard: "guard()", GuardState: "lo001"}, {Guard: "guard()", GuardState: "LO01"}, {Guard: "guard()", GuardState: "LO 01"},
	} {
		if db, err := lockorder.Open(t.Context(), d.URL(), o); err == nil {
			db.Close()
			t.Errorf("the guard %q with the state %q was let in", o.Guard, o.GuardState)
		}
	}
}

const guardFunction = `CREATE FUNCTION guard() RETURNS text LANGUAGE plpgsql AS $$ BEGIN
	RAISE EXCEPTION 'busy' USING ERRCODE = 'LO001'; END $$`

// TestHandedBudgets ends the budget, and the exclusive hold, within handed statements.
func TestHandedBudgets(t *testing.T) {
	t.Parallel()
	const bound = 500 * time.Millisecond
	d := pgtest.New(t)
	db := open(t, d, oneConn, func(o *lockorder.Options) { o.ExclusiveHold = bound })
	for _, kind := range []lockorder.Kind{lockorder.Plain, lockorder.Materializing, lockorder.RuleChange} {
		spec := lockorder.Spec{Path: "handed", Kind: kind, Handed: func(h *lockorder.Handed) { h.Queue("SELECT pg_sleep(9)") }}
		want := lockorder.VerdictHeldTooLong
		if kind != lockorder.RuleChange {
			spec.Budget, want = bound, lockorder.VerdictBusy
		}
		began := time.Now()
		wantVerdict(t, db.Run(t.Context(), spec, nil), want)
		if took := time.Since(began); took < bound || took > bound+500*time.Millisecond {
			t.Errorf("%s: %s took %s", kind, bound, took)
		}
		run(t, db, plain(), nothing)
	}
	if n := db.Stat().NewConnsCount(); n != 1 {
		t.Errorf("%d connections were made, want one", n)
	}
}
