package lockorder_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

const scratch = `
	CREATE EXTENSION IF NOT EXISTS btree_gist;
	CREATE TABLE scratch (n int PRIMARY KEY, v int NOT NULL DEFAULT 0);
	INSERT INTO scratch VALUES (1), (2);
	CREATE TABLE late (n int UNIQUE DEFERRABLE INITIALLY DEFERRED);
	CREATE TABLE spans (n int, r int4range, EXCLUDE USING gist (n WITH =, r WITH &&));
	CREATE FUNCTION fails(state text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'raised' USING ERRCODE = state; END $$;`

// TestVerdicts makes the server fail transactions in every way that has a verdict.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d, twoConns)
	look := d.Conn(t)
	exec(t, look, scratch)
	say := func(sql string, args ...any) func(ctx context.Context, tx *lockorder.Tx) error {
		return func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := tx.Exec(ctx, sql, args...)
			return err
		}
	}
	// terminate ends the transaction's backend and waits until it is gone.
	terminate := func(tx *lockorder.Tx) {
		pid := tx.PID()
		exec(t, look, "SELECT pg_terminate_backend($1)", int64(pid))
		untilGone(t, look, pid)
	}
	own := errors.New("the caller's own")
	tests := map[string]struct {
		fn    func(ctx context.Context, tx *lockorder.Tx) error
		want  lockorder.Verdict
		state string
	}{
		"serialization":        {say("SELECT fails('40001')"), lockorder.VerdictSerialization, "40001"},
		"deadlock, raised":     {say("SELECT fails('40P01')"), lockorder.VerdictDeadlock, "40P01"},
		"lock timeout, raised": {say("SELECT fails('55P03')"), lockorder.VerdictLockTimeout, "55P03"},
		"lock table full":      {say("SELECT fails('53200')"), lockorder.VerdictLockTableFull, "53200"},
		"cancelled, raised":    {say("SELECT fails('57014')"), lockorder.VerdictCancelled, "57014"},
		"connection, raised":   {say("SELECT fails('08006')"), lockorder.VerdictConnection, "08006"},
		"another state":        {say("SELECT fails('22023')"), lockorder.VerdictOther, "22023"},
		"unique":               {say("INSERT INTO scratch VALUES (1)"), lockorder.VerdictConflict, "23505"},
		"exclusion":            {say("INSERT INTO spans VALUES (1, '[1,3)'), (1, '[2,4)')"), lockorder.VerdictConflict, "23P01"},
		"unique, at COMMIT":    {say("INSERT INTO late VALUES (1), (1)"), lockorder.VerdictConflict, "23505"},
		"the caller's own":     {func(context.Context, *lockorder.Tx) error { return own }, lockorder.VerdictOther, ""},
		"an error after an error": {func(ctx context.Context, tx *lockorder.Tx) error {
			_, _ = tx.Exec(ctx, "SELECT fails('22023')")
			_, err := tx.Exec(ctx, "SELECT 1")
			return err
		}, lockorder.VerdictAborted, "25P02"},
		"an error swallowed": {func(ctx context.Context, tx *lockorder.Tx) error {
			_, _ = tx.Exec(ctx, "SELECT fails('22023')")
			return nil
		}, lockorder.VerdictAborted, ""},
		"cancelled from outside": {func(ctx context.Context, tx *lockorder.Tx) error {
			pid := int64(tx.PID())
			time.AfterFunc(50*time.Millisecond, func() {
				_ = db.Reader().QueryRow(context.Background(), "SELECT pg_cancel_backend($1)", pid).Scan(nil)
			})
			_, err := tx.Exec(ctx, "SELECT pg_sleep(30)")
			return err
		}, lockorder.VerdictCancelled, "57014"},
		"terminated before a statement": {func(ctx context.Context, tx *lockorder.Tx) error {
			terminate(tx)
			_, err := tx.Exec(ctx, "SELECT 1")
			return err
		}, lockorder.VerdictConnection, "57P01"},
		"terminated before COMMIT": {func(_ context.Context, tx *lockorder.Tx) error {
			terminate(tx)
			return nil
		}, lockorder.VerdictCommitUnknown, "57P01"},
		"a connection that closed before COMMIT was sent": {func(ctx context.Context, tx *lockorder.Tx) error {
			terminate(tx)
			_, _ = tx.Exec(ctx, "SELECT 1")
			return nil
		}, lockorder.VerdictConnection, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := db.Run(t.Context(), plain(), test.fn)
			wantVerdict(t, err, test.want)
			if got := lockorder.SQLState(err); got != test.state {
				t.Errorf("the SQLSTATE is %q, want %q", got, test.state)
			}
			if wrapped := fmt.Errorf("outer: %w", errors.Join(errors.New("other"), err)); lockorder.VerdictOf(wrapped) != test.want {
				t.Errorf("wrapped, the verdict is %q", lockorder.VerdictOf(wrapped))
			}
			if errors.Is(err, own) != (name == "the caller's own") {
				t.Errorf("the caller's own error is lost, or found where it is not: %v", err)
			}
			wantText(t, err, "plain transaction test", string(test.want))
			run(t, db, plain(), nothing) // whatever happened, the pool works
		})
	}
	if lockorder.VerdictOf(nil) != "" || lockorder.SQLState(nil) != "" {
		t.Error("nil has a verdict or a state")
	}
	for err, want := range map[error]lockorder.Verdict{
		io.ErrUnexpectedEOF: lockorder.VerdictConnection, net.ErrClosed: lockorder.VerdictConnection, context.Canceled: lockorder.VerdictCancelled,
		errors.New("x"): lockorder.VerdictOther, lockorder.ErrBusy: lockorder.VerdictBusy, lockorder.ErrNoRow: lockorder.VerdictOther,
		&pgconn.PgError{Code: "XX000", Severity: "FATALE", SeverityUnlocalized: "FATAL"}: lockorder.VerdictConnection,
		&pgconn.PgError{Code: "XX000", Severity: "ERROR", SeverityUnlocalized: "ERROR"}:  lockorder.VerdictOther,
		&pgconn.PgError{}: lockorder.VerdictOther,
	} {
		if got := lockorder.VerdictOf(err); got != want {
			t.Errorf("%v has the verdict %q, want %q", err, got, want)
		}
	}
}

