package entitlements

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// DueGrant is a grant whose end has come and that is open still, or whose beginning has come and whose pool was not settled
// since.
type DueGrant struct {
	ID uuid.UUID
	// Pool is uuid.Nil for a grant that names no organisation.
	Pool uuid.UUID
	// At is when it became due.
	At time.Time
}

// EndingGrants returns at most limit grants whose end has come, by that time and their id, after the one given; begin with the
// zero DueGrant. What becomes due meanwhile comes after all that was returned.
func EndingGrants(ctx context.Context, q lockorder.Querier, after DueGrant, limit int) ([]DueGrant, error) {
	rows, err := entitlementsdb.New(q).ListEndingGrants(ctx, entitlementsdb.ListEndingGrantsParams{AfterAt: after.At, AfterID: after.ID, Most: int32(limit)})
	if err != nil {
		return nil, fmt.Errorf("reading the grants whose end has come: %w", err)
	}
	due := make([]DueGrant, len(rows))
	for i, r := range rows {
		due[i] = dueGrant(r)
	}
	return due, nil
}

// BeginningGrants is EndingGrants for those whose beginning has come.
func BeginningGrants(ctx context.Context, q lockorder.Querier, after DueGrant, limit int) ([]DueGrant, error) {
	rows, err := entitlementsdb.New(q).ListBeginningGrants(ctx, entitlementsdb.ListBeginningGrantsParams{AfterAt: after.At, AfterID: after.ID, Most: int32(limit)})
	if err != nil {
		return nil, fmt.Errorf("reading the grants whose beginning has come: %w", err)
	}
	due := make([]DueGrant, len(rows))
	for i, r := range rows {
		due[i] = dueGrant(entitlementsdb.ListEndingGrantsRow(r))
	}
	return due, nil
}

func dueGrant(r entitlementsdb.ListEndingGrantsRow) DueGrant {
	due := DueGrant{ID: r.ID, At: r.At}
	if r.PoolID != nil {
		due.Pool = *r.PoolID
	}
	return due
}

// What a sweep did with a grant.
const (
	SweptNothing = ""        // it was not due any more
	SweptExpired = "expired" // it was closed
	SweptBegun   = "begun"   // its pool was settled with its time having come
)

// SweepGrant does what is due of one grant: expires it, or settles its pool where it has begun. A grant that was extended, or
// closed, since it was listed is left as it is. A second time changes nothing. The transaction is Materializing and holds no row
// yet.
func SweepGrant(ctx context.Context, tx *lockorder.Tx, act Act, due DueGrant) (did string, err error) {
	if err := act.check(); err != nil {
		return SweptNothing, err
	}
	if err := tx.RequireKind(lockorder.Materializing); err != nil {
		return SweptNothing, err
	}
	if due.Pool != uuid.Nil {
		if err := LockPools(ctx, tx, due.Pool); err != nil {
			return SweptNothing, err
		}
	}
	// It was its line's head when it was listed. One that was extended meanwhile is closed, which the next statement sees.
	if err := tx.Lock(ctx, lockorder.GrantHeadRow(due.ID)); err != nil {
		return SweptNothing, err
	}
	l := &line{tx: tx, q: entitlementsdb.New(tx), act: act}
	grant, err := l.q.GetDueGrant(ctx, due.ID)
	if err != nil {
		return SweptNothing, fmt.Errorf("reading grant %s: %w", due.ID, err)
	}
	if l.now, err = tx.Now(ctx); err != nil {
		return SweptNothing, err
	}
	l.head.ID, l.head.PoolID, l.head.EndsAt = grant.ID, grant.PoolID, grant.EndsAt
	switch {
	case grant.ClosedAt != nil:
		return SweptNothing, nil
	case l.past():
		if err := l.close(ctx, GrantExpired); err != nil {
			return SweptNothing, err
		}
		did = SweptExpired
	case grant.BegunAt == nil && grant.PoolID != nil && !grant.StartsAt.After(l.now):
		did = SweptBegun
	default:
		return SweptNothing, nil
	}
	if l.head.PoolID != nil {
		_, err = Settle(ctx, tx, act, *l.head.PoolID)
	}
	return did, err
}

// FailGrant notes that a sweep could not do what is due of a grant, and why. The transaction holds no row yet.
func FailGrant(ctx context.Context, tx *lockorder.Tx, grant uuid.UUID, reason string) error {
	if err := tx.Lock(ctx, lockorder.GrantHeadRow(grant)); err != nil {
		return err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	if err := entitlementsdb.New(tx).FailGrant(ctx, entitlementsdb.FailGrantParams{Reason: reason, At: now, ID: grant}); err != nil {
		return fmt.Errorf("noting that the sweep of grant %s failed: %w", grant, err)
	}
	return nil
}
