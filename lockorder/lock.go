package lockorder

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Lock takes locks, in any order and with repeats: they are sorted here, and those already held cost nothing.
// It answers an error that wraps ErrOrder, before any SQL, when one of them ranks below a lock already held; ErrNoRow
// when a row does not exist. After Now no new lock may be taken, since that clock was read under fewer.
func (tx *Tx) Lock(ctx context.Context, locks ...Lock) error {
	missing, err := tx.LockExisting(ctx, locks...)
	if err == nil && len(missing) > 0 {
		err = failedStep("locking "+missing[0].String(), ErrNoRow)
	}
	return err
}

// LockExisting is Lock for rows that may not exist: it returns those that do not. They are not held, and nothing keeps
// others from inserting them.
func (tx *Tx) LockExisting(ctx context.Context, locks ...Lock) (missing []Lock, err error) {
	wanted, err := tx.admit(locks)
	if err != nil {
		return nil, failedStep("locking", err)
	}
	ctx, cancel := tx.bound(ctx)
	defer cancel()
	for len(wanted) > 0 {
		n := 1
		if wanted[0].class.Kind == Row {
			for n < len(wanted) && wanted[n].class == wanted[0].class {
				n++
			}
			gone, err := tx.lockRows(ctx, wanted[:n])
			if err != nil {
				return nil, failedStep("locking "+describe(wanted[:n]), err)
			}
			missing = append(missing, gone...)
		} else if err := tx.lockKey(ctx, wanted[0]); err != nil {
			return nil, failedStep("waiting for "+wanted[0].String(), err)
		}
		wanted = wanted[n:]
	}
	return missing, nil
}

// admit returns the locks still to be taken, sorted, or why they may not be.
func (tx *Tx) admit(locks []Lock) ([]Lock, error) {
	if tx.done {
		return nil, ErrDone
	}
	var wanted []Lock
	for _, l := range locks {
		if err := l.Err(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrForbidden, err)
		}
		if tx.held[l.id()] {
			continue
		}
		if err := checkAskable(l); err != nil {
			return nil, err
		}
		wanted = append(wanted, l)
	}
	wanted = sorted(wanted)
	if len(wanted) == 0 {
		return nil, nil
	}
	if tx.top.class != nil && compare(wanted[0], tx.top) < 0 {
		return nil, fmt.Errorf("%w: %s was asked for while %s is held; ask for %s before %s, or for both at once",
			ErrOrder, wanted[0], tx.top, wanted[0], tx.top)
	}
	if !tx.now.IsZero() {
		return nil, fmt.Errorf("%w: %s was asked for after the transaction's time was read; read the time under all locks", ErrOrder, wanted[0])
	}
	advisory := tx.advisory
	for _, l := range wanted {
		if l.class.Kind == Advisory {
			advisory++
		}
	}
	if advisory > MaxKeys {
		return nil, fmt.Errorf("%w: %d asked for, %d allowed", ErrTooManyKeys, advisory, MaxKeys)
	}
	return wanted, nil
}

// briefWait bounds the waits that nobody announced (a unique key, a page of a table) where a wait for a named lock is not begun.
const briefWait = 100 * time.Millisecond

// patience is how long the next wait for a lock may last, and whether it may begin at all. It may not when it could
// not outlast the deadlock timer, since a deadlock would show as a time-out; and not while the exclusive rendezvous is
// held.
func (tx *Tx) patience() (timeout time.Duration, mayWait bool) {
	left := time.Until(tx.deadline)
	if tx.exclusive() || left <= tx.db.deadlockTimeout {
		return briefWait, false
	}
	return min(tx.db.opts.LockTimeout, left), true
}

// exclusive tells whether the exclusive rendezvous is held.
func (tx *Tx) exclusive() bool { return tx.spec.Kind == RuleChange && tx.top.class != nil }

// refusal is why a wait that patience did not allow was not begun.
func (tx *Tx) refusal() error {
	if tx.exclusive() {
		return fmt.Errorf("another transaction holds it, and under the exclusive rendezvous nothing waits: %w", ErrBusy)
	}
	return fmt.Errorf("another transaction holds it, and the server's deadlock_timeout exceeds what is left: %w", errBudget)
}

// explain says what a lock time-out means that patience led to: where the wait was cut to what was left of the
// budget, the budget has ended.
func (tx *Tx) explain(err error, timeout time.Duration, mayWait bool) error {
	var pg *pgconn.PgError
	switch {
	case !errors.As(err, &pg) || pg.Code != "55P03":
		return err
	case !mayWait:
		return fmt.Errorf("%w: %w", tx.refusal(), err)
	case timeout < tx.db.opts.LockTimeout:
		return fmt.Errorf("%w: %w", errBudget, err)
	}
	return err
}

