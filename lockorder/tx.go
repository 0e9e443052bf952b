package lockorder

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// endTimeout bounds ROLLBACK, which a cancelled caller must not cut short, and the answer to a cancel request.
const endTimeout = 5 * time.Second

// Tx is an open transaction. It runs statements and takes locks; it cannot commit, roll back, begin or make a
// savepoint, and only Run makes one. It is for one goroutine at a time, and dead once fn returns.
type Tx struct {
	db       *DB
	conn     *pgxpool.Conn
	spec     Spec
	deadline time.Time // the end of the budget, or of the exclusive hold where that comes first
	overdue  error     // what its passing means
	turn     *turn     // of a rule change
	shared   *int64    // the rendezvous' key, where that is taken shared
	done     bool
	lost     error  // why a lock was refused; without it the transaction must not be committed
	unread   func() // closes the result that was handed out last; the connection can do nothing else before

	held     map[lockID]bool
	top      Lock        // the highest lock held; its class is nil while there is none
	advisory int         // advisory keys held
	now      time.Time   // zero until asked for
	locks    []Lock      // what is held, kept for Options.Observe only
	holds    []holdStart // by class, kept for Options.Ended only
}

// Kind returns the kind that the transaction was opened with.
func (tx *Tx) Kind() Kind { return tx.spec.Kind }

// Path returns the path name that the transaction was opened with.
func (tx *Tx) Path() string { return tx.spec.Path }

// Now returns the database's time in UTC, read once, in a statement of its own, under the locks held when it is first
// asked for. From then on it is the same, and no new lock may be taken.
func (tx *Tx) Now(ctx context.Context) (time.Time, error) {
	if tx.done {
		return time.Time{}, failedStep("reading the time", ErrDone)
	}
	if !tx.now.IsZero() {
		return tx.now, nil
	}
	var now time.Time
	if err := tx.QueryRow(ctx, tx.db.opts.NowSQL).Scan(&now); err != nil {
		return time.Time{}, failedStep("reading the time", err)
	}
	tx.now = now.UTC()
	return tx.now, nil
}

// Exec runs a statement.
func (tx *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := tx.check(sql, args); err != nil {
		return pgconn.CommandTag{}, err
	}
	ctx, cancel := tx.bound(ctx)
	defer cancel()
	return tx.conn.Exec(ctx, sql, args...)
}

// Query runs a query.
func (tx *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := tx.check(sql, args); err != nil {
		return nil, err
	}
	ctx, cancel := tx.bound(ctx)
	rows, err := tx.conn.Query(ctx, sql, args...)
	if err != nil {
		cancel()
		return nil, err
	}
	tx.unread = func() { rows.Close(); cancel() }
	return txRows{handleless{rows}, cancel}, nil
}

// QueryRow runs a query of one row.
func (tx *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := tx.check(sql, args); err != nil {
		return errRow{err}
	}
	ctx, cancel := tx.bound(ctx)
	row := txRow{tx.conn.QueryRow(ctx, sql, args...), cancel}
	tx.unread = func() { _ = row.Scan() }
	return row
}

// SendBatch sends statements in one flight. Neither the results nor the functions queued with the statements get at the
// connection.
func (tx *Tx) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	for _, q := range batch.QueuedQueries {
		if err := tx.check(q.SQL, q.Arguments); err != nil {
			return pgx.FailedBatchResults(batch, err)
		}
	}
	refused := pgx.FailedBatchResults(batch, fmt.Errorf("lockorder: %w: the batch begins a transaction", ErrForbidden))
	if refused.Tx() != nil {
		return refused
	}
	for _, q := range batch.QueuedQueries {
		if fn := q.Fn; fn != nil {
			q.Fn = func(results pgx.BatchResults) error { return fn(txResults{results, func() {}}) }
		}
	}
	ctx, cancel := tx.bound(ctx)
	results := txResults{tx.conn.SendBatch(ctx, batch), cancel}
	tx.unread = func() { _ = results.Close() }
	return results
}

// check refuses a statement that would control the transaction, and any use after its end.
func (tx *Tx) check(sql string, args []any) error {
	if tx.done {
		return fmt.Errorf("lockorder: %w", ErrDone)
	}
	if err := checkStatement(sql); err != nil {
		return err
	}
	return checkArguments(args)
}

// bound ends a context with the transaction's budget, or its exclusive hold. One that comes from Run's does so already.
func (tx *Tx) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if d, ok := ctx.Deadline(); ok && !d.After(tx.deadline) {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, tx.deadline, tx.overdue)
}

type txRows struct {
	handleless
	cancel context.CancelFunc
}

func (r txRows) Close() { r.handleless.Close(); r.cancel() }

type txRow struct {
	pgx.Row
	cancel context.CancelFunc
}

func (r txRow) Scan(dest ...any) error {
	defer r.cancel()
	return r.Row.Scan(dest...)
}

type txResults struct {
	pgx.BatchResults
	cancel context.CancelFunc
}

func (r txResults) Query() (pgx.Rows, error) {
	rows, err := r.BatchResults.Query()
	if rows == nil {
		return nil, err
	}
	return handleless{rows}, err
}

func (r txResults) Close() error {
	defer r.cancel()
	return r.BatchResults.Close()
}

// settle reads what the caller left unread, so that the connection can send the end.
func (tx *Tx) settle() {
	tx.done = true
	if tx.unread != nil {
		tx.unread()
		tx.unread = nil
	}
}

// commit ends the transaction. It runs to its answer even when the caller is cancelled meanwhile, so that the
// outcome is known. When the budget ends, or the exclusive hold, the server is asked to cancel it, and answers all the
// same: that it rolled back, which what is checked at the end may take long for, or that it had already committed.
func (tx *Tx) commit(ctx context.Context) error {
	tx.settle()
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), tx.deadline)
	defer cancel()
	tag, err := tx.conn.Exec(ctx, "COMMIT")
	var pg *pgconn.PgError
	switch {
	case err == nil && tag.String() == "COMMIT":
		return nil
	case ctx.Err() != nil && (SQLState(err) == "57014" || pgconn.SafeToRetry(err)): // cancelled, or not even sent
		return fmt.Errorf("%w: %w", tx.overdue, err)
	case err == nil:
		return errAborted
	case errors.As(err, &pg) && (!isFatal(pg) || pg.Code == "25P03"):
		return err // refused, by a constraint that is checked at the end; or the server had ended it before it could read COMMIT
	case pgconn.SafeToRetry(err):
		return err // not sent
	}
	return fmt.Errorf("%w: %w", errCommitUnknown, err)
}

// rollback ends the transaction whatever state it is in, on a bounded context that the caller's end does not touch. A
// late cancel request may hit it once.
func (tx *Tx) rollback(ctx context.Context) {
	tx.settle()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	for range 3 {
		if tx.conn.Conn().IsClosed() || tx.conn.Conn().PgConn().TxStatus() == 'I' {
			return
		}
		_, _ = tx.conn.Exec(ctx, "ROLLBACK")
	}
}

// release gives the connection back; one that is still in a transaction is closed instead, which ends it on the server.
func (tx *Tx) release(ctx context.Context) {
	tx.done = true
	if conn := tx.conn.Conn(); !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		_ = conn.Close(ctx)
	}
	tx.conn.Release()
}
