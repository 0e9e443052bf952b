package entitlements

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/internal/lockpath"
	"github.com/bursarhq/bursar/lockorder"
)

// MaxSpendID is the most characters that the id of a spend may have.
const MaxSpendID = 200

// windowTries is how often the lock of a counter is taken anew because a window ended while it was waited for.
const windowTries = 3

var (
	// ErrExhausted is wrapped where an allowance does not hold what was asked for: see *Exhausted.
	ErrExhausted = errors.New("the allowance is exhausted")
	// ErrWindowMoved is wrapped where the window of a counter ended each time its lock was got, or where the transaction holds
	// locks that rank above the counter of the new window. Nothing was done. It wraps lockorder.ErrBusy: try again.
	ErrWindowMoved = fmt.Errorf("the window of the counter ended while its lock was waited for: %w", lockorder.ErrBusy)
)

// Counter names what is counted: a numeric resource key of a pool, in the window that the database's clock is in.
type Counter struct {
	Pool uuid.UUID
	Key  string
}

func (c Counter) String() string { return fmt.Sprintf("%s of pool %s", c.Key, c.Pool) }

// Spending is what Spend takes.
type Spending struct {
	// ID is the caller's, 1 to MaxSpendID characters: one for each thing that is paid for with the allowance, and the same
	// whenever it is tried again. It is unique for a pool and a key, across windows; under another key it is another spend.
	ID   string
	Pool uuid.UUID
	Key  string
	// N is how much is taken, whole or not at all: 1 to MaxNumber.
	N int64
}

// Spent is a spend that was granted. Times are UTC and the database's.
type Spent struct {
	// Repeated says that the spend was granted before: the rest is the answer that it got then.
	Repeated bool  `json:"repeated,omitempty"`
	N        int64 `json:"n"`
	// Used is what was used of the window then, this spend included; Limit what the pool was entitled to, Left the rest.
	Used  int64 `json:"used"`
	Limit int64 `json:"limit"`
	Left  int64 `json:"left"`
	// WindowStart is when the window began that it was taken from, 1970 for a key without a window.
	WindowStart time.Time `json:"window_start"`
	// RenewsAt is when the next window begins, the zero time for a key without a window.
	RenewsAt time.Time `json:"renews_at,omitzero"`
	At       time.Time `json:"at"`
}

// Exhausted says that an allowance does not hold what was asked for. Nothing was taken, and nothing is remembered: the same
// id may be tried again. Times are UTC and the database's.
type Exhausted struct {
	Counter
	N int64
	// Used may exceed Limit: the limit was lowered since, or a raise went beyond it.
	Used, Limit int64
	// Left is what could be taken, 0 at least.
	Left int64
	// RenewsAt is when the next window begins, the zero time for a key without a window.
	RenewsAt time.Time
	At       time.Time
}

func (e *Exhausted) Error() string {
	s := fmt.Sprintf("%s: %d asked for, %d left of %d", e.Counter, e.N, e.Left, e.Limit)
	if !e.RenewsAt.IsZero() {
		s += ", and a new window begins " + e.RenewsAt.Format(time.RFC3339)
	}
	return s
}

func (e *Exhausted) Unwrap() error { return ErrExhausted }

// Spend takes N of what is left of an allowance, in a transaction of its own. It is granted only while the counter stays
// within what the pool is entitled to at that instant, by the bounds of what it holds. Otherwise the error is an *Exhausted.
//
// A repeat of a granted spend takes nothing and gets the first answer, also in a later window; so after an error that
// leaves open what was done (lockorder.VerdictCommitUnknown), ask again with the same id. A refused spend is not
// remembered. The same id with another N wraps ErrInvalid, as does what could never be spent; a pool or key that does not
// exist, ErrNotFound. All of these come before any lock.
func Spend(ctx context.Context, db *lockorder.DB, s Spending) (Spent, error) {
	if err := s.check(); err != nil {
		return Spent{}, err
	}
	var spent Spent
	var seen seenUsage
	spec := lockpath.UsageSpend.Spec()
	spec.Handed = seen.handed(s.counter(), s.ID)
	err := db.Run(ctx, spec, func(ctx context.Context, tx *lockorder.Tx) (err error) {
		spent, err = s.in(ctx, tx, seen)
		return err
	})
	return spent, err
}