// lockKey takes one advisory key, waiting for it where it may wait.
func (tx *Tx) lockKey(ctx context.Context, k Lock) error {
	timeout, mayWait := tx.patience()
	shared := ""
	if k.class == Materialization && tx.spec.Kind == Materializing {
		shared = "_shared"
	}
	if !mayWait {
		var got bool
		if err := tx.conn.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock"+shared+"($1)", k.key).Scan(&got); err != nil {
			return err
		}
		if !got {
			return tx.refusal()
		}
		if k.class == Materialization {
			if _, err := tx.conn.Exec(ctx, "SELECT set_config('lockorder.rendezvous', $1, true)", tx.spec.Kind.rendezvous()); err != nil {
				return err
			}
		}
		tx.note(k, 0)
		return nil
	}
	// The comment tells who looks at pg_stat_activity what is waited for. Statements of one message are statements of
	// their own: the time-out is set before the wait begins, and the rendezvous is announced after it has ended.
	var sql strings.Builder
	fmt.Fprintf(&sql, "%sSELECT set_config('lock_timeout', '%s', true); SELECT pg_advisory_xact_lock%s(%d)", comment(k.String()), millis(timeout), shared, k.key)
	if k.class == Materialization {
		fmt.Fprintf(&sql, "; SELECT set_config('lockorder.rendezvous', '%s', true)", tx.spec.Kind.rendezvous())
		if tx.spec.Kind == RuleChange {
			fmt.Fprintf(&sql, ", set_config('lock_timeout', '%s', true)", millis(briefWait))
		}
	}
	begun := time.Now()
	if _, err := tx.conn.Exec(ctx, sql.String()); err != nil {
		return tx.explain(err, timeout, mayWait)
	}
	tx.note(k, time.Since(begun))
	return nil
}

// lockRows locks rows of one class in one statement, in order, and returns those that do not exist. What they
// guard is read in a later statement: this one may have waited, and still sees what was there before.
func (tx *Tx) lockRows(ctx context.Context, rows []Lock) (missing []Lock, err error) {
	class := rows[0].class
	timeout, mayWait := tx.patience()
	args := make([]any, len(class.Identity))
	for i := range class.Identity {
		column := make([]string, len(rows))
		for j, r := range rows {
			column[j] = r.parts[i]
		}
		args[i] = column
	}
	got := make([]bool, len(rows))
	batch := &pgx.Batch{}
	batch.Queue("SELECT set_config('lock_timeout', $1, true)", millis(timeout))
	batch.Queue(rowSQL(class, tx.spec.Path, mayWait), args...).Query(func(result pgx.Rows) error {
		for result.Next() {
			var n int
			if err := result.Scan(&n); err != nil {
				return err
			}
			got[n-1] = true
		}
		return result.Err()
	})
	begun := time.Now()
	if err := tx.conn.SendBatch(ctx, batch).Close(); err != nil {
		return nil, tx.explain(err, timeout, mayWait)
	}
	waited := time.Since(begun)
	for i, r := range rows {
		if got[i] {
			tx.note(r, waited)
		} else {
			missing = append(missing, r)
		}
	}
	return missing, nil
}

// rowSQL builds the locking statement of a row class: it answers which of the asked rows, counted from one, it
// locked. They are numbered in the order of compare; the sort stands below the locking, so that they are locked in it too.
func rowSQL(class *Class, path string, mayWait bool) string {
	columns := make([]string, len(class.Identity))
	arrays := make([]string, len(class.Identity))
	joins := make([]string, len(class.Identity))
	for i, p := range class.Identity {
		columns[i] = p.Name
		arrays[i] = fmt.Sprintf("$%d::text[]::%s[]", i+1, p.Type)
		joins[i] = fmt.Sprintf("r.%s = asked.%s", p.Name, p.Name)
	}
	sql := fmt.Sprintf("%sSELECT asked.n FROM %s r JOIN unnest(%s) WITH ORDINALITY AS asked(%s, n) ON %s ORDER BY asked.n %s OF r",
		comment(class.Name+" in "+path), class.Table, strings.Join(arrays, ", "), strings.Join(columns, ", "), strings.Join(joins, " AND "), class.Mode)
	switch {
	case class.SkipLocked:
		sql += " SKIP LOCKED"
	case !mayWait:
		sql += " NOWAIT"
	}
	return sql
}

// comment is a SQL comment that says what a statement waits for. No star is left in it that could end it.
func comment(text string) string {
	return "/* lockorder: " + strings.ReplaceAll(text, "*", "?") + " */ "
}

func describe(rows []Lock) string {
	if len(rows) == 1 {
		return rows[0].String()
	}
	return fmt.Sprintf("%d rows of class %s from %s on", len(rows), rows[0].class.Name, strings.Join(rows[0].parts, " "))
}

// note records that a lock is held, and how long it was waited for.
func (tx *Tx) note(l Lock, waited time.Duration) {
	tx.observe(l, waited)
	tx.held[l.id()] = true
	if l.class.Kind == Advisory {
		tx.advisory++
	}
	if tx.top.class == nil || compare(l, tx.top) > 0 {
		tx.top = l
	}
}

// Require answers an error that wraps ErrNotHeld unless every one of the locks is held. Functions that rely on a
// lock begin with it.
func (tx *Tx) Require(locks ...Lock) error {
	if tx.done {
		return failedStep("requiring a lock", ErrDone)
	}
	for _, l := range locks {
		if err := l.Err(); err != nil {
			return failedStep("requiring a lock", fmt.Errorf("%w: %w", ErrForbidden, err))
		}
		if !tx.held[l.id()] {
			return failedStep("requiring a lock", fmt.Errorf("%w: %s", ErrNotHeld, l))
		}
	}
	return nil
}

// RequireKind answers an error that wraps ErrNotHeld unless the transaction is of one of the kinds.
func (tx *Tx) RequireKind(kinds ...Kind) error {
	if tx.done {
		return failedStep("requiring a kind", ErrDone)
	}
	for _, k := range kinds {
		if k == tx.spec.Kind {
			return nil
		}
	}
	return failedStep("requiring a kind", fmt.Errorf("%w: this needs a transaction of kind %v, not %s", ErrNotHeld, kinds, tx.spec.Kind))
}
