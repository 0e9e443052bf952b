// Package transaction breaks the rule of that name, and keeps it.
package transaction

import (
	"context"
	"database/sql"

	"github.com/bursarhq/bursar/lockorder"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// beginner is an interface of this package that pools have.
type beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

type store struct {
	*pgxpool.Pool // whose Begin is the store's
}

func calls(ctx context.Context, pool *pgxpool.Pool, conn *pgx.Conn, db *sql.DB, b beginner, s store, tx pgx.Tx) {
	pool.Begin(ctx)                                             // want `transaction: pgxpool.Pool.Begin opens a transaction outside lockorder: give its work to \(\*lockorder.DB\).Run`
	conn.BeginTx(ctx, pgx.TxOptions{})                          // want `transaction: pgx.Conn.BeginTx opens`
	db.Begin()                                                  // want `transaction: sql.DB.Begin opens`
	db.BeginTx(ctx, nil)                                        // want `transaction: sql.DB.BeginTx opens`
	b.Begin(ctx)                                                // want `transaction: transaction.beginner.Begin opens`
	s.Begin(ctx)                                                // want `transaction: pgxpool.Pool.Begin opens`
	tx.Begin(ctx)                                               // want `transaction: pgx.Tx.Begin opens`
	pgx.BeginFunc(ctx, pool, func(pgx.Tx) error { return nil }) // want `transaction: pgx.BeginFunc opens`
	pass(pool.Begin)                                            // want `transaction: pgxpool.Pool.Begin opens`
}

func pass(func(context.Context) (pgx.Tx, error)) {}

const word = "BEGIN"

func texts(ctx context.Context, conn *pgx.Conn, db *sql.DB, batch *pgx.Batch, q lockorder.Querier) {
	conn.Exec(ctx, "BEGIN")                                 // want `transaction: the text begins with BEGIN`
	conn.Exec(ctx, word+" ISOLATION LEVEL SERIALIZABLE")    // want `transaction: the text begins with BEGIN`
	conn.Exec(ctx, "-- open\n/* the */ start  transaction") // want `transaction: the text begins with START TRANSACTION`
	conn.Exec(ctx, "SELECT 1; SAVEPOINT here")              // want `transaction: the text begins with SAVEPOINT or comes to it`
	db.QueryRow("savepoint s")                              // want `transaction: the text begins with SAVEPOINT`
	batch.Queue("BEGIN")                                    // want `transaction: the text begins with BEGIN`
	q.Exec(ctx, "BEGIN")                                    // want `transaction: the text begins with BEGIN`

	conn.Exec(ctx, "SELECT begin FROM spans")
	conn.Exec(ctx, "BEGINNING")
	conn.Exec(ctx, "UPDATE spans SET what = $1", "the Begin of it")
}

// ours is called Begin and opens nothing.
type ours struct{}

func (ours) Begin() error { return nil }

func fine(ctx context.Context, db *lockorder.DB, pool *pgxpool.Pool) error {
	ours{}.Begin()
	pool.Exec(ctx, "SELECT 1")
	return db.Run(ctx, lockorder.Spec{}, func(ctx context.Context, tx *lockorder.Tx) error {
		return tx.Exec(ctx, "SELECT 1")
	})
}
