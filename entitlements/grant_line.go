package entitlements

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// line is one act on a line of grants: its head, read under the rows of its pool and of the head itself.
type line struct {
	tx   *lockorder.Tx
	q    *entitlementsdb.Queries
	act  Act
	now  time.Time
	head entitlementsdb.GetGrantHeadRow
}

// openLine locks the pool of a line's head, with others that the act needs, then the head, and reads the head in a statement
// after that. The head of a line without a pool may change until its row is held: then the error wraps ErrGrantMoved.
func openLine(ctx context.Context, tx *lockorder.Tx, act Act, grant uuid.UUID, more ...uuid.UUID) (*line, error) {
	if err := act.check(); err != nil {
		return nil, err
	}
	if err := tx.RequireKind(lockorder.Materializing); err != nil {
		return nil, err
	}
	l := &line{tx: tx, q: entitlementsdb.New(tx), act: act}
	known, err := getHead(ctx, tx, grant)
	if err != nil {
		return nil, err
	}
	if known.PoolID != nil {
		more = append(slices.Clone(more), *known.PoolID)
	}
	if err := LockPools(ctx, tx, more...); err != nil {
		return nil, err
	}
	// Under the pool's row the line of a pool stands still.
	under, err := getHead(ctx, tx, grant)
	if err != nil {
		return nil, err
	}
	if err := tx.Lock(ctx, lockorder.GrantHeadRow(under.ID)); err != nil {
		return nil, err
	}
	if l.head, err = getHead(ctx, tx, grant); err != nil {
		return nil, err
	}
	if l.head.ID != under.ID || !sameID(l.head.PoolID, known.PoolID) {
		return nil, fmt.Errorf("grant %s: %w; nothing was done, try again", grant, ErrGrantMoved)
	}
	l.now, err = tx.Now(ctx)
	return l, err
}

func getHead(ctx context.Context, q lockorder.Querier, grant uuid.UUID) (entitlementsdb.GetGrantHeadRow, error) {
	head, err := entitlementsdb.New(q).GetGrantHead(ctx, grant)
	switch {
	case isNoRows(err):
		return head, missingGrant(grant)
	case err != nil:
		return head, fmt.Errorf("reading the line of grant %s: %w", grant, err)
	}
	return head, nil
}

// over says what became of a line's head, nil while it is open. past tells whether its end has come.
func over(head entitlementsdb.GetGrantHeadRow, past bool) error {
	switch {
	case head.ClosedAt != nil:
		by := deref(head.ClosedAct)
		if w := deref(head.ClosedWorkflow); w != "" {
			by += " (workflow " + w + ")"
		}
		return fmt.Errorf("%w: grant %s was %s at %s, by %s; issue a new one", ErrInvalid, head.ID, head.State, moment(*head.ClosedAt), by)
	case past:
		return fmt.Errorf("%w: grant %s has ended, at %s; issue a new one", ErrInvalid, head.ID, moment(*head.EndsAt))
	}
	return nil
}

// over is what became of the head.
func (l *line) over() error { return over(l.head, l.past()) }

// past says that the head's end has come.
func (l *line) past() bool { return l.head.EndsAt != nil && !l.head.EndsAt.After(l.now) }

// close closes the head with the state given, and ends its position for that reason.
func (l *line) close(ctx context.Context, state string) error {
	n, err := l.q.CloseGrant(ctx, entitlementsdb.CloseGrantParams{State: state, At: l.now, Act: l.act.Name, Workflow: l.act.Workflow, ID: l.head.ID})
	switch {
	case err != nil:
		return fmt.Errorf("closing grant %s: %w", l.head.ID, err)
	case n != 1:
		return fmt.Errorf("closing grant %s: it is open no more, although its line was held", l.head.ID)
	}
	return nil
}

// settle settles the head's pool, if it has one.
func (l *line) settle(ctx context.Context) (int, error) {
	if l.head.PoolID == nil {
		return 0, nil
	}
	return settleGranted(ctx, l.tx, l.act, *l.head.PoolID)
}

// next is a grant that goes on from a line's head.
type next struct {
	id       uuid.UUID
	pool     *uuid.UUID
	quantity int64
	ends     *time.Time
	note     string // empty keeps the head's
}

// stands tells whether an earlier try of the act has made the next grant of the line.
func (l *line) stands(ctx context.Context, id uuid.UUID) (bool, error) {
	had, err := l.q.GetGrant(ctx, id)
	switch {
	case isNoRows(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading grant %s: %w", id, err)
	case had.Line == l.head.Line && had.Extends != nil && had.IssuedAct == l.act.Name:
		return true, nil
	}
	return false, existingGrant(id)
}

// goOn closes the head as extended, and makes the next grant in its place: with its beginning, so that it keeps its place on
// its ladder, and with the product as it is held.
func (l *line) goOn(ctx context.Context, n next) (changed int, err error) {
	product := l.head.ProductID
	switch {
	case l.head.Succeeded && l.head.SuccessorID == nil:
		return 0, fmt.Errorf("%w: %s is no tier any more, and nothing is held in its place; revoke the grant", ErrInvalid, l.head.Product)
	case l.head.Succeeded:
		product = *l.head.SuccessorID
	}
	starts := l.head.StartsAt
	if l.head.PoolID == nil && n.pool != nil && starts.Before(l.now) {
		starts = l.now // nobody held it before
	}
	if n.ends != nil && !n.ends.After(starts) {
		return 0, fmt.Errorf("%w: the grant would end at %s, and begins at %s: the end comes after the beginning", ErrInvalid, moment(*n.ends), moment(starts))
	}
	if n.note == "" {
		n.note = l.head.Note
	}
	if err := l.close(ctx, GrantExtended); err != nil {
		return 0, err
	}
	// The id may be that of a grant of another line, which a transaction makes now.
	made, err := entitlementsdb.New(l.tx.MayWait("core.grants.id", n.id.String())).InsertGrant(ctx, entitlementsdb.InsertGrantParams{
		ID: n.id, PoolID: n.pool, ProductID: product, Quantity: n.quantity, State: l.head.State, StartsAt: starts, EndsAt: n.ends,
		Line: l.head.Line, Extends: &l.head.ID, Note: n.note, BegunAt: l.head.BegunAt, ConferredAt: l.head.ConferredAt,
		IssuedAt: l.now, IssuedAct: l.act.Name, IssuedWorkflow: l.act.Workflow,
	})
	switch {
	case err != nil:
		return 0, fmt.Errorf("going on from grant %s: %w", l.head.ID, err)
	case made == 0:
		return 0, existingGrant(n.id)
	case n.pool == nil:
		return 0, nil
	}
	err = l.q.ConferGrant(ctx, entitlementsdb.ConferGrantParams{
		GrantID: n.id, PoolID: *n.pool, ProductID: product, Quantity: n.quantity, StartsAt: starts, EndsAt: n.ends, Act: l.act.Name,
	})
	if err != nil {
		return 0, fmt.Errorf("making the position of grant %s: %w", n.id, err)
	}
	return settleGranted(ctx, l.tx, l.act, *n.pool)
}
