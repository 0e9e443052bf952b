package lockorder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
)

// Verdict is what a failure means for the caller. It is told from the SQLSTATE, never from a text.
type Verdict string

// The verdicts. Whether one is worth a retry is the caller's to say, in one place of its own.
const (
	VerdictBusy          Verdict = "busy"           // refused at once, or the budget was used up; nothing was done
	VerdictLockTimeout   Verdict = "lock-timeout"   // 55P03: a wait for a lock ended; nothing was done
	VerdictDeadlock      Verdict = "deadlock"       // 40P01; nothing was done
	VerdictSerialization Verdict = "serialization"  // 40001; nothing was done
	VerdictCancelled     Verdict = "cancelled"      // 57014, or the caller's context ended; nothing was done
	VerdictIdle          Verdict = "idle"           // 25P03: idle in the transaction for too long; nothing was done
	VerdictLockTableFull Verdict = "lock-table"     // 53200: the server's lock table is full; nothing was done
	VerdictConnection    Verdict = "connection"     // the connection broke before COMMIT was sent; nothing was done
	VerdictCommitUnknown Verdict = "commit-unknown" // the connection broke at COMMIT; it may or may not have been done
	VerdictAborted       Verdict = "aborted"        // COMMIT answered ROLLBACK: an earlier error was swallowed
	VerdictConflict      Verdict = "conflict"       // 23505, 23P01: another row stands in the way
	VerdictMisuse        Verdict = "misuse"         // a bug: order, kind, nesting or identity; no SQL was sent for it
	VerdictHeldTooLong   Verdict = "held-too-long"  // the exclusive rendezvous was held beyond Options.ExclusiveHold; nothing was done
	VerdictOther         Verdict = "other"          // anything else, the caller's own errors included
)

var (
	// ErrBusy is wrapped by every failure of verdict busy.
	ErrBusy = errors.New("busy, try again later")
	// ErrOrder is wrapped when a lock is asked for out of order.
	ErrOrder = errors.New("lock out of order")
	// ErrNotHeld is wrapped when a required lock is not held.
	ErrNotHeld = errors.New("required lock is not held")
	// ErrNested is wrapped when a transaction, or a read on another connection, is begun inside a transaction.
	ErrNested = errors.New("a transaction is already open in this context")
	// ErrTooManyKeys is wrapped when a transaction asks for more than MaxKeys advisory keys.
	ErrTooManyKeys = errors.New("too many advisory keys in one transaction")
	// ErrDone is wrapped when a Tx is used after its end.
	ErrDone = errors.New("the transaction has ended")
	// ErrForbidden is wrapped when a statement would control the transaction, a Reader would write, or a lock or a
	// transaction is described in a way that names none.
	ErrForbidden = errors.New("not allowed here")
	// ErrNoRow is wrapped when a row to be locked does not exist.
	ErrNoRow = errors.New("no such row to lock")

	// ErrChangeInProgress is wrapped when a rule change found no turn within its budget. It wraps ErrBusy.
	ErrChangeInProgress = fmt.Errorf("change in progress: others hold what this rule change needs: %w", ErrBusy)
	// ErrHeldTooLong is wrapped when a rule change held the exclusive rendezvous for longer than Options.ExclusiveHold.
	// It is a property of its work: no other turn is tried.
	ErrHeldTooLong = errors.New("the exclusive rendezvous was held too long: do less in one rule change")

	errExclusiveWaits = fmt.Errorf("another transaction holds it, and under the exclusive rendezvous nothing waits: %w", ErrBusy)

	errAborted       = errors.New("COMMIT answered ROLLBACK: a statement had failed and its error was not returned")
	errPanicked      = errors.New("the transaction's function panicked")
	errCommitUnknown = errors.New("the answer to COMMIT was lost: it may have been done")
	errBudget        = fmt.Errorf("the transaction's budget is used up: %w", ErrBusy)
)

// Error is a failed transaction: which path, what it was doing, what it means.
type Error struct {
	Verdict Verdict
	Path    string
	Kind    Kind
	// Doing says which step of this package failed, with the lock's name where one was waited for; empty when it was
	// none. Err's text says it too.
	Doing string
	Err   error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s transaction %s: %v (%s)", e.Kind, e.Path, e.Err, e.Verdict)
}

func (e *Error) Unwrap() error { return e.Err }

// stepError is a failed step of a transaction: an opening, a lock, the end.
type stepError struct {
	doing string
	err   error
}

func (e *stepError) Error() string { return e.doing + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

func failedStep(doing string, err error) error { return &stepError{doing, err} }

// fail makes the one kind of error that Run returns. ctx is the transaction's, which knows whether its budget ended.
func fail(ctx context.Context, spec Spec, err error) error {
	verdict := judge(err)
	// A statement cut short by the budget reports that it was cancelled, or that its time ran out.
	if cause := context.Cause(ctx); verdict == VerdictCancelled && errors.Is(cause, errBudget) ||
		(verdict == VerdictCancelled || verdict == VerdictIdle) && errors.Is(cause, ErrHeldTooLong) {
		err = fmt.Errorf("%w: %w", err, cause)
		verdict = judge(err)
	}
	var step *stepError
	e := &Error{Verdict: verdict, Path: spec.Path, Kind: spec.Kind, Err: err}
	if errors.As(err, &step) {
		e.Doing = step.doing
	}
	return e
}

// VerdictOf returns the verdict of an error that came out of this package, also when it has been wrapped since;
// for any other error it judges by the SQLSTATE in it, if there is one. It returns "" for nil.
func VerdictOf(err error) Verdict {
	var e *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Verdict
	}
	return judge(err)
}

func judge(err error) Verdict {
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, errCommitUnknown):
		return VerdictCommitUnknown
	case errors.Is(err, errAborted):
		return VerdictAborted
	case errors.Is(err, ErrHeldTooLong):
		return VerdictHeldTooLong
	case errors.Is(err, ErrBusy):
		return VerdictBusy
	case errors.Is(err, ErrOrder), errors.Is(err, ErrNotHeld), errors.Is(err, ErrNested), errors.Is(err, ErrTooManyKeys),
		errors.Is(err, ErrDone), errors.Is(err, ErrForbidden):
		return VerdictMisuse
	case errors.As(err, &pg):
		return judgeState(pg)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return VerdictCancelled
	case isConnectionError(err):
		return VerdictConnection
	}
	return VerdictOther
}

func judgeState(pg *pgconn.PgError) Verdict {
	switch pg.Code {
	case "55P03":
		return VerdictLockTimeout
	case "40P01":
		return VerdictDeadlock
	case "40001":
		return VerdictSerialization
	case "57014":
		return VerdictCancelled
	case "25P03":
		return VerdictIdle
	case "53200":
		return VerdictLockTableFull
	case "23505", "23P01":
		return VerdictConflict
	case "57P01", "57P02", "57P03", "57P05", "53300":
		return VerdictConnection
	case "25P02":
		return VerdictAborted
	}
	if pg.Code[:min(len(pg.Code), 2)] == "08" || isFatal(pg) {
		return VerdictConnection
	}
	return VerdictOther
}

// isFatal tells whether the server ended the session with this error. The severity is the one that no locale translates.
func isFatal(pg *pgconn.PgError) bool {
	return pg.SeverityUnlocalized == "FATAL" || pg.SeverityUnlocalized == "PANIC"
}

func isConnectionError(err error) bool {
	var connect *pgconn.ConnectError
	var netErr net.Error
	return errors.As(err, &connect) || errors.As(err, &netErr) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || pgconn.SafeToRetry(err)
}

// SQLState returns the SQLSTATE in an error, "" when it holds none.
func SQLState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}
