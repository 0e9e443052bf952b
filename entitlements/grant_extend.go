package entitlements

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// ExtendGrant is a grant that is to end later. Another goes on from it, so that the line tells what was agreed when.
type ExtendGrant struct {
	// ID is the new grant's, Grant the one that it goes on from: the head of its line.
	ID    uuid.UUID `json:"id"`
	Grant uuid.UUID `json:"grant"`
	// Until is the new end, nil for never.
	Until *time.Time `json:"until,omitempty"`
	// Note is for people; empty keeps the one there is.
	Note string `json:"note,omitempty"`
}

// Check says what is wrong with the request, before anything starts. Errors wrap ErrInvalid, ErrExists or ErrNotFound.
func (e ExtendGrant) Check(ctx context.Context, q lockorder.Querier) error {
	if err := e.static(); err != nil {
		return err
	}
	head, past, err := peekHead(ctx, q, e.Grant)
	if err != nil {
		return err
	}
	if err := newGrantID(ctx, q, e.ID); err != nil {
		return err
	}
	if err := e.against(head, past); err != nil {
		return err
	}
	return notPast(ctx, q, e.Until)
}

func (e ExtendGrant) static() error {
	if err := checkLine(e.ID, e.Grant); err != nil {
		return err
	}
	return checkNote(e.Note)
}

// against says why the head of the line cannot be extended so.
func (e ExtendGrant) against(head entitlementsdb.GetGrantHeadRow, past bool) error {
	if head.ID != e.Grant {
		return fmt.Errorf("%w: grant %s was extended already: grant %s goes on from it; extend that", ErrInvalid, e.Grant, head.ID)
	}
	if err := over(head, past); err != nil {
		return err
	}
	switch {
	case head.EndsAt == nil:
		return fmt.Errorf("%w: grant %s has no end, so it cannot be extended", ErrInvalid, head.ID)
	case e.Until != nil && !e.Until.After(*head.EndsAt):
		return fmt.Errorf("%w: grant %s ends at %s; an extension ends later, not at %s; bursar grant manage sets any end", ErrInvalid, head.ID, moment(*head.EndsAt), moment(*e.Until))
	}
	return nil
}

// Do extends the grant, which may be waiting, active or replaced. Given again it changes nothing. The transaction is Materializing
// and holds no row yet. Errors wrap ErrInvalid, ErrExists, ErrNotFound, ErrOwed or ErrGrantMoved.
func (e ExtendGrant) Do(ctx context.Context, tx *lockorder.Tx, act Act) (GrantOutcome, error) {
	if err := e.static(); err != nil {
		return GrantOutcome{}, err
	}
	l, err := openLine(ctx, tx, act, e.Grant)
	if err != nil {
		return GrantOutcome{}, err
	}
	out := GrantOutcome{did: "Extended to"}
	if out.Repeated, err = l.stands(ctx, e.ID); err != nil {
		return GrantOutcome{}, err
	}
	if !out.Repeated {
		if err := e.against(l.head, l.past()); err != nil {
			return GrantOutcome{}, err
		}
		out.Entitlements, err = l.goOn(ctx, next{id: e.ID, pool: l.head.PoolID, quantity: l.head.Quantity, ends: e.Until, note: e.Note})
		if err != nil {
			return GrantOutcome{}, err
		}
	}
	out.Grant, err = readGrant(ctx, tx, e.ID)
	return out, err
}

// ManageGrant changes what a line of grants gives from now on: its end, its quantity, or whom it is for. A new grant goes on
// from the line's head, whichever that is by then.
type ManageGrant struct {
	// ID is the new grant's, Grant any of the line.
	ID    uuid.UUID `json:"id"`
	Grant uuid.UUID `json:"grant"`
	// Until is the new end, earlier or later; Forever takes the end away. With neither it stays.
	Until   *time.Time `json:"until,omitempty"`
	Forever bool       `json:"forever,omitempty"`
	// Quantity is the new quantity, nil to keep it.
	Quantity *int64 `json:"quantity,omitempty"`
	// Organization is the slug or id of the one that the grant is for from now on, where it names none yet.
	Organization string `json:"organization,omitempty"`
	// Note is for people; empty keeps the one there is.
	Note string `json:"note,omitempty"`
}

// Check says what is wrong with the request, before anything starts. Errors wrap ErrInvalid, ErrExists or ErrNotFound.
func (m ManageGrant) Check(ctx context.Context, q lockorder.Querier) error {
	pool, err := m.plan(ctx, q)
	if err != nil {
		return err
	}
	head, past, err := peekHead(ctx, q, m.Grant)
	if err != nil {
		return err
	}
	if err := newGrantID(ctx, q, m.ID); err != nil {
		return err
	}
	if _, err := m.next(head, past, pool); err != nil {
		return err
	}
	return notPast(ctx, q, m.Until)
}

