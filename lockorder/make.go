package lockorder

import (
	"context"
	"fmt"
	"strings"
)

// LockOrMake locks one row, which it makes where there is none yet, and tells whether it did. The insert is one
// INSERT … ON CONFLICT … DO NOTHING of that row: it waits for another transaction that makes the same row, so it takes a
// place in the lane. It answers ErrNoRow when the insert makes another row than the one named, or when the row is
// deleted meanwhile; otherwise the errors of Lock. What is in the row is read in a later statement.
func (tx *Tx) LockOrMake(ctx context.Context, row Lock, insert string, args ...any) (made bool, err error) {
	wanted, err := tx.admit([]Lock{row})
	if err != nil {
		return false, failedStep("locking", err)
	}
	if row.class.Kind != Row || row.class.SkipLocked {
		return false, failedStep("locking", fmt.Errorf("%w: %s is not a row that can be made", ErrForbidden, row))
	}
	if err := checkInsert(insert, args); err != nil {
		return false, failedStep("making "+row.String(), err)
	}
	if len(wanted) == 0 {
		return false, nil
	}
	ctx, cancel := tx.bound(ctx)
	defer cancel()
	missing, err := tx.takeRows(ctx, wanted)
	if err != nil || len(missing) == 0 {
		return false, err
	}
	err = tx.inLane(ctx, row, insert, args, func(ctx context.Context, sql string, args []any) error {
		tag, err := tx.conn.Exec(ctx, sql, args...)
		made = tag.RowsAffected() > 0
		return err
	})
	if err != nil {
		return false, failedStep("making "+row.String(), err)
	}
	missing, err = tx.takeRows(ctx, wanted)
	if err == nil && len(missing) > 0 {
		err = failedStep("locking "+row.String(), ErrNoRow)
	}
	return made, err
}

// checkInsert refuses a text that is not one INSERT which does nothing on a conflict.
func checkInsert(sql string, args []any) error {
	var all []string
	for word := range words(sql) {
		all = append(all, strings.ToUpper(word))
	}
	text := " " + strings.Join(all, " ") + " "
	if !strings.HasPrefix(text, " INSERT INTO ") || !strings.Contains(text, " ON CONFLICT ") || !strings.HasSuffix(text, " DO NOTHING ") {
		return fmt.Errorf("%w: a row is made by one INSERT … ON CONFLICT … DO NOTHING", ErrForbidden)
	}
	if err := checkLockless(sql); err != nil {
		return err
	}
	return checkArguments(args)
}
