package entitlements

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/internal/lockpath"
	"github.com/bursarhq/bursar/lockorder"
)

// Releasing is what Release takes.
type Releasing struct {
	// ID, Pool and Key are the spend's.
	ID   string
	Pool uuid.UUID
	Key  string
	// Keep is how much of the spend stays spent; 0 releases the whole.
	Keep int64
}

// Released says what a release gave back.
type Released struct {
	// Freed was given back by this call, Kept is what of the spend still counts.
	Freed int64 `json:"freed"`
	Kept  int64 `json:"kept"`
	// Used is what is used now of the window that the spend was taken from.
	Used        int64     `json:"used"`
	WindowStart time.Time `json:"window_start"`
	// WindowOver says that this window is over: what was freed there cannot be spent again.
	WindowOver bool `json:"window_over,omitempty"`
}

// Release gives back what a spend has taken beyond Keep, in a transaction of its own. It goes back to the window that it
// was taken from: where that is over, the books are right and nothing more can be spent.
//
// A repeat gives back nothing; of several releases of one spend, in whatever order, the smallest Keep stands. A spend that was
// not granted wraps ErrNotFound, a Keep below 0 or above what was spent ErrInvalid.
func Release(ctx context.Context, db *lockorder.DB, r Releasing) (Released, error) {
	if err := r.check(); err != nil {
		return Released{}, err
	}
	var released Released
	var seen seenUsage
	spec := lockpath.UsageRelease.Spec()
	spec.Handed = seen.handed(r.counter(), r.ID)
	err := db.Run(ctx, spec, func(ctx context.Context, tx *lockorder.Tx) (err error) {
		released, err = r.in(ctx, tx, seen)
		return err
	})
	return released, err
}

// ReleaseIn is Release in the caller's transaction, of any kind. It takes the row of the counter, in the window of the spend.
func ReleaseIn(ctx context.Context, tx *lockorder.Tx, r Releasing) (Released, error) {
	if err := r.check(); err != nil {
		return Released{}, err
	}
	var seen seenUsage
	if err := seen.read(ctx, tx, r.counter(), r.ID); err != nil {
		return Released{}, err
	}
	return r.in(ctx, tx, seen)
}

func (r Releasing) counter() Counter { return Counter{Pool: r.Pool, Key: r.Key} }

func (r Releasing) check() error {
	if err := checkSpendID(r.ID); err != nil {
		return err
	}
	if r.Keep < 0 {
		return fmt.Errorf("%w: %d cannot be kept of a spend", ErrInvalid, r.Keep)
	}
	return r.counter().check()
}

func (r Releasing) in(ctx context.Context, tx *lockorder.Tx, seen seenUsage) (Released, error) {
	if err := seen.check(ctx, tx, r.counter()); err != nil {
		return Released{}, err
	}
	switch {
	case seen.spend == nil:
		return Released{}, &notFoundError{what: "spend of " + r.counter().String(), asked: r.ID, hint: "a spend that was refused is not remembered"}
	case r.Keep > seen.spend.N:
		return Released{}, fmt.Errorf("%w: spend %q of %s took %d, of which %d cannot be kept", ErrInvalid, r.ID, r.counter(), seen.spend.N, r.Keep)
	}
	if err := tx.Lock(ctx, lockorder.UsageRow(r.Pool, r.Key, seen.spend.WindowStart)); err != nil {
		return Released{}, err
	}
	row, err := entitlementsdb.New(tx).ReleaseSpend(ctx, entitlementsdb.ReleaseSpendParams{PoolID: r.Pool, ResourceKey: r.Key, ID: r.ID, Keep: r.Keep})
	if err != nil {
		return Released{}, fmt.Errorf("releasing spend %q of %s: %w", r.ID, r.counter(), err)
	}
	return Released{Freed: row.Freed, Kept: row.Kept, Used: row.Used, WindowStart: row.WindowStart.UTC(), WindowOver: row.Over}, nil
}

// Adjusted is a counter that was raised or bounded. Times are UTC and the database's.
type Adjusted struct {
	// Was is the counter before, Used after.
	Was  int64 `json:"was"`
	Used int64 `json:"used"`
	// Limit is what the pool is entitled to, Left what of it can still be spent, 0 at least.
	Limit       int64     `json:"limit"`
	Left        int64     `json:"left"`
	WindowStart time.Time `json:"window_start"`
	// RenewsAt is when the next window begins, the zero time for a key without a window.
	RenewsAt time.Time `json:"renews_at,omitzero"`
	At       time.Time `json:"at"`
}

// RaiseTo makes a counter n at least, in a transaction of its own: it is for who measures what is used. What is measured
// stands also where it exceeds the limit; nothing can be spent then. n is 0 to MaxNumber. A repeat changes nothing.
// Errors wrap ErrInvalid or ErrNotFound.
func RaiseTo(ctx context.Context, db *lockorder.DB, c Counter, n int64) (Adjusted, error) {
	return adjusting{c, &n, nil}.run(ctx, db, lockpath.UsageRaise)
}

// RaiseToIn is RaiseTo in the caller's transaction, of any kind: see SpendIn.
func RaiseToIn(ctx context.Context, tx *lockorder.Tx, c Counter, n int64) (Adjusted, error) {
	return adjusting{c, &n, nil}.inTx(ctx, tx)
}

