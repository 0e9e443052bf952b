package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/lockpath"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows/contract"
)

// GrantIssue gives a product without a payment. Errors wrap entitlements.ErrInvalid, ErrExists, ErrNotFound or ErrOwed.
//
// Running it twice is safe: the grant's id is the act's own, so a second run finds that it stands.
func (o *Operator) GrantIssue(ctx context.Context, in contract.GrantIssue) (contract.ActResult, error) {
	return o.grant(ctx, lockpath.GrantIssue, entitlements.IssueGrant(in))
}

// GrantExtend has a grant end later. Errors wrap entitlements.ErrInvalid, ErrExists, ErrNotFound or ErrOwed.
//
// Running it twice is safe: the new grant's id is the act's own, so a second run finds that it stands.
func (o *Operator) GrantExtend(ctx context.Context, in contract.GrantExtend) (contract.ActResult, error) {
	return o.grant(ctx, lockpath.GrantExtend, entitlements.ExtendGrant(in))
}

// GrantManage changes the end or the quantity of a line of grants, or assigns it to an organisation. Errors wrap
// entitlements.ErrInvalid, ErrExists, ErrNotFound or ErrOwed.
//
// Running it twice is safe: the new grant's id is the act's own, so a second run finds that it stands.
func (o *Operator) GrantManage(ctx context.Context, in contract.GrantManage) (contract.ActResult, error) {
	return o.grant(ctx, lockpath.GrantManage, entitlements.ManageGrant(in))
}

// GrantRevoke ends a line of grants. Errors wrap entitlements.ErrInvalid, ErrNotFound or ErrOwed.
//
// Running it twice is safe: the grant keeps which workflow revoked it, so a second run of the same finds that it is done.
func (o *Operator) GrantRevoke(ctx context.Context, in contract.GrantRevoke) (contract.ActResult, error) {
	return o.grant(ctx, lockpath.GrantRevoke, entitlements.RevokeGrant(in))
}

// GrantResume settles the pool of a line of grants. Errors wrap entitlements.ErrInvalid, ErrNotFound or ErrOwed.
//
// Running it twice is safe: a pool that is settled stays as it is.
func (o *Operator) GrantResume(ctx context.Context, in contract.GrantResume) (contract.ActResult, error) {
	return o.grant(ctx, lockpath.GrantResume, entitlements.ResumeGrant(in))
}

// grantAct is an act on grants, as package entitlements does it in a transaction.
type grantAct interface {
	Do(ctx context.Context, tx *lockorder.Tx, act entitlements.Act) (entitlements.GrantOutcome, error)
}

// mostMoves is how often a line of grants may change before its locks are held: it does where it names no organisation, and
// somebody else assigns or extends it.
const mostMoves = 5

func (o *Operator) grant(ctx context.Context, path lockpath.Path, do grantAct) (contract.ActResult, error) {
	var outcome entitlements.GrantOutcome
	err := entitlements.ErrGrantMoved
	for try := 0; try < mostMoves && errors.Is(err, entitlements.ErrGrantMoved); try++ {
		err = o.DB.Run(ctx, path.Spec(), func(ctx context.Context, tx *lockorder.Tx) (err error) {
			outcome, err = do.Do(ctx, tx, entitlements.Act{Name: path.Name, Workflow: workflowID(ctx)})
			return err
		})
	}
	if err != nil {
		return contract.ActResult{}, translateInActivity(ctx, err)
	}
	data, err := json.Marshal(outcome)
	if err != nil {
		return contract.ActResult{}, fmt.Errorf("the outcome of grant %s: %w", outcome.Grant.ID, err)
	}
	return contract.ActResult{Detail: outcome.Sentence(), Data: data}, nil
}
