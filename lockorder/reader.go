package lockorder

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Querier is what generated queries run on: a Tx, or a Reader.
type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Reader returns a Querier for single reads outside any transaction, each with a snapshot of its own. It refuses Exec
// and every statement that spells a write, with an error that wraps ErrForbidden; and it refuses to read inside a
// transaction, where it would need a second connection, with one that wraps ErrNested.
func (db *DB) Reader() Querier { return reader{db} }

type reader struct{ db *DB }

func (r reader) check(ctx context.Context, sql string, args []any) error {
	if ctx.Value(openMark{}) != nil {
		return fmt.Errorf("lockorder: %w: read through it", ErrNested)
	}
	if err := checkRead(sql); err != nil {
		return err
	}
	return checkArguments(args)
}

func (r reader) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, fmt.Errorf("lockorder: %w: a Reader does not write; open a transaction with Run", ErrForbidden)
}

func (r reader) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := r.check(ctx, sql, args); err != nil {
		return nil, err
	}
	rows, err := r.db.pool.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return handleless{rows}, nil
}

func (r reader) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := r.check(ctx, sql, args); err != nil {
		return errRow{err}
	}
	return r.db.pool.QueryRow(ctx, sql, args...)
}

// errRow is the row of a query that was not sent.
type errRow struct{ err error }

func (r errRow) Scan(...any) error { return r.err }

// handleless hides the connection that rows would hand out: a transaction could be begun or ended on it.
type handleless struct{ pgx.Rows }

// Conn returns nil.
func (handleless) Conn() *pgx.Conn { return nil }
