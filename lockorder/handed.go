package lockorder

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Handed collects the statements that a transaction hands to its opening: see Spec.Handed.
type Handed struct {
	batch pgx.Batch
	err   error
}

// Queue adds a statement. What it returns takes a function that reads the result, which runs when the statement has,
// and so never where the statements were sent in vain. A statement that would control the transaction, or that
// spells a lock which could wait, fails the transaction with ErrForbidden before any SQL is sent.
func (h *Handed) Queue(sql string, args ...any) *pgx.QueuedQuery {
	if h.err == nil {
		h.err = errors.Join(checkLockless(sql), checkArguments(args))
	}
	return h.batch.Queue(sql, args...)
}

// handed asks the caller for its statements; nil where it has none.
func (tx *Tx) handed() ([]*pgx.QueuedQuery, error) {
	if tx.spec.Handed == nil {
		return nil, nil
	}
	h := &Handed{}
	tx.spec.Handed(h)
	queries := h.batch.QueuedQueries
	for _, q := range queries {
		if fn := q.Fn; fn != nil { // results without the connection
			q.Fn = func(results pgx.BatchResults) error { return fn(txResults{results, func() {}}) }
		}
	}
	return queries, h.err
}

// defaultGuard raises undefined_object: there is no setting of that name. It needs nothing of the schema.
const (
	defaultGuard      = "current_setting('lockorder.busy')"
	defaultGuardState = "42704"
)

// checkGuard refuses a guard whose error could not be told from another.
func checkGuard(o Options) error {
	switch state := o.GuardState; {
	case (o.Guard == "") != (state == ""):
		return errors.New("Options.Guard and Options.GuardState go together: set the SQLSTATE that the guard raises, or leave both to their defaults")
	case state == "":
	case len(state) != 5 || strings.Trim(state, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" || judgeState(&pgconn.PgError{Code: state}) != VerdictOther:
		return fmt.Errorf("Options.GuardState %q cannot be told from other failures: choose a SQLSTATE of your own, of five digits and capital letters", state)
	}
	return nil
}

// isGuards tells whether an error of the opening is the one that its guard raises where a lock was busy. Any other, such as
// a function that is missing, is a fault to be reported.
func (o *Options) isGuards(err error) bool { return SQLState(err) == o.GuardState }

// openWith sends the handed statements with the opening, behind the guard. Where a lock was busy none of them ran: the
// answer is then that the opening is to be done again, without them.
func (tx *Tx) openWith(ctx context.Context, keys []Lock, statements []*pgx.QueuedQuery) (again bool, err error) {
	deadline, overdue := tx.deadline, tx.overdue
	if tx.turn != nil { // the statements run under the exclusive rendezvous, if they run
		tx.granted()
	}
	ctx, cancel := tx.bound(ctx)
	defer cancel()
	got, short := -1, false
	batch := tx.opening(ctx, keys, true, &got)
	begun := batch.QueuedQueries[1]
	opened := begun.Fn
	begun.Fn = func(results pgx.BatchResults) error {
		err := opened(results)
		switch {
		case err == nil && got < len(keys):
			err = fmt.Errorf("%w: Options.Guard raised nothing, though a lock was busy", ErrForbidden)
		case err != nil && len(keys) > 0 && tx.db.opts.isGuards(err):
			short = true
			batch.QueuedQueries = nil // or pgx would forget the statements of a failed batch, and prepare them anew
		}
		return err
	}
	batch.QueuedQueries = append(batch.QueuedQueries, statements...)
	err = tx.conn.SendBatch(ctx, batch).Close()
	if got == len(keys) {
		for _, k := range keys {
			tx.note(ctx, k, 0)
		}
		if err != nil {
			err = failedStep("running the handed statements", err)
		}
		return false, err
	}
	tx.deadline, tx.overdue = deadline, overdue
	if !short {
		return false, failedStep("opening", err)
	}
	if _, err := tx.conn.Exec(ctx, "ROLLBACK"); err != nil {
		return false, failedStep("opening again", err)
	}
	return true, nil
}

// sendHanded runs the handed statements in a flight of their own.
func (tx *Tx) sendHanded(ctx context.Context) error {
	statements, err := tx.handed()
	if err == nil {
		ctx, cancel := tx.bound(ctx)
		defer cancel()
		err = tx.conn.SendBatch(ctx, &pgx.Batch{QueuedQueries: statements}).Close()
	}
	if err != nil {
		return failedStep("running the handed statements", err)
	}
	return nil
}
