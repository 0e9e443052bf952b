package lockorder_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// controls are texts in which a statement controls the transaction.
var controls = []string{
	"BEGIN", "COMMIT", "end", "Rollback", "ABORT", "START TRANSACTION", "SAVEPOINT s", "RELEASE s", "ROLLBACK TO s",
	"PREPARE TRANSACTION 'x'", "SET lock_timeout = 0", "SET LOCAL lock_timeout = 0", "RESET ALL", "DISCARD ALL", "DEALLOCATE ALL",
	"LOCK TABLE core.pools", "CALL p()", "DO $$BEGIN END$$",
	"  \t\r\n\f\vCOMMIT", "; ;COMMIT", "-- note\nCOMMIT", "-- note\rCOMMIT", "/* note */COMMIT", "/* /* */ */ COMMIT", "/* */ -- \n /**/ COMMIT",
	"SELECT 1; COMMIT", "SELECT 1;COMMIT", "SELECT ';'; COMMIT", "SELECT 'a''b;'; COMMIT", `SELECT E'\';'; COMMIT`, `SELECT ";"; COMMIT`,
	"SELECT $$;$$; COMMIT", "SELECT $a$ $$; $a$; COMMIT", "SELECT $1; COMMIT", "SELECT 1 /* ; */; COMMIT", "SELECT 1 -- ;\n; COMMIT",
	"SELECT a$b$c; COMMIT", "SELECT é$b$; COMMIT", `SELECT 'a\'; COMMIT`, "SELECT 1e5; COMMIT", "(SELECT 1); COMMIT",
}

// harmless are texts that only look so.
var harmless = []string{
	"SELECT 1", "", ";", "-- COMMIT", "/* COMMIT */", "/* ; COMMIT */ SELECT 1", "SELECT 1;", "SELECT 'x; COMMIT'", `SELECT "; COMMIT" FROM t`,
	`SELECT E'\'; COMMIT'`, "SELECT $$; COMMIT$$", "SELECT $q$; $$; COMMIT$q$", "SELECT 1 -- ; COMMIT", "SELECT 1 /* /* */; COMMIT */",
	"SELECT commit FROM begin", "INSERT INTO set VALUES (1)", "WITH x AS (SELECT 1) SELECT 1; SELECT 2", "commitment", "TABLE lock",
	"SELECT 'unterminated ; COMMIT", "/* unterminated ; COMMIT", "SELECT $$ unterminated ; COMMIT", "UPDATE t SET a = 1", "$", "SELECT 1 $",
}

func TestControlStatements(t *testing.T) {
	t.Parallel()
	for _, sql := range controls {
		if err := lockorder.CheckStatement(sql); !errors.Is(err, lockorder.ErrForbidden) {
			t.Errorf("%q passes: %v", sql, err)
		}
	}
	for _, sql := range harmless {
		if err := lockorder.CheckStatement(sql); err != nil {
			t.Errorf("%q is refused: %v", sql, err)
		}
	}
}

// rewriter puts another statement in the place of the checked one, and is given the connection.
type rewriter struct{}

func (rewriter) RewriteQuery(context.Context, *pgx.Conn, string, []any) (string, []any, error) {
	return "COMMIT", nil, nil
}