// untilGone waits until a backend has ended.
func untilGone(t *testing.T, look *pgx.Conn, pid uint32) {
	t.Helper()
	until(t, "the backend is gone", func() bool {
		return query[int](t, look, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", int64(pid)) == 0
	})
}

// untilOver waits until a backend is in no transaction, or gone. A pooler keeps a backend whose client has left.
func untilOver(t *testing.T, look *pgx.Conn, pid uint32) {
	t.Helper()
	until(t, "the transaction is over", func() bool {
		return query[int](t, look, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND xact_start IS NOT NULL", int64(pid)) == 0
	})
}

// TestErrorKeepsWords wraps the error of a lock in words of the caller's own.
func TestErrorKeepsWords(t *testing.T) {
	t.Parallel()
	db := open(t, pgtest.New(t))
	missing := lockorder.PoolRow(workspaceA)
	err := db.Run(t.Context(), materializing(), func(ctx context.Context, tx *lockorder.Tx) error {
		return fmt.Errorf("conferring: %w", tx.Lock(ctx, missing))
	})
	wantText(t, err, "materializing transaction test: conferring: locking "+missing.String()+": no such row to lock (other)")
	var e *lockorder.Error
	if !errors.As(err, &e) || e.Doing != "locking "+missing.String() || e.Path != "test" || e.Kind != lockorder.Materializing {
		t.Errorf("the error is %+v", e)
	}
}

// TestRealDeadlock crosses two writes that no lock of ours announced.
func TestRealDeadlock(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t, pgtest.Deadlocks(), pgtest.Setting("deadlock_timeout", "100ms"))
	db := open(t, d, twoConns)
	look := d.Conn(t)
	exec(t, look, scratch)
	var both sync.WaitGroup
	both.Add(2)
	cross := func(first, second int) func() error {
		return func() error {
			return db.Run(context.Background(), plain(), func(ctx context.Context, tx *lockorder.Tx) error {
				if _, err := tx.Exec(ctx, "UPDATE scratch SET v = v + 1 WHERE n = $1", first); err != nil {
					return err
				}
				both.Done()
				both.Wait()
				_, err := tx.Exec(ctx, "UPDATE scratch SET v = v + 1 WHERE n = $1", second)
				return err
			})
		}
	}
	a, b := start(cross(1, 2)), start(cross(2, 1))
	errA, errB := receive(t, a, "the one"), receive(t, b, "the other")
	if errA != nil {
		errA, errB = errB, errA
	}
	if errA != nil {
		t.Fatalf("both failed: %v, %v", errA, errB)
	}
	wantVerdict(t, errB, lockorder.VerdictDeadlock)
}

// TestIdle lets a transaction sit for longer than its bound.
func TestIdle(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d, func(o *lockorder.Options) { o.IdleTimeout = 100 * time.Millisecond })
	look := d.Conn(t)
	for _, then := range []string{"a statement", "COMMIT"} {
		err := db.Run(t.Context(), plain(), func(ctx context.Context, tx *lockorder.Tx) error {
			untilGone(t, look, tx.PID())
			if then == "COMMIT" {
				return nil // the server had ended it before: nothing is unknown
			}
			_, err := tx.Exec(ctx, "SELECT 1")
			return err
		})
		wantVerdict(t, err, lockorder.VerdictIdle)
	}
	run(t, db, plain(), nothing)
}

