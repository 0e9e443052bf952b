package lockorder

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// uniqueKey stands for the wait for another transaction that inserts the same unique key. It is a class in reports and
// in comments only: such a key is no lock that can be asked for, and has no place in the order.
var uniqueKey = &Class{Name: "unique-key"}

// MayWait returns a Querier for single statements that may wait for a unique key which another transaction is inserting.
// Nobody can tell beforehand whether one waits, so each needs a place in the lane whether it does or not, and answers an
// error that wraps ErrBusy at once where there is none; the transaction cannot be committed then. Under the exclusive
// rendezvous it waits for a tenth of a second at most. The key's name and its value, such as "core.organizations.slug"
// and "acme", tell who looks on what is waited for.
//
// A statement runs in Exec, or when the row of QueryRow is scanned; Query is refused. LockOrMake
// makes a row that a lock names, and locks it.
func (tx *Tx) MayWait(key string, value ...string) Querier {
	return waiting{tx, Lock{class: uniqueKey, parts: append([]string{key}, value...)}}
}

type waiting struct {
	tx *Tx
	on Lock
}

func (w waiting) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	err = w.tx.checkWaiting(sql, args)
	if err == nil {
		err = w.tx.inLane(ctx, w.on, sql, args, func(ctx context.Context, sql string, args []any) (err error) {
			tag, err = w.tx.conn.Exec(ctx, sql, args...)
			return err
		})
	}
	return tag, err
}

func (w waiting) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := w.tx.checkWaiting(sql, args); err != nil {
		return errRow{err}
	}
	return waitingRow{w, ctx, sql, args}
}

func (w waiting) Query(context.Context, string, ...any) (pgx.Rows, error) {
	return nil, fmt.Errorf("lockorder: %w: a statement that may wait answers one row at most; use QueryRow", ErrForbidden)
}

// waitingRow is a query that runs when its row is read: until then it needs no place.
type waitingRow struct {
	waiting
	ctx  context.Context
	sql  string
	args []any
}

func (r waitingRow) Scan(dest ...any) error {
	if r.tx.done {
		return fmt.Errorf("lockorder: %w", ErrDone)
	}
	return r.tx.inLane(r.ctx, r.on, r.sql, r.args, func(ctx context.Context, sql string, args []any) error {
		return r.tx.conn.QueryRow(ctx, sql, args...).Scan(dest...)
	})
}

func (tx *Tx) checkWaiting(sql string, args []any) error {
	if err := tx.check(sql, args); err != nil {
		return err
	}
	return checkLockless(sql)
}

// inLane runs a statement that may wait, in the lane, or, under the exclusive rendezvous, for as long as the opening has
// set. The lock time-out of the opening bounds the wait, and so does the budget.
func (tx *Tx) inLane(ctx context.Context, on Lock, sql string, args []any, run func(ctx context.Context, sql string, args []any) error) error {
	ctx, cancel := tx.bound(ctx)
	defer cancel()
	if !tx.exclusive() {
		_, leave, err := tx.mayWait()
		if err != nil {
			return failedStep("waiting for "+on.String(), tx.refused(ctx, on, 0, err))
		}
		defer leave()
	}
	// Its comment makes the text one of a kind, so it is not kept as a prepared statement. Within a transaction a pooler too
	// has one backend, which describes the statement and runs it.
	if !tx.db.simple {
		args = append([]any{pgx.QueryExecModeDescribeExec}, args...)
	}
	begun := time.Now()
	err := run(ctx, waitComment(on, tx.spec.Path)+sql, args)
	if err == nil {
		return nil
	}
	err = tx.explain(err)
	switch judge(err) {
	case VerdictBusy, VerdictLockTimeout, VerdictDeadlock, VerdictCancelled:
		return failedStep("waiting for "+on.String(), tx.refused(ctx, on, time.Since(begun), err))
	}
	return err
}
