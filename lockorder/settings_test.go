package lockorder_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

const settingsSQL = `SELECT current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout'),
	current_setting('client_connection_check_interval'), coalesce(current_setting('lockorder.rendezvous', true), ''), current_setting('application_name'), pg_backend_pid()`

// settings are what a connection shows of the bounds, and its backend.
type settings struct {
	lock, idle, check, rendezvous, holder string
	pid                                   uint32
}

func readSettings(ctx context.Context, q lockorder.Querier) (s settings, err error) {
	err = q.QueryRow(ctx, settingsSQL).Scan(&s.lock, &s.idle, &s.check, &s.rendezvous, &s.holder, &s.pid)
	return s, err
}

// TestSettings looks at the settings within a transaction, and at the same connection after every kind of end. It
// does not run in parallel with others, since it counts goroutines.
func TestSettings(t *testing.T) {
	d := pgtest.New(t)
	look := d.Conn(t)
	url := urlOf(t, d)
	leaks := goleak.IgnoreCurrent()
	db, err := lockorder.Open(t.Context(), url, lockorder.Options{
		MaxConns: 1, IdleTimeout: 7 * time.Second, CheckInterval: 1500 * time.Millisecond, Pooled: throughPooler(),
		Holder: func(context.Context, string) string { return "a holder" },
	})
	if err != nil {
		t.Fatal(err)
	}
	key := subscriptions(1)[0]
	row := pools(t, look, 1)[0]
	fresh, err := readSettings(t.Context(), db.Reader())
	if err != nil {
		t.Fatal(err)
	}
	if want := (settings{"0", "0", "0", "", fresh.holder, fresh.pid}); fresh != want {
		t.Fatalf("a fresh connection shows %v", fresh)
	}

	failure := errors.New("no")
	ends := map[string]func(ctx context.Context, cancel func(), tx *lockorder.Tx) error{
		"commit": func(context.Context, func(), *lockorder.Tx) error { return nil },
		"error":  func(context.Context, func(), *lockorder.Tx) error { return failure },
		"failed statement": func(ctx context.Context, _ func(), tx *lockorder.Tx) error {
			_, err := tx.Exec(ctx, "SELECT 1/0")
			return err
		},
		"panic": func(context.Context, func(), *lockorder.Tx) error { panic(failure) },
		"exit": func(context.Context, func(), *lockorder.Tx) error {
			runtime.Goexit()
			return nil
		},
		"cancellation": func(ctx context.Context, cancel func(), tx *lockorder.Tx) error {
			time.AfterFunc(20*time.Millisecond, cancel)
			_, err := tx.Exec(ctx, "SELECT pg_sleep(30)")
			return err
		},
		"cancellation between statements": func(_ context.Context, cancel func(), _ *lockorder.Tx) error {
			cancel()
			return nil
		},
	}
	kinds := map[lockorder.Kind]string{lockorder.Plain: "", lockorder.Materializing: "shared", lockorder.RuleChange: "exclusive"}
	for kind, rendezvous := range kinds {
		for name, end := range ends {
			what := fmt.Sprintf("%s, %s", kind, name)
			ctx, cancel := context.WithCancel(t.Context())
			ended := start(func() (err error) {
				finished := false
				defer func() { // a panic and an exit are ends like others
					if r := recover(); r != nil && r != failure {
						panic(r)
					}
					if !finished {
						err = failure
					}
				}()
				err = db.Run(ctx, lockorder.Spec{Path: "settings", Kind: kind, Keys: []lockorder.Lock{key}}, func(ctx context.Context, tx *lockorder.Tx) error {
					if err := tx.Lock(ctx, row); err != nil {
						return err
					}
					got, err := readSettings(ctx, tx)
					if err != nil {
						return err
					}
					want := settings{"5s", "7s", "1500ms", rendezvous, "a holder", fresh.pid}
					if kind == lockorder.RuleChange {
						want.lock, want.idle = "100ms", "1800ms" // nothing waits, and the hold is budgeted
					}
					if got != want {
						t.Errorf("%s: the settings are %v, want %v", what, got, want)
					}
					return end(ctx, cancel, tx)
				})
				finished = true
				return err
			})
			if name == "exit" {
				until(t, "the transaction ends", func() bool { return db.Stat().AcquiredConns() == 0 })
			} else if err := receive(t, ended, what); (err == nil) != (name == "commit") {
				t.Errorf("%s: %v", what, err)
			}
			cancel()
			after, err := readSettings(t.Context(), db.Reader())
			if err != nil || after != fresh {
				t.Errorf("after %s the connection shows %v, want %v (%v)", what, after, fresh, err)
			}
			if n := query[int](t, look, "SELECT count(*) FROM pg_locks WHERE pid = $1", int64(fresh.pid)); n != 0 {
				t.Errorf("after %s %d locks remain", what, n)
			}
		}
	}
	if s := db.Stat(); s.NewConnsCount() != 1 || s.TotalConns() != 1 || s.AcquiredConns() != 0 {
		t.Errorf("the pool has made %d connections and has %d, %d of them taken; want 1, 1 and 0", s.NewConnsCount(), s.TotalConns(), s.AcquiredConns())
	}
	db.Close()
	goleak.VerifyNone(t, leaks)
}

// TestRendezvousSetting compares lockorder.rendezvous with pg_locks at the end of transactions of each kind: when the
// rendezvous was free, and when it had to be waited for.
func TestRendezvousSetting(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d)
	look, holder := d.Conn(t), d.Conn(t)
	modes := map[string]string{"": "", "ShareLock": "shared", "ExclusiveLock": "exclusive"}
	want := map[lockorder.Kind]string{lockorder.Plain: "", lockorder.Materializing: "shared", lockorder.RuleChange: "exclusive"}
	for kind := range maps.Keys(want) {
		for _, waited := range []bool{false, true} {
			if waited {
				exec(t, holder, "BEGIN")
				exec(t, holder, "SELECT pg_advisory_xact_lock($1)", rendezvous().Key())
			}
			done := start(func() error {
				return db.Run(t.Context(), lockorder.Spec{Path: "rendezvous", Kind: kind}, func(ctx context.Context, tx *lockorder.Tx) error {
					var setting, mode string
					if err := tx.QueryRow(ctx, `SELECT current_setting('lockorder.rendezvous'), coalesce((SELECT mode FROM pg_locks
						WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted AND (classid::bigint << 32 | objid::bigint) = $1), '')`,
						rendezvous().Key()).Scan(&setting, &mode); err != nil {
						return err
					}
					if setting != want[kind] || modes[mode] != want[kind] {
						t.Errorf("%s (waited: %t): the setting says %q, pg_locks %q", kind, waited, setting, mode)
					}
					_, err := tx.Exec(ctx, "SELECT core.assert_rendezvous()")
					if missing := lockorder.SQLState(err) == "BU001"; missing != (kind == lockorder.Plain) {
						t.Errorf("%s (waited: %t): core.assert_rendezvous answers %v", kind, waited, err)
					}
					return err
				})
			})
			if waited {
				if kind != lockorder.Plain {
					until(t, "the rendezvous is waited for", func() bool { return lockWaiters(t, look, rendezvous()) == 1 })
				}
				exec(t, holder, "COMMIT")
			}
			if err := receive(t, done, "the transaction"); (err == nil) != (kind != lockorder.Plain) {
				t.Errorf("%s (waited: %t): %v", kind, waited, err)
			}
		}
	}
	var holds pgx.Row = look.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")
	var n int
	if err := holds.Scan(&n); err != nil || n != 0 {
		t.Errorf("%d advisory locks remain (%v)", n, err)
	}
}