// plan checks what can be said of the request by itself, and resolves the organisation.
func (m ManageGrant) plan(ctx context.Context, q lockorder.Querier) (pool *uuid.UUID, err error) {
	if err := checkLine(m.ID, m.Grant); err != nil {
		return nil, err
	}
	switch {
	case m.Until != nil && m.Forever:
		return nil, fmt.Errorf("%w: the grant is to end at %s, and never", ErrInvalid, moment(*m.Until))
	case m.Until == nil && !m.Forever && m.Quantity == nil && m.Organization == "":
		return nil, fmt.Errorf("%w: nothing is to be changed; give an end, a quantity or an organisation", ErrInvalid)
	}
	if m.Quantity != nil {
		if err := checkQuantity(*m.Quantity); err != nil {
			return nil, err
		}
	}
	if err := checkNote(m.Note); err != nil || m.Organization == "" {
		return nil, err
	}
	org, err := FindOrganization(ctx, q, m.Organization)
	return &org.DefaultPool, err
}

// next is the grant that goes on from the head, or why none does.
func (m ManageGrant) next(head entitlementsdb.GetGrantHeadRow, past bool, pool *uuid.UUID) (next, error) {
	if err := over(head, past); err != nil {
		return next{}, err
	}
	n := next{id: m.ID, pool: head.PoolID, quantity: head.Quantity, ends: head.EndsAt, note: m.Note}
	if m.Until != nil || m.Forever {
		n.ends = m.Until
	}
	if m.Quantity != nil {
		n.quantity = *m.Quantity
	}
	if pool != nil {
		if head.PoolID != nil && *head.PoolID != *pool {
			return next{}, fmt.Errorf("%w: grant %s is for %s; one that is for nobody yet can be assigned: revoke this, and issue another", ErrInvalid, head.ID, head.Organization)
		}
		n.pool = pool
	}
	if n.quantity == head.Quantity && sameTime(n.ends, head.EndsAt) && sameID(n.pool, head.PoolID) {
		return next{}, fmt.Errorf("%w: grant %s is like that already", ErrInvalid, head.ID)
	}
	return n, nil
}

// Do changes the line from now on. Given again it changes nothing. The transaction is Materializing and holds no row yet. Errors
// wrap ErrInvalid, ErrExists, ErrNotFound, ErrOwed or ErrGrantMoved.
func (m ManageGrant) Do(ctx context.Context, tx *lockorder.Tx, act Act) (GrantOutcome, error) {
	pool, err := m.plan(ctx, tx)
	if err != nil {
		return GrantOutcome{}, err
	}
	var more []uuid.UUID
	if pool != nil {
		more = append(more, *pool)
	}
	l, err := openLine(ctx, tx, act, m.Grant, more...)
	if err != nil {
		return GrantOutcome{}, err
	}
	out := GrantOutcome{did: "Changed to"}
	if out.Repeated, err = l.stands(ctx, m.ID); err != nil {
		return GrantOutcome{}, err
	}
	if !out.Repeated {
		n, err := m.next(l.head, l.past(), pool)
		if err != nil {
			return GrantOutcome{}, err
		}
		if m.Until != nil && !m.Until.After(l.now) {
			return GrantOutcome{}, pastEnd(*m.Until)
		}
		if out.Entitlements, err = l.goOn(ctx, n); err != nil {
			return GrantOutcome{}, err
		}
	}
	out.Grant, err = readGrant(ctx, tx, m.ID)
	return out, err
}

// checkLine checks the ids of an act that makes a grant which goes on from another.
func checkLine(id, grant uuid.UUID) error {
	switch uuid.Nil {
	case id:
		return fmt.Errorf("%w: the grant has no id", ErrInvalid)
	case grant:
		return fmt.Errorf("%w: no grant is named", ErrInvalid)
	}
	if id == grant {
		return fmt.Errorf("%w: grant %s cannot go on from itself", ErrInvalid, id)
	}
	return nil
}

// peekHead reads the head of a line without a lock, and tells whether its end has come.
func peekHead(ctx context.Context, q lockorder.Querier, grant uuid.UUID) (head entitlementsdb.GetGrantHeadRow, past bool, err error) {
	head, err = getHead(ctx, q, grant)
	if err != nil || head.EndsAt == nil {
		return head, false, err
	}
	past, err = entitlementsdb.New(q).IsPast(ctx, *head.EndsAt)
	if err != nil {
		err = fmt.Errorf("reading the clock: %w", err)
	}
	return head, past, err
}

func sameTime(a, b *time.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(*b)
}
