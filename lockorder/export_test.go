package lockorder

import "github.com/jackc/pgx/v5/pgxpool"

// What the tests look at from outside the package: they cannot be inside it, since pgtest imports it.
var (
	CheckClasses   = checkClasses
	CheckStatement = checkStatement
	CheckRead      = checkRead
)

// Stat returns the pool's counters.
func (db *DB) Stat() *pgxpool.Stat { return db.pool.Stat() }

// PID returns the process id of the transaction's backend.
func (tx *Tx) PID() uint32 { return tx.conn.Conn().PgConn().PID() }
