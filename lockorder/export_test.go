package lockorder

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// What the tests look at from outside the package: they cannot be inside it, since pgtest imports it.
var (
	CheckClasses   = checkClasses
	CheckStatement = checkStatement
	CheckRead      = checkRead
	CheckLockless  = checkLockless
	TurnLength     = turnLength
	PauseAfter     = pauseAfter
	WaitComment    = waitComment
	OpenSQL        = openSQL
)

// The bounds of turns and pauses.
const (
	FirstTurn   time.Duration = firstTurn
	LongestTurn time.Duration = longestTurn
	LeastPause  time.Duration = leastPause
)

// Collide returns the lock with its key forced onto one of n of its class.
func Collide(l Lock, n uint64) Lock {
	l.key = int64(l.class.Rank)<<32 | int64(uint64(l.key)%n)
	return l
}

// CollideAt returns the lock with its key forced to one.
func CollideAt(l Lock, key int64) Lock {
	l.key = key
	return l
}

// CollideRendezvous forces the key of the rendezvous of this handle's transactions to one.
func (db *DB) CollideRendezvous(key int64) { db.rendezvous.key = key }

// DefaultGuard is the guard of handed statements where none is set.
const DefaultGuard = defaultGuard

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

// Pool returns the pool, for benchmarks that send on the same connections.
func (db *DB) Pool() *pgxpool.Pool { return db.pool }