// TestHandleCannotControl tries every way in which a Tx takes a statement.
func TestHandleCannotControl(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	var f flights
	db := open(t, d, f.through)
	refused := func(t *testing.T, what string, err error) {
		t.Helper()
		if !errors.Is(err, lockorder.ErrForbidden) || lockorder.VerdictOf(err) != lockorder.VerdictMisuse {
			t.Errorf("%s: %v", what, err)
		}
	}
	run(t, db, plain(), func(ctx context.Context, tx *lockorder.Tx) error {
		before := f.count()
		for _, sql := range controls {
			_, err := tx.Exec(ctx, sql)
			refused(t, "Exec "+sql, err)
			_, err = tx.Query(ctx, sql)
			refused(t, "Query "+sql, err)
			refused(t, "QueryRow "+sql, tx.QueryRow(ctx, sql).Scan())
			batch := &pgx.Batch{}
			batch.Queue("SELECT 1")
			batch.Queue(sql)
			refused(t, "SendBatch "+sql, tx.SendBatch(ctx, batch).Close())
		}
		_, err := tx.Exec(ctx, "SELECT $1::int", rewriter{}, 1)
		refused(t, "a rewriter", err)
		_, err = tx.Query(ctx, "SELECT $1::int", pgx.QueryExecModeExec, rewriter{}, 1)
		refused(t, "a rewriter after a mode", err)
		batch := &pgx.Batch{}
		batch.Queue("SELECT $1::int", rewriter{}, 1)
		refused(t, "a rewriter in a batch", tx.SendBatch(ctx, batch).Close())
		begins := &pgx.Batch{}
		begins.BeginTx(pgx.TxOptions{BeginQuery: "SELECT 1"})
		results := tx.SendBatch(ctx, begins)
		refused(t, "a batch with BeginTx", results.Close())
		if err := results.Tx().Commit(ctx); !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("the refused batch hands out a transaction: %v", err)
		}
		if f.count() != before {
			t.Errorf("%d flights were sent for what was refused", f.count()-before)
		}
		var n int
		if err := tx.QueryRow(ctx, "SELECT @n::int", pgx.NamedArgs{"n": 3}).Scan(&n); err != nil || n != 3 {
			t.Errorf("named arguments: %d, %v", n, err)
		}
		return nil
	})
}

// TestHandleHidesConnection looks for the connection behind rows.
func TestHandleHidesConnection(t *testing.T) {
	t.Parallel()
	db := open(t, pgtest.New(t))
	hidden := func(what string, rows pgx.Rows, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		defer rows.Close()
		if rows.Conn() != nil {
			t.Errorf("%s hands out its connection", what)
		}
	}
	run(t, db, plain(), func(ctx context.Context, tx *lockorder.Tx) error {
		rows, err := tx.Query(ctx, "SELECT 1")
		hidden("Query", rows, err)
		ran := false
		batch := &pgx.Batch{}
		batch.Queue("SELECT 1")
		batch.Queue("SELECT 2").Query(func(rows pgx.Rows) error {
			ran = true
			hidden("a queued function", rows, nil)
			return nil
		})
		results := tx.SendBatch(ctx, batch)
		rows, err = results.Query()
		hidden("a batch", rows, err)
		if results.Tx() != nil {
			t.Error("a batch hands out a transaction")
		}
		if err := results.Close(); err != nil || !ran {
			t.Errorf("the batch: %v, its function ran: %t", err, ran)
		}
		return nil
	})
	rows, err := db.Reader().Query(t.Context(), "SELECT 1")
	hidden("a Reader", rows, err)
}

// TestAfterTheEnd uses a handle that outlived its transaction.
func TestAfterTheEnd(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	var f flights
	db := open(t, d, f.through)
	key := subscriptions(1)[0]
	var kept *lockorder.Tx
	for _, failure := range []error{nil, errors.New("no")} {
		if err := db.Run(t.Context(), plain(key), func(_ context.Context, tx *lockorder.Tx) error {
			kept = tx
			return failure
		}); !errors.Is(err, failure) {
			t.Fatal(err)
		}
		before := f.count()
		ctx := t.Context()
		_, execErr := kept.Exec(ctx, "SELECT 1")
		_, queryErr := kept.Query(ctx, "SELECT 1")
		_, nowErr := kept.Now(ctx)
		batch := &pgx.Batch{}
		batch.Queue("SELECT 1")
		for what, err := range map[string]error{
			"Exec": execErr, "Query": queryErr, "Now": nowErr, "QueryRow": kept.QueryRow(ctx, "SELECT 1").Scan(nil),
			"SendBatch": kept.SendBatch(ctx, batch).Close(), "Lock": kept.Lock(ctx, key), "Require": kept.Require(key), "RequireKind": kept.RequireKind(lockorder.Plain),
		} {
			if !errors.Is(err, lockorder.ErrDone) || lockorder.VerdictOf(err) != lockorder.VerdictMisuse {
				t.Errorf("%s after the end: %v", what, err)
			}
		}
		if f.count() != before {
			t.Errorf("%d flights were sent after the end", f.count()-before)
		}
	}
}

