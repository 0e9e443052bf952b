package lockorder

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
)

// MaxKeys is the most advisory keys that one transaction may hold. The table of locks is one for the whole server.
const MaxKeys = 256

// Options are the bounds of every transaction. The zero value is a good choice.
type Options struct {
	// Budget bounds a whole transaction, the wait for a connection included. Default 15 s.
	Budget time.Duration
	// RuleChangeBudget bounds a whole rule change, its turns and pauses included. Default 30 s.
	RuleChangeBudget time.Duration
	// ExclusiveHold bounds how long a rule change may hold the exclusive rendezvous, from the grant to COMMIT. Default
	// 900 ms.
	ExclusiveHold time.Duration
	// LockTimeout bounds one wait for a lock; what is left of the budget bounds it too. Default 5 s. It must exceed the
	// server's deadlock_timeout, or a deadlock would show as a time-out: Open refuses it.
	LockTimeout time.Duration
	// IdleTimeout is how long a transaction may sit idle between statements before the server ends it: a stopped
	// process would hold its locks for ever. Default 10 s.
	IdleTimeout time.Duration
	// CheckInterval is how often the server looks whether the client of a running statement is still there, which frees
	// a killed waiter's place in the queue. Default 1 s.
	CheckInterval time.Duration
	// NowSQL is the query that Tx.Now runs; it answers one timestamptz read from the clock at that moment. Default
	// SELECT clock_timestamp().
	NowSQL string
	// Guard is a SQL expression that keeps the statements handed to an opening (Spec.Handed) from running where a declared
	// lock is busy: the opening evaluates it then, and then only. It must raise an error of the SQLSTATE GuardState. Both are
	// set, or neither: the default needs nothing of the schema, and raises an undefined_object.
	Guard      string
	GuardState string
	// MaxConns bounds the pool. Default: pgxpool's.
	MaxConns int32
	// LaneShare is the share of the pool's connections that may wait for locks at one time; at least one may. Default 0.5.
	LaneShare float64
	// Holder answers who runs a transaction, such as the id of a workflow, with its path. The text is its application_name until
	// it ends, so that pg_stat_activity names who holds a lock: printable ASCII, cut to the 63 bytes that the server keeps.
	// Nil, or an empty text, leaves the connection's own.
	Holder func(ctx context.Context, path string) string
	// Observe is told of every lock that a transaction got, Refused of every busy one that it did not get, Ended of its end.
	// They run in the transaction's goroutine, must be quick, and safe for use by several at once. Nil tells nobody.
	Observe func(Event)
	Refused func(Refusal)
	Ended   func(TxEvent)
	// Pooled says that the URL leads to a pooler of transactions, such as PgBouncer: then no statement is prepared under
	// a name, which such a pooler loses, and arguments are encoded by their Go types, as pgx.QueryExecModeExec does.
	Pooled bool
	// Configure may change the pool's configuration before it opens: tracers, TLS, the application name.
	Configure func(*pgxpool.Config)
}

func (o Options) withDefaults() Options {
	setDefault(&o.Budget, 15*time.Second)
	setDefault(&o.RuleChangeBudget, 30*time.Second)
	setDefault(&o.ExclusiveHold, 900*time.Millisecond)
	setDefault(&o.LockTimeout, 5*time.Second)
	setDefault(&o.IdleTimeout, 10*time.Second)
	setDefault(&o.CheckInterval, time.Second)
	if o.LaneShare <= 0 {
		o.LaneShare = 0.5
	}
	if o.Guard == "" {
		o.Guard, o.GuardState = defaultGuard, defaultGuardState
	}
	if o.NowSQL == "" {
		o.NowSQL = "SELECT clock_timestamp()"
	}
	return o
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d <= 0 {
		*d = value
	}
}

// DB opens transactions. It owns its connections: nothing else can begin on them.
type DB struct {
	pool            *pgxpool.Pool
	opts            Options
	deadlockTimeout time.Duration
	lane            lane
	rendezvous      Lock
	openTexts       *openTexts
	simple          bool          // statements are sent by the simple protocol, which prepares none
	places          chan struct{} // nil, or a place for each transaction that may be open at once
}