// TestRefusedAtCommit has a constraint trigger refuse the transaction when it is committed.
func TestRefusedAtCommit(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d, oneConn)
	look := d.Conn(t)
	pools(t, look, 1)
	err := db.Run(t.Context(), materializing(), func(ctx context.Context, tx *lockorder.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO core.organizations (slug, name, type_id) SELECT 'poolless', 'no pool', id FROM core.organization_types")
		return err
	})
	wantVerdict(t, err, lockorder.VerdictOther)
	if got := lockorder.SQLState(err); got != "23000" {
		t.Errorf("the SQLSTATE is %q: %v", got, err)
	}
	if n := query[int](t, look, "SELECT count(*) FROM core.organizations WHERE slug = 'poolless'"); n != 0 {
		t.Error("the refused row is there")
	}
	run(t, db, plain(), nothing)
	if n := db.Stat().NewConnsCount(); n != 1 {
		t.Errorf("%d connections were made, want one", n)
	}
}

// cutter closes a connection once COMMIT has been written to it, or instead.
type cutter struct {
	net.Conn
	forward bool
	cut     *atomic.Bool
}

func (c *cutter) Write(b []byte) (int, error) {
	if !strings.Contains(string(b), "COMMIT\x00") {
		return c.Conn.Write(b)
	}
	c.cut.Store(true)
	if c.forward {
		if n, err := c.Conn.Write(b); err != nil {
			return n, err
		}
	}
	return len(b), nil
}

func (c *cutter) Read(b []byte) (int, error) {
	if c.cut.Load() {
		if c.forward { // the answer arrives here and goes no further
			_, _ = c.Conn.Read(b)
		}
		_ = c.Conn.Close()
		return 0, io.EOF
	}
	return c.Conn.Read(b)
}

// TestLostCommit loses the answer to COMMIT: once after it was done, and once before it arrived. The caller cannot tell.
func TestLostCommit(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	look := d.Conn(t)
	exec(t, look, scratch)
	for n, forward := range map[int]bool{10: true, 11: false} {
		db := open(t, d, func(o *lockorder.Options) {
			o.Configure = func(c *pgxpool.Config) {
				c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
					if err != nil {
						return nil, err
					}
					return &cutter{Conn: conn, forward: forward, cut: new(atomic.Bool)}, nil
				}
			}
		})
		var pid uint32
		err := db.Run(t.Context(), plain(), func(ctx context.Context, tx *lockorder.Tx) error {
			pid = tx.PID()
			_, err := tx.Exec(ctx, "INSERT INTO scratch VALUES ($1)", n)
			return err
		})
		wantVerdict(t, err, lockorder.VerdictCommitUnknown)
		untilOver(t, look, pid)
		if done := query[bool](t, look, "SELECT EXISTS (SELECT FROM scratch WHERE n = $1)", n); done != forward {
			t.Errorf("COMMIT forwarded: %t, done: %t", forward, done)
		}
	}
}
