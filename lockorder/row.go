package lockorder

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// What a try found out about a row.
const (
	rowLocked  = "locked"
	rowMissing = "missing"
	rowBusy    = "busy"
)

// takeRows locks rows of one class in order and returns those that do not exist. They are tried one by one in one
// statement, up to the first that is busy; that one is waited for, in the lane, and then the rest is tried. What the
// rows guard is read in a later statement: a locking one may have waited, and still sees what was there before.
func (tx *Tx) takeRows(ctx context.Context, rows []Lock) (missing []Lock, err error) {
	if rows[0].class.SkipLocked {
		return tx.claimRows(ctx, rows)
	}
	for len(rows) > 0 {
		states, err := tx.tryRows(ctx, rows)
		if err != nil {
			return nil, failedStep("locking "+describe(rows), tx.explain(err))
		}
		for i, state := range states {
			switch state {
			case rowLocked:
				tx.note(ctx, rows[i], 0)
			case rowMissing:
				missing = append(missing, rows[i])
			case rowBusy:
				exists, err := tx.waitForRow(ctx, rows[i])
				if err != nil {
					return nil, failedStep("waiting for "+rows[i].String(), err)
				}
				if !exists {
					missing = append(missing, rows[i])
				}
			}
		}
		rows = rows[len(states):]
	}
	return missing, nil
}

// tryRows tries rows of one class, in order, and answers the state of each up to the first that is busy.
func (tx *Tx) tryRows(ctx context.Context, rows []Lock) ([]string, error) {
	result, err := tx.conn.Query(ctx, tryRowsSQL(rows[0].class), append(columnsOf(rows), len(rows))...)
	if err != nil {
		return nil, err
	}
	states, err := pgx.CollectRows(result, pgx.RowTo[string])
	if err == nil && len(states) == 0 {
		err = fmt.Errorf("the server answered nothing for %d rows", len(rows))
	}
	return states, err
}

// tryRowsSQL is the statement that tries rows of a class: one step for each row, none after a busy one. To lock with
// SKIP LOCKED over the whole set would take later rows past a busy one, and two such transactions would wait for each
// other. The sub-select locks, and OFFSET 0 keeps it from being asked twice.
func tryRowsSQL(class *Class) string {
	arrays, same := make([]string, len(class.Identity)), make([]string, len(class.Identity))
	for i, p := range class.Identity {
		arrays[i] = fmt.Sprintf("$%d::text[]::%s[] AS %s", i+1, p.Type, p.Name)
		same[i] = fmt.Sprintf("r.%s = (a.%s)[%%[1]s]", p.Name, p.Name)
	}
	at := func(n string) string {
		return fmt.Sprintf(class.Table+" r WHERE "+strings.Join(same, " AND "), n)
	}
	return fmt.Sprintf("WITH RECURSIVE asked AS MATERIALIZED (SELECT %s), step(n, state) AS (SELECT 0, '%s' UNION ALL"+
		" SELECT tried.n, CASE WHEN tried.locked THEN '%s' WHEN EXISTS (SELECT FROM asked a, %s) THEN '%s' ELSE '%s' END"+
		" FROM (SELECT s.n + 1 AS n, (SELECT true FROM %s %s OF r SKIP LOCKED) AS locked"+
		" FROM step s CROSS JOIN asked a WHERE s.n < $%d AND s.state <> '%s' OFFSET 0) tried)"+
		" SELECT state FROM step WHERE n > 0 ORDER BY n",
		strings.Join(arrays, ", "), rowLocked, rowLocked, at("tried.n"), rowBusy, rowMissing,
		at("s.n + 1"), class.Mode, len(class.Identity)+1, rowBusy)
}

// waitForRow waits for one busy row, in the lane, and tells whether it still exists.
func (tx *Tx) waitForRow(ctx context.Context, row Lock) (exists bool, err error) {
	timeout, leave, err := tx.mayWait()
	if err != nil {
		return false, tx.refused(ctx, row, 0, err)
	}
	defer leave()
	same, args := make([]string, len(row.parts)), make([]any, 1, len(row.parts)+1)
	args[0] = pgx.QueryExecModeSimpleProtocol // two statements in one flight, and a text that is not worth preparing
	for i, p := range row.class.Identity {
		same[i] = fmt.Sprintf("%s = $%d::%s", p.Name, i+1, p.Type)
		args = append(args, row.parts[i])
	}
	sql := fmt.Sprintf("%sSELECT set_config('lock_timeout', '%s', true); SELECT FROM %s WHERE %s %s",
		waitComment(row, tx.spec.Path), millis(timeout), row.class.Table, strings.Join(same, " AND "), row.class.Mode)
	begun := time.Now()
	tag, err := tx.conn.Exec(ctx, sql, args...)
	if err != nil {
		return false, tx.refused(ctx, row, time.Since(begun), tx.explain(err))
	}
	if tag.RowsAffected() == 0 {
		return false, nil
	}
	tx.note(ctx, row, time.Since(begun))
	return true, nil
}

// claimRows locks those of the rows that nobody else holds, and returns the others. Who takes whichever rows are free
// waits for none, so nobody can wait for it in a circle.
func (tx *Tx) claimRows(ctx context.Context, rows []Lock) (others []Lock, err error) {
	result, err := tx.conn.Query(ctx, claimSQL(rows[0].class), columnsOf(rows)...)
	if err != nil {
		return nil, failedStep("claiming "+describe(rows), tx.explain(err))
	}
	claimed, err := pgx.CollectRows(result, pgx.RowTo[int])
	if err != nil {
		return nil, failedStep("claiming "+describe(rows), tx.explain(err))
	}
	got := make([]bool, len(rows))
	for _, n := range claimed {
		got[n-1] = true
	}
	for i, r := range rows {
		if got[i] {
			tx.note(ctx, r, 0)
		} else {
			others = append(others, r)
		}
	}
	return others, nil
}

// claimSQL answers which of the asked rows, counted from one, it locked.
func claimSQL(class *Class) string {
	columns, arrays, joins := make([]string, len(class.Identity)), make([]string, len(class.Identity)), make([]string, len(class.Identity))
	for i, p := range class.Identity {
		columns[i] = p.Name
		arrays[i] = fmt.Sprintf("$%d::text[]::%s[]", i+1, p.Type)
		joins[i] = fmt.Sprintf("r.%s = asked.%s", p.Name, p.Name)
	}
	return fmt.Sprintf("SELECT asked.n::int FROM %s r JOIN unnest(%s) WITH ORDINALITY AS asked(%s, n) ON %s ORDER BY asked.n %s OF r SKIP LOCKED",
		class.Table, strings.Join(arrays, ", "), strings.Join(columns, ", "), strings.Join(joins, " AND "), class.Mode)
}

// columnsOf returns the identities of rows of one class, each part as a list of its own.
func columnsOf(rows []Lock) []any {
	columns := make([]any, len(rows[0].parts), len(rows[0].parts)+1)
	for i := range columns {
		column := make([]string, len(rows))
		for j, r := range rows {
			column[j] = r.parts[i]
		}
		columns[i] = column
	}
	return columns
}

func describe(rows []Lock) string {
	if len(rows) == 1 {
		return rows[0].String()
	}
	return fmt.Sprintf("%d rows of class %s from %s on", len(rows), rows[0].class.Name, strings.Join(rows[0].parts, " "))
}
