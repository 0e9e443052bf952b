package lockorder

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// What the tests look at from outside the package: they cannot be inside it, since pgtest imports it.
var (
	CheckClasses   = checkClasses
	CheckStatement = checkStatement
	CheckRead      = checkRead
)

// Stat returns the pool's counters.
func (db *DB) Stat() *pgxpool.Stat { return db.pool.Stat() }

// PID returns the process id of the transaction's backend, 0 where that cannot be asked. Through a pooler the connection
// knows only the pooler's.
func (tx *Tx) PID() uint32 {
	if !tx.db.opts.Pooled {
		return tx.conn.Conn().PgConn().PID()
	}
	var pid uint32
	if err := tx.conn.QueryRow(context.Background(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		return 0
	}
	return pid
}
