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

// change is a change of what products give, as package entitlements makes it in a transaction.
type change interface {
	Do(ctx context.Context, tx *lockorder.Tx, act entitlements.Act) (entitlements.Outcome, error)
}

// TierAdd puts a product on a ladder. Pools that hold it are settled, or left to the drain of the change. Errors wrap
// entitlements.ErrNotFound or ErrInvalid.
//
// Running it twice is safe: a change of that id is made once, and a second run answers that it stands.
func (o *Operator) TierAdd(ctx context.Context, in contract.TierAdd) (contract.ActResult, error) {
	return o.change(ctx, lockpath.TierAdd, entitlements.AddTier(in))
}

// TierRemove takes a product off its ladder, and says what becomes of those who hold it. Errors wrap
// entitlements.ErrNotFound or ErrInvalid.
//
// Running it twice is safe: a change of that id is made once, and a second run answers that it stands.
func (o *Operator) TierRemove(ctx context.Context, in contract.TierRemove) (contract.ActResult, error) {
	return o.change(ctx, removal(in), entitlements.RemoveTier(in))
}

func removal(in contract.TierRemove) lockpath.Path {
	if in.Disposition == "" {
		return lockpath.TierDelete
	}
	return lockpath.TierRemove
}

// TierReorder puts the tiers of a ladder into another order. Errors wrap entitlements.ErrNotFound or ErrInvalid.
//
// Running it twice is safe: a change of that id is made once, and a second run answers that it stands.
func (o *Operator) TierReorder(ctx context.Context, in contract.TierReorder) (contract.ActResult, error) {
	return o.change(ctx, lockpath.TierReorder, entitlements.ReorderTiers(in))
}

// DefaultChange saves the default of an organisation type; every organisation of the type is left to the drain of the
// change. Errors wrap entitlements.ErrNotFound, ErrInvalid or ErrInProgress.
//
// Running it twice is safe: a change of that id is made once, and a second run answers that it stands.
func (o *Operator) DefaultChange(ctx context.Context, in contract.DefaultChange) (contract.ActResult, error) {
	return o.change(ctx, lockpath.DefaultSave, entitlements.SaveDefault(in))
}

// change makes a change and answers what it did.
func (o *Operator) change(ctx context.Context, path lockpath.Path, c change) (contract.ActResult, error) {
	var outcome entitlements.Outcome
	err := o.DB.Run(ctx, path.Spec(), func(ctx context.Context, tx *lockorder.Tx) (err error) {
		outcome, err = c.Do(ctx, tx, entitlements.Act{Name: path.Name, Workflow: workflowID(ctx)})
		return err
	})
	if err != nil {
		return contract.ActResult{}, translateInActivity(ctx, err)
	}
	return changeResult(outcome)
}

// changeResult tells what a change did.
func changeResult(outcome entitlements.Outcome) (contract.ActResult, error) {
	data, err := json.Marshal(outcome)
	if err != nil {
		return contract.ActResult{}, fmt.Errorf("the outcome of change %s: %w", outcome.Change, err)
	}
	return contract.ActResult{
		Detail: outcome.Sentence(), Data: data,
		Change: &contract.ChangeRef{ID: outcome.Change.String(), Owed: outcome.Owed},
	}, nil
}

// errShown rolls a change back that was made to be looked at.
var errShown = errors.New("shown, and not kept")

// PreviewTierAdd returns what TierAdd would do: it is done, looked at, and rolled back. Errors are the act's.
func (o *Operator) PreviewTierAdd(ctx context.Context, in contract.TierAdd) (entitlements.Outcome, error) {
	return o.preview(ctx, lockpath.TierAdd, entitlements.AddTier(in))
}

// PreviewTierRemove is PreviewTierAdd for TierRemove.
func (o *Operator) PreviewTierRemove(ctx context.Context, in contract.TierRemove) (entitlements.Outcome, error) {
	return o.preview(ctx, removal(in), entitlements.RemoveTier(in))
}

// PreviewTierReorder is PreviewTierAdd for TierReorder.
func (o *Operator) PreviewTierReorder(ctx context.Context, in contract.TierReorder) (entitlements.Outcome, error) {
	return o.preview(ctx, lockpath.TierReorder, entitlements.ReorderTiers(in))
}

func (o *Operator) preview(ctx context.Context, path lockpath.Path, c change) (outcome entitlements.Outcome, err error) {
	err = o.DB.Run(ctx, path.Spec(), func(ctx context.Context, tx *lockorder.Tx) (err error) {
		if outcome, err = c.Do(ctx, tx, entitlements.Act{Name: path.Name}); err == nil {
			err = errShown
		}
		return err
	})
	if errors.Is(err, errShown) {
		err = nil
	}
	return outcome, err
}

// OrganizationCreate is CreateOrganization as an act. Errors wrap entitlements.ErrInvalid, ErrExists or ErrNotFound.
//
// Running it twice is safe: the ids are the act's own, so a second run finds that they stand and changes nothing.
func (o *Operator) OrganizationCreate(ctx context.Context, in contract.OrganizationCreate) (contract.ActResult, error) {
	var made entitlements.Organization
	err := o.DB.Run(ctx, lockpath.OrganizationCreate.Spec(),
		func(ctx context.Context, tx *lockorder.Tx) (err error) {
			act := entitlements.Act{Name: lockpath.OrganizationCreate.Name, Workflow: workflowID(ctx)}
			made, err = entitlements.CreateOrganization(ctx, tx, act, entitlements.NewOrganization{
				ID: in.ID, DefaultPool: in.Pool, Slug: in.Slug, Name: in.Name, Type: in.Type})
			return err
		})
	if err != nil {
		return contract.ActResult{}, translateInActivity(ctx, err)
	}
	data, err := json.Marshal(made)
	if err != nil {
		return contract.ActResult{}, fmt.Errorf("the organisation %s: %w", made.Slug, err)
	}
	return contract.ActResult{Detail: fmt.Sprintf("Made %s (%s), type %s", made.Slug, made.Name, made.Type), Data: data}, nil
}
