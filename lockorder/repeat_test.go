package lockorder_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// TestRepeatingIsSafe fails an idempotent act in every way that has a verdict and repeats it: it is done once, also where
// the first try had committed and only its answer was lost.
func TestRepeatingIsSafe(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	look := d.Conn(t)
	exec(t, look, scratch)
	exec(t, look, "CREATE TABLE acts (id int PRIMARY KEY)")
	key := subscriptions(1)[0]
	// act counts once for each id.
	act := func(id int, then func(ctx context.Context, tx *lockorder.Tx) error) func(ctx context.Context, tx *lockorder.Tx) error {
		return func(ctx context.Context, tx *lockorder.Tx) error {
			tag, err := tx.Exec(ctx, "INSERT INTO acts VALUES ($1) ON CONFLICT DO NOTHING", id)
			if err != nil {
				return err
			}
			if tag.RowsAffected() == 1 {
				if _, err := tx.Exec(ctx, "UPDATE scratch SET v = v + 1 WHERE n = 1"); err != nil {
					return err
				}
			}
			return then(ctx, tx)
		}
	}
	raise := func(state string) func(ctx context.Context, tx *lockorder.Tx) error {
		return func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := tx.Exec(ctx, "SELECT fails($1)", state)
			return err
		}
	}
	cut := func(forward bool) func(*lockorder.Options) {
		return func(o *lockorder.Options) {
			o.Configure = func(c *pgxpool.Config) {
				c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
					if err != nil {
						return nil, err
					}
					return &cutter{Conn: conn, forward: forward, cut: new(atomic.Bool)}, nil
				}
			}
		}
	}
	whole := open(t, d)
	for id, test := range []struct {
		name string
		db   *lockorder.DB
		then func(ctx context.Context, tx *lockorder.Tx) error
		want lockorder.Verdict
		done bool // by the first try
	}{
		{"deadlock", whole, raise("40P01"), lockorder.VerdictDeadlock, false},
		{"lock time-out", whole, raise("55P03"), lockorder.VerdictLockTimeout, false},
		{"serialization", whole, raise("40001"), lockorder.VerdictSerialization, false},
		{"idle", open(t, d, func(o *lockorder.Options) { o.IdleTimeout = 100 * time.Millisecond }), func(_ context.Context, tx *lockorder.Tx) error {
			untilGone(t, look, tx.PID())
			return nil
		}, lockorder.VerdictIdle, false},
		{"broken connection", whole, func(ctx context.Context, tx *lockorder.Tx) error {
			exec(t, look, "SELECT pg_terminate_backend($1)", int64(tx.PID()))
			untilGone(t, look, tx.PID())
			_, err := tx.Exec(ctx, "SELECT 1")
			return err
		}, lockorder.VerdictConnection, false},
		{"error swallowed", whole, func(ctx context.Context, tx *lockorder.Tx) error {
			if err := raise("22023")(ctx, tx); err == nil {
				return errors.New("nothing was raised")
			}
			return nil
		}, lockorder.VerdictAborted, false},
		{"COMMIT done, its answer lost", open(t, d, cut(true)), nothing, lockorder.VerdictCommitUnknown, true},
		{"COMMIT lost", open(t, d, cut(false)), nothing, lockorder.VerdictCommitUnknown, false},
	} {
		exec(t, look, "UPDATE scratch SET v = 0 WHERE n = 1")
		wantVerdict(t, test.db.Run(t.Context(), plain(key), act(id, test.then)), test.want)
		until(t, "the first try is over", func() bool { return lockState(t, look, 0, key) == "" })
		if n := query[int](t, look, "SELECT v FROM scratch WHERE n = 1"); (n == 1) != test.done {
			t.Errorf("%s: the first try was done %d times", test.name, n)
		}
		run(t, whole, plain(key), act(id, nothing))
		if n := query[int](t, look, "SELECT v FROM scratch WHERE n = 1"); n != 1 {
			t.Errorf("%s: repeated, the act was done %d times", test.name, n)
		}
	}
}