// Bound makes a counter n at most, in a transaction of its own: it is for who has counted what there is, and mends a counter
// that says more. Spends stay remembered. n is 0 to MaxNumber. A repeat changes nothing. Errors wrap ErrInvalid or ErrNotFound.
func Bound(ctx context.Context, db *lockorder.DB, c Counter, n int64) (Adjusted, error) {
	return adjusting{c, nil, &n}.run(ctx, db, lockpath.UsageBound)
}

// BoundIn is Bound in the caller's transaction, of any kind: see SpendIn.
func BoundIn(ctx context.Context, tx *lockorder.Tx, c Counter, n int64) (Adjusted, error) {
	return adjusting{c, nil, &n}.inTx(ctx, tx)
}

// adjusting is a raise or a bound.
type adjusting struct {
	Counter
	least, most *int64
}

func (a adjusting) check() error {
	for _, n := range []*int64{a.least, a.most} {
		if n != nil && (*n < 0 || *n > MaxNumber) {
			return fmt.Errorf("%w: a counter cannot be %d; it takes a number from 0 to %d", ErrInvalid, *n, int64(MaxNumber))
		}
	}
	return a.Counter.check()
}

func (a adjusting) run(ctx context.Context, db *lockorder.DB, path lockpath.Path) (Adjusted, error) {
	if err := a.check(); err != nil {
		return Adjusted{}, err
	}
	var adjusted Adjusted
	var seen seenUsage
	spec := path.Spec()
	spec.Handed = seen.handed(a.Counter, "")
	err := db.Run(ctx, spec, func(ctx context.Context, tx *lockorder.Tx) (err error) {
		adjusted, err = a.in(ctx, tx, seen)
		return err
	})
	return adjusted, err
}

func (a adjusting) inTx(ctx context.Context, tx *lockorder.Tx) (Adjusted, error) {
	if err := a.check(); err != nil {
		return Adjusted{}, err
	}
	var seen seenUsage
	if err := seen.read(ctx, tx, a.Counter, ""); err != nil {
		return Adjusted{}, err
	}
	return a.in(ctx, tx, seen)
}

func (a adjusting) in(ctx context.Context, tx *lockorder.Tx, seen seenUsage) (Adjusted, error) {
	if err := seen.check(ctx, tx, a.Counter); err != nil {
		return Adjusted{}, err
	}
	seen.before = nil // no id is at stake
	q := entitlementsdb.New(tx)
	var adjusted Adjusted
	err := inWindow(ctx, tx, a.Counter, seen, func(window time.Time) (moved time.Time, err error) {
		row, err := q.AdjustUsage(ctx, entitlementsdb.AdjustUsageParams{PoolID: a.Pool, ResourceKey: a.Key, WindowStart: window, Least: a.least, Most: a.most})
		if err != nil {
			return moved, fmt.Errorf("setting the counter of %s: %w", a.Counter, err)
		}
		if row.Outcome == "moved" {
			return row.WindowStart, nil
		}
		adjusted = Adjusted{
			Was: row.Was, Used: row.Used, Limit: row.LimitValue, Left: max(row.LimitValue-row.Used, 0),
			WindowStart: row.WindowStart.UTC(), RenewsAt: row.RenewsAt.UTC(), At: row.At.UTC(),
		}
		return moved, nil
	})
	return adjusted, err
}

// Allowance is what a pool has used and has left of a numeric key. Times are UTC and the database's.
type Allowance struct {
	PoolID uuid.UUID `json:"pool_id"`
	Pool   string    `json:"pool"`
	Key    string    `json:"key"`
	// Window is "none", "day" or "month".
	Window      string    `json:"window"`
	WindowStart time.Time `json:"window_start"`
	// RenewsAt is when the next window begins, the zero time for a key without a window.
	RenewsAt time.Time `json:"renews_at,omitzero"`
	Used     int64     `json:"used"`
	Limit    int64     `json:"limit"`
	// Left is what can still be spent, 0 at least.
	Left int64 `json:"left"`
}

// Usage returns what the pools of an organisation have used and have left in the present windows: of every numeric key
// that they are entitled to or have used, the default pool's first, by key. An organisation that does not exist wraps ErrNotFound.
func Usage(ctx context.Context, q lockorder.Querier, organization uuid.UUID) ([]Allowance, error) {
	rows, err := entitlementsdb.New(q).ReadUsage(ctx, organization)
	if err != nil {
		return nil, fmt.Errorf("reading the usage of organisation %s: %w", organization, err)
	}
	if len(rows) == 0 {
		return nil, &notFoundError{what: "organisation", asked: organization.String()}
	}
	all := make([]Allowance, 0, len(rows))
	for _, r := range rows {
		if r.ResourceKey == "" {
			continue // a pool without allowances
		}
		all = append(all, Allowance{
			PoolID: r.PoolID, Pool: r.Pool, Key: r.ResourceKey, Window: r.UsageWindow, WindowStart: r.WindowStart.UTC(),
			RenewsAt: r.RenewsAt.UTC(), Used: r.Used, Limit: r.LimitValue, Left: r.Available,
		})
	}
	return all, nil
}
