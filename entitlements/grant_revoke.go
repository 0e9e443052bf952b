package entitlements

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/lockorder"
)

// RevokeGrant is a line of grants that is to end now.
type RevokeGrant struct {
	// Grant is any of the line.
	Grant uuid.UUID `json:"grant"`
}

// Check says what is wrong with the request, before anything starts. Errors wrap ErrInvalid or ErrNotFound.
func (r RevokeGrant) Check(ctx context.Context, q lockorder.Querier) error {
	head, past, err := peekHead(ctx, q, r.Grant)
	if err != nil {
		return err
	}
	return over(head, past)
}

// Do revokes the head of the line, and settles its pool: what it displaced confers again, and the floor returns where its
// ladder falls vacant. A second time by the same workflow changes nothing. The transaction is Materializing and holds no row
// yet. Errors wrap ErrInvalid, ErrNotFound, ErrOwed or ErrGrantMoved.
func (r RevokeGrant) Do(ctx context.Context, tx *lockorder.Tx, act Act) (GrantOutcome, error) {
	l, err := openLine(ctx, tx, act, r.Grant)
	if err != nil {
		return GrantOutcome{}, err
	}
	out := GrantOutcome{did: "Revoked"}
	out.Repeated = l.head.State == GrantRevoked && act.Workflow != "" && deref(l.head.ClosedWorkflow) == act.Workflow
	if !out.Repeated {
		if err := l.over(); err != nil {
			return GrantOutcome{}, err
		}
		if err := l.close(ctx, GrantRevoked); err != nil {
			return GrantOutcome{}, err
		}
		if out.Entitlements, err = l.settle(ctx); err != nil {
			return GrantOutcome{}, err
		}
	}
	out.Grant, err = readGrant(ctx, tx, l.head.ID)
	return out, err
}

// ResumeGrant is a line of grants whose pool is to be settled. Grants resume by themselves whenever their pool is settled; this
// is for when somebody doubts it.
type ResumeGrant struct {
	// Grant is any of the line.
	Grant uuid.UUID `json:"grant"`
}

// Check says what is wrong with the request, before anything starts. Errors wrap ErrInvalid or ErrNotFound.
func (r ResumeGrant) Check(ctx context.Context, q lockorder.Querier) error {
	head, past, err := peekHead(ctx, q, r.Grant)
	if err != nil {
		return err
	}
	if err := over(head, past); err != nil {
		return err
	}
	return assigned(head.PoolID, head.ID)
}

func assigned(pool *uuid.UUID, grant uuid.UUID) error {
	if pool == nil {
		return fmt.Errorf("%w: grant %s names no organisation, so there is no pool to be settled; bursar grant manage --org assigns it", ErrInvalid, grant)
	}
	return nil
}

// Do settles the pool of the line's head. A second time changes nothing. The transaction is Materializing and holds no row yet.
// Errors wrap ErrInvalid, ErrNotFound, ErrOwed or ErrGrantMoved.
func (r ResumeGrant) Do(ctx context.Context, tx *lockorder.Tx, act Act) (GrantOutcome, error) {
	l, err := openLine(ctx, tx, act, r.Grant)
	if err != nil {
		return GrantOutcome{}, err
	}
	if err := l.over(); err != nil {
		return GrantOutcome{}, err
	}
	if err := assigned(l.head.PoolID, l.head.ID); err != nil {
		return GrantOutcome{}, err
	}
	out := GrantOutcome{did: "Settled the pool of"}
	if out.Entitlements, err = l.settle(ctx); err != nil {
		return GrantOutcome{}, err
	}
	out.Grant, err = readGrant(ctx, tx, l.head.ID)
	return out, err
}
