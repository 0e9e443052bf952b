// Package pgx stands in for the real one.
package pgx

import "context"

type Tx interface {
	Begin(ctx context.Context) (Tx, error)
	Commit(ctx context.Context) error
	Exec(ctx context.Context, sql string, args ...any) error
}

type TxOptions struct{}

type Batch struct{}

func (*Batch) Queue(sql string, args ...any) {}

type Conn struct{}

func Connect(ctx context.Context, url string) (*Conn, error) { return nil, nil }

func (*Conn) Begin(ctx context.Context) (Tx, error)                      { return nil, nil }
func (*Conn) BeginTx(ctx context.Context, options TxOptions) (Tx, error) { return nil, nil }
func (*Conn) Exec(ctx context.Context, sql string, args ...any) error    { return nil }
func (*Conn) Config() string                                             { return "" }

func BeginFunc(ctx context.Context, db interface {
	Begin(ctx context.Context) (Tx, error)
}, fn func(Tx) error) error {
	return nil
}