// SpendIn is Spend in the caller's transaction, of any kind: what is spent stands if that commits. It takes the counter's
// row, so no lock that ranks above it is held yet, nor the transaction's time read, unless LockCounters was called before.
func SpendIn(ctx context.Context, tx *lockorder.Tx, s Spending) (Spent, error) {
	if err := s.check(); err != nil {
		return Spent{}, err
	}
	var seen seenUsage
	if err := seen.read(ctx, tx, s.counter(), s.ID); err != nil {
		return Spent{}, err
	}
	return s.in(ctx, tx, seen)
}

func (s Spending) counter() Counter { return Counter{Pool: s.Pool, Key: s.Key} }

func (s Spending) check() error {
	if err := checkSpendID(s.ID); err != nil {
		return err
	}
	if s.N < 1 || s.N > MaxNumber {
		return fmt.Errorf("%w: %d cannot be spent; it takes a number from 1 to %d", ErrInvalid, s.N, int64(MaxNumber))
	}
	return s.counter().check()
}

// in spends, once what there is has been seen.
func (s Spending) in(ctx context.Context, tx *lockorder.Tx, seen seenUsage) (Spent, error) {
	if err := seen.check(ctx, tx, s.counter()); err != nil {
		return Spent{}, err
	}
	if seen.spend != nil { // its answer never changes, so it needs no lock
		return s.repeated(*seen.spend)
	}
	q := entitlementsdb.New(tx)
	var spent Spent
	err := inWindow(ctx, tx, s.counter(), seen, func(window time.Time) (moved time.Time, err error) {
		took, err := q.TakeAllowance(ctx, entitlementsdb.TakeAllowanceParams{PoolID: s.Pool, ResourceKey: s.Key, WindowStart: window, ID: s.ID, N: s.N})
		if err != nil {
			return moved, fmt.Errorf("spending %d of %s: %w", s.N, s.counter(), err)
		}
		answer := Spent{
			N: took.N, Used: took.Used, Limit: took.LimitValue, Left: max(took.LimitValue-took.Used, 0),
			WindowStart: took.WindowStart.UTC(), RenewsAt: took.RenewsAt.UTC(), At: took.At.UTC(),
		}
		switch took.Outcome {
		case "granted":
			spent = answer
		case "repeated":
			spent, err = s.repeated(answer)
		case "moved":
			moved = took.WindowStart
		default:
			err = &Exhausted{Counter: s.counter(), N: s.N, Used: answer.Used, Limit: answer.Limit, Left: answer.Left, RenewsAt: answer.RenewsAt, At: answer.At}
		}
		return moved, err
	})
	return spent, err
}

// repeated answers what a spend got first.
func (s Spending) repeated(first Spent) (Spent, error) {
	if first.N != s.N {
		return Spent{}, fmt.Errorf("%w: spend %q of %s was made of %d, and now asks for %d; give every spend an id of its own", ErrInvalid, s.ID, s.counter(), first.N, s.N)
	}
	first.Repeated = true
	return first, nil
}

func (c Counter) check() error {
	switch {
	case c.Pool == uuid.Nil:
		return fmt.Errorf("%w: no pool is named", ErrInvalid)
	case c.Key == "":
		return fmt.Errorf("%w: no resource key is named", ErrInvalid)
	}
	return nil
}

// CheckCounter answers why a counter cannot be used: its pool or key does not exist (ErrNotFound), or its key counts nothing
// (ErrInvalid). It is for who wants to know before a lock is taken elsewhere; Spend and the others look by themselves.
func CheckCounter(ctx context.Context, q lockorder.Querier, c Counter) error {
	if err := c.check(); err != nil {
		return err
	}
	var seen seenUsage
	if err := seen.read(ctx, q, c, ""); err != nil {
		return err
	}
	return seen.check(ctx, q, c)
}