// TestUnreadResults leaves results unread: the transaction ends all the same, on the same connection.
func TestUnreadResults(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d, oneConn)
	conn := d.Conn(t)
	exec(t, conn, "CREATE TABLE seen (n int)")
	leave := map[string]func(ctx context.Context, tx *lockorder.Tx) error{
		"rows": func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := tx.Query(ctx, "SELECT generate_series(1, 5000)")
			return err
		},
		"a row": func(ctx context.Context, tx *lockorder.Tx) error {
			tx.QueryRow(ctx, "SELECT 1")
			return nil
		},
		"a batch": func(ctx context.Context, tx *lockorder.Tx) error {
			batch := &pgx.Batch{}
			batch.Queue("SELECT 1")
			tx.SendBatch(ctx, batch)
			return nil
		},
	}
	for name, fn := range leave {
		for _, failure := range []error{nil, errors.New("no")} {
			exec(t, conn, "TRUNCATE seen")
			err := db.Run(t.Context(), plain(), func(ctx context.Context, tx *lockorder.Tx) error {
				if _, err := tx.Exec(ctx, "INSERT INTO seen VALUES (1)"); err != nil {
					return err
				}
				return errors.Join(fn(ctx, tx), failure)
			})
			if !errors.Is(err, failure) || failure == nil && err != nil {
				t.Errorf("%s left unread: %v", name, err)
			}
			want := map[bool]int{true: 1, false: 0}[failure == nil]
			if got := query[int](t, conn, "SELECT count(*) FROM seen"); got != want {
				t.Errorf("%s left unread: %d rows were written, want %d (%v)", name, got, want, failure)
			}
		}
	}
	if n := db.Stat().NewConnsCount(); n != 1 {
		t.Errorf("%d connections were made, want one", n)
	}
}

// TestReaderOnlyReads tries to write through a Reader.
func TestReaderOnlyReads(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d)
	conn := d.Conn(t)
	exec(t, conn, "CREATE TABLE seen (n int)")
	for _, sql := range []string{
		"INSERT INTO seen VALUES (1) RETURNING n", "WITH x AS (INSERT INTO seen VALUES (1) RETURNING n) SELECT n FROM x", "DELETE FROM seen RETURNING n",
		"EXPLAIN ANALYZE INSERT INTO seen VALUES (1)", "BEGIN", "SELECT n FROM seen FOR UPDATE", "SELECT n FROM seen FOR NO KEY UPDATE", "TRUNCATE seen",
		"SELECT 1; COMMIT", "COPY seen TO STDOUT", "SET lock_timeout = 0",
	} {
		if rows, err := db.Reader().Query(t.Context(), sql); !errors.Is(err, lockorder.ErrForbidden) {
			t.Errorf("%q: %v", sql, err)
			if err == nil {
				rows.Close()
			}
		}
		if err := db.Reader().QueryRow(t.Context(), sql).Scan(nil); !errors.Is(err, lockorder.ErrForbidden) {
			t.Errorf("%q for a row: %v", sql, err)
		}
	}
	if _, err := db.Reader().Exec(t.Context(), "SELECT 1"); !errors.Is(err, lockorder.ErrForbidden) {
		t.Errorf("Exec: %v", err)
	}
	if err := db.Reader().QueryRow(t.Context(), "SELECT 1", rewriter{}).Scan(nil); !errors.Is(err, lockorder.ErrForbidden) {
		t.Errorf("a rewriter: %v", err)
	}
	for _, sql := range []string{"-- name: List :many\nSELECT 1", "WITH x AS (SELECT 1) TABLE x", "VALUES (1)", "SHOW lock_timeout",
		`SELECT 'INSERT', "update" FROM (SELECT 1 AS "update", 2 AS updated_at) t`} {
		if err := lockorder.CheckRead(sql); err != nil {
			t.Errorf("%q is refused: %v", sql, err)
		}
	}
	if n := query[int](t, conn, "SELECT count(*) FROM seen"); n != 0 {
		t.Errorf("%d rows were written", n)
	}
}