// Open connects to PostgreSQL 15 or later and reads the server's deadlock_timeout. The error says what to mend, and
// holds no password.
func Open(ctx context.Context, url string, opts Options) (*DB, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, errURL
	}
	if err := checkGuard(opts); err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	if opts.MaxConns > 0 {
		config.MaxConns = opts.MaxConns
	}
	// A cancelled statement is cancelled on the server and the connection lives on; pgx's default would close it.
	config.ConnConfig.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: 5 * time.Second}
	}
	if opts.Configure != nil {
		opts.Configure(config)
	}
	if opts.Pooled {
		if err := forPooler(config); err != nil {
			return nil, err
		}
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("database cannot be opened: %w", err)
	}
	db := &DB{
		pool: pool, opts: opts, lane: newLane(opts.LaneShare, config.MaxConns),
		rendezvous: theRendezvous(), openTexts: new(openTexts),
		simple: config.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol,
	}
	if err := db.checkServer(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	return db, nil
}

// checkServer reads what the bounds depend on.
func (db *DB) checkServer(ctx context.Context) error {
	var version, deadlockMS int
	err := db.pool.QueryRow(ctx, "SELECT current_setting('server_version_num')::int, setting::int FROM pg_settings WHERE name = 'deadlock_timeout'").
		Scan(&version, &deadlockMS)
	if err != nil {
		return fmt.Errorf("database cannot be reached: %w", err)
	}
	db.deadlockTimeout = time.Duration(deadlockMS) * time.Millisecond
	switch {
	case version < 150000:
		return fmt.Errorf("PostgreSQL 15 or later is needed; the server's version number is %d", version)
	case db.opts.LockTimeout <= db.deadlockTimeout || db.opts.Budget <= db.deadlockTimeout:
		return fmt.Errorf("the server's deadlock_timeout is %s: it must be below the lock timeout (%s) and the budget (%s), or a deadlock shows as a time-out; lower it",
			db.deadlockTimeout, db.opts.LockTimeout, db.opts.Budget)
	}
	return nil
}

// Close waits for open transactions and closes all connections.
func (db *DB) Close() { db.pool.Close() }

// Ping answers whether a connection can be had and used.
func (db *DB) Ping(ctx context.Context) error { return db.pool.Ping(ctx) }

// Limited returns a handle on the same pool through which at most n transactions are open at once; one more
// answers ErrBusy at once, without waiting. Work that may pile up behind a slow outside service goes through one,
// so that it cannot use up the pool.
func (db *DB) Limited(n int) *DB {
	limited := *db
	limited.places = make(chan struct{}, n)
	return &limited
}

// Spec says what a transaction is, before it opens.
type Spec struct {
	// Path names the way through the code, for errors, traces and the order page: "subscription-active".
	Path string
	// Kind decides the rendezvous.
	Kind Kind
	// Keys are the advisory keys known beforehand, in any order and with repeats: they are sorted here.
	Keys []Lock
	// Budget replaces the DB's budget, or its RuleChangeBudget, when it is not 0.
	Budget time.Duration
	// Handed, if not nil, queues the first statements of the transaction. They travel in the flight of the opening, and run
	// before fn, if every declared lock is free; otherwise none of them runs, and Handed is called again once the locks are
	// held. It may queue reads, and writes of rows that a declared key covers; never a lock that could wait, in the text or
	// in a function. fn may be nil where there is nothing else to do.
	Handed func(h *Handed)
}

// tracer follows the global provider, also one that is set later.
var tracer = otel.Tracer("github.com/bursarhq/bursar/lockorder")

// openMark is the key of the mark that a transaction is open.
type openMark struct{}

// Run opens a transaction, takes the rendezvous of its kind and the declared keys, calls fn, and commits when fn
// returns nil. An error or a panic of fn rolls back. A RuleChange runs fn again, in a transaction of its own, for each
// turn that found something busy: its fn must be able to run more than once. The context given to fn ends when the
// budget does, and carries the mark that a transaction is open: a second Run in it is refused. Every error is an *Error
// with a verdict; fn's own error is wrapped in it.
func (db *DB) Run(ctx context.Context, spec Spec, fn func(ctx context.Context, tx *Tx) error) error {
	ctx, span := tracer.Start(ctx, "tx "+spec.Path)
	defer span.End()
	if span.IsRecording() {
		span.SetAttributes(attribute.String("lockorder.path", spec.Path), attribute.String("lockorder.kind", spec.Kind.String()))
	}
	err := db.run(ctx, spec, fn)
	if err != nil {
		span.SetAttributes(attribute.String("lockorder.verdict", string(VerdictOf(err))))
		span.SetStatus(codes.Error, string(VerdictOf(err)))
	}
	return err
}