func checkSpendID(id string) error {
	switch n := len([]rune(id)); {
	case n == 0:
		return fmt.Errorf("%w: a spend needs an id, the same whenever it is tried again", ErrInvalid)
	case n > MaxSpendID:
		return fmt.Errorf("%w: the id of a spend has %d characters, and may have %d", ErrInvalid, n, MaxSpendID)
	}
	return nil
}

// seenUsageSQL reads what a path has to know before it takes a lock. The window before is told for as long after its end as a
// transaction that began in it may still be open.
const seenUsageSQL = `-- name: SeeUsage :one
SELECT p.id IS NOT NULL, coalesce(k.kind, ''), core.usage_window_start(k.usage_window, now.at),
       CASE WHEN k.usage_window <> 'none' AND core.usage_window_start(k.usage_window, now.at) > now.at - interval '10 minutes'
            THEN core.usage_window_start(k.usage_window, core.usage_window_start(k.usage_window, now.at) - interval '1 second') END,
       s.n, s.used_after, s.limit_then, s.window_start, s.renews_at, s.at
FROM (SELECT core.clock() AS at) now
LEFT JOIN core.pools p ON p.id = $1
LEFT JOIN core.resource_keys k ON k.key = $2
LEFT JOIN core.spends s ON s.pool_id = $1 AND s.resource_key = $2 AND s.id = $3`

// seenUsage is what was seen before a lock was taken.
type seenUsage struct {
	pool   bool
	kind   string // of the key, empty where there is no such key
	window time.Time
	before *time.Time // the window that ended a moment ago
	spend  *Spent     // the answer of the spend of that id
}

// handed reads it with the opening of a transaction.
func (p *seenUsage) handed(c Counter, spend string) func(*lockorder.Handed) {
	return func(h *lockorder.Handed) {
		h.Queue(seenUsageSQL, c.Pool, c.Key, spend).QueryRow(p.scan)
	}
}

func (p *seenUsage) read(ctx context.Context, q lockorder.Querier, c Counter, spend string) error {
	if err := p.scan(q.QueryRow(ctx, seenUsageSQL, c.Pool, c.Key, spend)); err != nil {
		return fmt.Errorf("reading the counter of %s: %w", c, err)
	}
	return nil
}

func (p *seenUsage) scan(row pgx.Row) error {
	var window, windowStart, renewsAt, at *time.Time
	var n, used, limit *int64
	if err := row.Scan(&p.pool, &p.kind, &window, &p.before, &n, &used, &limit, &windowStart, &renewsAt, &at); err != nil {
		return err
	}
	if window != nil {
		p.window = *window
	}
	if p.spend = nil; n != nil {
		p.spend = &Spent{N: *n, Used: *used, Limit: *limit, Left: *limit - *used, WindowStart: windowStart.UTC(), At: at.UTC()}
		if renewsAt != nil {
			p.spend.RenewsAt = renewsAt.UTC()
		}
	}
	return nil
}

// check refuses a pool that does not exist, and a key that does not or that counts nothing.
func (p *seenUsage) check(ctx context.Context, q lockorder.Querier, c Counter) error {
	switch {
	case !p.pool:
		return &notFoundError{what: "pool", asked: c.Pool.String()}
	case p.kind == "":
		return missingKey(ctx, q, c.Key, Numeric)
	case p.kind != Numeric:
		return fmt.Errorf("%w: resource key %s is a %s, and only numbers can be used up", ErrInvalid, c.Key, p.kind)
	}
	return nil
}

// missingKey names the keys near one that does not exist; only those of a kind, where one is given.
func missingKey(ctx context.Context, q lockorder.Querier, asked, kind string) error {
	keys, err := entitlementsdb.New(q).ListKeysOfKind(ctx, kind)
	if err != nil {
		return fmt.Errorf("reading the resource keys: %w", err)
	}
	missing := &notFoundError{what: "resource key", asked: asked, near: Near(asked, keys)}
	if len(keys) == 0 {
		missing.hint = "there is none to choose from: bursar catalog apply makes them"
	}
	return missing
}
