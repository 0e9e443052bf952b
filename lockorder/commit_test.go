package lockorder_test

import (
	"context"
	"testing"
	"time"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// slowToCommit makes a table each row of which holds up COMMIT for as many seconds as it says.
const slowToCommit = `CREATE TABLE slow_to_commit (seconds double precision);
	CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(NEW.seconds); RETURN NULL; END $$;
	CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON slow_to_commit DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow();
	GRANT ALL ON slow_to_commit TO public`

// TestSlowCommit has COMMIT check for longer than the budget, or the exclusive hold, allows: it is cancelled in time, nothing
// was done, that is certain, and the connection lives on. A caller who is cancelled meanwhile does not cut it short.
func TestSlowCommit(t *testing.T) {
	t.Parallel()
	const bound = 1500 * time.Millisecond
	d := pgtest.New(t)
	look := d.Conn(t)
	exec(t, look, slowToCommit)
	db := open(t, d, oneConn, func(o *lockorder.Options) { o.ExclusiveHold = bound })
	insert := func(seconds float64) func(ctx context.Context, tx *lockorder.Tx) error {
		return func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO slow_to_commit VALUES ($1)", seconds)
			return err
		}
	}
	run(t, db, plain(), insert(0)) // no connection is made within the measured time
	most := bound + bound/10
	if throughPooler() { // which makes a new connection to the server for a cancel request
		most += bound / 10
	}
	for kind, want := range map[lockorder.Kind]lockorder.Verdict{
		lockorder.Plain: lockorder.VerdictBusy, lockorder.Materializing: lockorder.VerdictBusy, lockorder.RuleChange: lockorder.VerdictHeldTooLong,
	} {
		spec := lockorder.Spec{Path: "test", Kind: kind}
		if kind != lockorder.RuleChange {
			spec.Budget = bound
		}
		began := time.Now()
		err := db.Run(t.Context(), spec, insert(3))
		if took := time.Since(began); took < bound-bound/20 || took > most {
			t.Errorf("%s: a bound of %s took %s", kind, bound, took)
		}
		wantVerdict(t, err, want)
		wantText(t, err, "COMMIT")
		if state := lockorder.SQLState(err); state != "57014" {
			t.Errorf("%s: the SQLSTATE is %q", kind, state)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := start(func() error { return db.Run(ctx, plain(), insert(0.3)) })
	until(t, "COMMIT runs", func() bool {
		return query[bool](t, look, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND query = 'COMMIT' AND wait_event = 'PgSleep')")
	})
	cancel()
	if err := receive(t, done, "the cancelled caller's COMMIT"); err != nil {
		t.Errorf("a COMMIT that could end was cut short: %v", err)
	}
	if n := query[int](t, look, "SELECT count(*) FROM slow_to_commit"); n != 2 {
		t.Errorf("%d rows were committed, want the quick ones only", n)
	}
	if n := db.Stat().NewConnsCount(); n != 1 {
		t.Errorf("%d connections were made, want one", n)
	}
}