func (db *DB) run(ctx context.Context, spec Spec, fn func(ctx context.Context, tx *Tx) error) error {
	if ctx.Value(openMark{}) != nil {
		return db.unopened(ctx, spec, failedStep("opening", fmt.Errorf("%w: it would need a second connection; use the one there is", ErrNested)))
	}
	keys, err := checkSpec(spec, db.rendezvous)
	if err != nil {
		return db.unopened(ctx, spec, failedStep("opening", err))
	}
	if db.places != nil {
		select {
		case db.places <- struct{}{}:
			defer func() { <-db.places }()
		default:
			return db.unopened(ctx, spec, failedStep("opening", fmt.Errorf("all %d places for such transactions are taken: %w", cap(db.places), ErrBusy)))
		}
	}

	budget := db.opts.Budget
	switch {
	case spec.Budget > 0:
		budget = spec.Budget
	case spec.Kind == RuleChange:
		budget = db.opts.RuleChangeBudget
	}
	deadline := time.Now().Add(budget)
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, errBudget)
	defer cancel()
	if spec.Kind == RuleChange {
		return db.runInTurns(ctx, spec, keys, deadline, fn)
	}
	return db.runOnce(ctx, spec, keys, deadline, nil, fn)
}

// unopened is the error of a transaction that was refused before it needed a connection.
func (db *DB) unopened(ctx context.Context, spec Spec, err error) error {
	err = fail(ctx, spec, err)
	db.ended(ctx, spec, nil, nil, time.Now(), err)
	return err
}

// runOnce is one transaction, from the connection to COMMIT. A rule change has one in each turn.
func (db *DB) runOnce(ctx context.Context, spec Spec, keys []Lock, deadline time.Time, t *turn, fn func(ctx context.Context, tx *Tx) error) (err error) {
	var tx *Tx
	ended := false
	if db.opts.Ended != nil {
		began, ctx := time.Now(), ctx
		defer func() {
			if err == nil && !ended {
				err = errPanicked // which goes on
			}
			db.ended(ctx, spec, t, tx, began, err)
		}()
	}
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return fail(ctx, spec, failedStep("acquiring a connection", err))
	}
	tx = &Tx{db: db, conn: conn, spec: spec, deadline: deadline, overdue: errBudget, turn: t, held: make(map[lockID]bool, len(keys)+4)}
	defer tx.release(ctx)
	defer func() {
		if !ended { // an error, a panic, or runtime.Goexit
			tx.rollback(ctx)
		}
	}()

	err = tx.open(ctx, keys)
	ctx, cancel := tx.bound(ctx) // the exclusive hold may end before the budget
	defer cancel()
	if err != nil {
		return fail(ctx, spec, err)
	}
	if fn == nil {
		fn = func(context.Context, *Tx) error { return nil }
	}
	if err := fn(context.WithValue(ctx, openMark{}, true), tx); err != nil {
		switch timedOut := judge(err) == VerdictLockTimeout; {
		case timedOut && tx.exclusive():
			tx.endTurn() // a statement found busy what no lock had announced
		case timedOut && time.Until(tx.deadline) < briefWait: // the lock time-out is at most what was left of the budget at opening
			err = fmt.Errorf("%w: %w", err, errBudget)
		}
		return fail(ctx, spec, err)
	}
	if tx.lost != nil { // fn swallowed it
		return fail(ctx, spec, failedStep("before COMMIT", tx.lost))
	}
	if err := ctx.Err(); err != nil {
		return fail(ctx, spec, failedStep("before COMMIT", fmt.Errorf("%w: %w", err, context.Cause(ctx))))
	}
	ended = true
	if err := tx.commit(ctx); err != nil {
		tx.rollback(ctx) // a COMMIT that was not sent has ended nothing
		return fail(ctx, spec, failedStep("COMMIT", err))
	}
	return nil
}
