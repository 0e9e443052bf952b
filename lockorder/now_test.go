package lockorder_test

import (
	"context"
	"testing"
	"time"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// TestNowIsReadUnderTheLocks lets a transaction wait for a row: its time is after the commit that it waited for.
func TestNowIsReadUnderTheLocks(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d)
	holder, look := d.Conn(t), d.Conn(t)
	row := pools(t, holder, 1)[0]
	exec(t, holder, "BEGIN")
	exec(t, holder, "SELECT FROM core.pools WHERE id = $1 FOR NO KEY UPDATE", identity(row))
	var now, again, transactionStart time.Time
	done := start(func() error {
		return db.Run(t.Context(), plain(), func(ctx context.Context, tx *lockorder.Tx) (err error) {
			if err := tx.Lock(ctx, row); err != nil {
				return err
			}
			if now, err = tx.Now(ctx); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "SELECT pg_sleep(0.01)"); err != nil {
				return err
			}
			if again, err = tx.Now(ctx); err != nil {
				return err
			}
			return tx.QueryRow(ctx, "SELECT now()").Scan(&transactionStart)
		})
	})
	until(t, "the row is waited for", func() bool { return anyWaits(t, look) })
	exec(t, holder, "SELECT pg_sleep(0.3)")
	released := query[time.Time](t, holder, "SELECT clock_timestamp()")
	exec(t, holder, "COMMIT")
	if err := receive(t, done, "the transaction"); err != nil {
		t.Fatal(err)
	}
	if now.Before(released) {
		t.Errorf("the time under the lock is %s before the lock was free", released.Sub(now))
	}
	if !again.Equal(now) {
		t.Errorf("asked again, the time is %s later", again.Sub(now))
	}
	if now.Location() != time.UTC {
		t.Errorf("the time is in %s", now.Location())
	}
	if !transactionStart.Before(released) {
		t.Error("the control is wrong: now() too is after the wait")
	}
}

// TestNowIsTheDatabasesClock shifts the clock of the database.
func TestNowIsTheDatabasesClock(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t, pgtest.Setting("bursar.clock_offset", "40 days"))
	for _, test := range []struct {
		db   *lockorder.DB
		want time.Duration
	}{
		{open(t, d), 40 * 24 * time.Hour},
		{open(t, d, func(o *lockorder.Options) { o.NowSQL = "" }), 0},
	} {
		run(t, test.db, plain(), func(ctx context.Context, tx *lockorder.Tx) error {
			now, err := tx.Now(ctx)
			if off := time.Until(now) - test.want; off < -time.Hour || off > time.Hour {
				t.Errorf("the time is %s, want it %s from now", now, test.want)
			}
			return err
		})
	}
}
