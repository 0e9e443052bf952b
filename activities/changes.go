package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/lockpath"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows/contract"
)

// RuleChange changes rules of one set. Pools that hold a product with it are settled, or left to the drain of the change. Errors
// wrap entitlements.ErrNotFound, ErrInvalid or ErrInProgress.
//
// Running it twice is safe: a change of that id is made once, and a second run answers that it stands.
func (o *Operator) RuleChange(ctx context.Context, in contract.RuleChange) (contract.ActResult, error) {
	alter, err := AlterRules(in)
	if err != nil {
		return contract.ActResult{}, translateInActivity(ctx, err)
	}
	return o.change(ctx, lockpath.RuleChangeCommit, alter)
}

// AlterRules reads the input of RuleChange. Errors wrap entitlements.ErrInvalid.
func AlterRules(in contract.RuleChange) (entitlements.AlterRules, error) {
	alter := entitlements.AlterRules{Change: in.Change, Set: in.Set, Deltas: make([]entitlements.RuleDelta, len(in.Deltas))}
	var errs []error
	for i, d := range in.Deltas {
		alter.Deltas[i].Key = d.Key
		if err := json.Unmarshal(d.Value, &alter.Deltas[i].Value); err != nil {
			errs = append(errs, fmt.Errorf("%w: resource key %s: %w", entitlements.ErrInvalid, d.Key, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return entitlements.AlterRules{}, err
	}
	return alter, alter.Check()
}

// reopenPage is how many obligations are reopened in one transaction.
const reopenPage = 200

// ReopenResult says what ReopenObligations did.
type ReopenResult struct {
	// Reopened is how many obligations were parked and are open now, Changes the changes whose they are.
	Reopened int         `json:"reopened"`
	Changes  []uuid.UUID `json:"changes,omitempty"`
}

// ReopenObligations lets parked obligations be tried again: those of a change, a pool or an organisation of the ids given, or, of
// none, all. The drains of their changes are to be started; the schedule does it else. Where an id names nothing that is
// parked the error wraps entitlements.ErrNotFound, and nothing is reopened.
//
// Running it twice is safe: what is open already stays so.
func (o *Operator) ReopenObligations(ctx context.Context, ids []uuid.UUID) (ReopenResult, error) {
	result, err := o.reopen(ctx, ids)
	return result, translateInActivity(ctx, err)
}

func (o *Operator) reopen(ctx context.Context, ids []uuid.UUID) (result ReopenResult, err error) {
	all, err := o.parkedObligations(ctx, ids)
	if err != nil {
		return result, err
	}
	for _, p := range all {
		if !slices.Contains(result.Changes, p.Change) {
			result.Changes = append(result.Changes, p.Change)
		}
	}
	for page := range slices.Chunk(all, reopenPage) {
		n := 0
		err := o.DB.Run(ctx, lockpath.ObligationReopen.Spec(), func(ctx context.Context, tx *lockorder.Tx) (err error) {
			n, err = entitlements.ReopenObligations(ctx, tx, page...)
			return err
		})
		if err != nil {
			return result, err
		}
		result.Reopened += n
	}
	return result, nil
}

// parkedObligations returns what is parked under the ids, each once, or, of none, all.
func (o *Operator) parkedObligations(ctx context.Context, ids []uuid.UUID) ([]entitlements.ParkedObligation, error) {
	read := func(id uuid.UUID) ([]entitlements.ParkedObligation, error) {
		return reading(ctx, func(ctx context.Context) ([]entitlements.ParkedObligation, error) {
			return entitlements.ParkedObligations(ctx, o.DB.Reader(), id)
		})
	}
	if len(ids) == 0 {
		return read(uuid.Nil)
	}
	var all []entitlements.ParkedObligation
	seen := map[[2]uuid.UUID]bool{}
	for _, id := range ids {
		found, err := read(id)
		switch {
		case err != nil:
			return nil, err
		case len(found) == 0:
			return nil, fmt.Errorf("nothing is parked under %s; bursar parked lists what is: %w", id, entitlements.ErrNotFound)
		}
		for _, p := range found {
			if key := [2]uuid.UUID{p.Change, p.Pool}; !seen[key] {
				seen[key] = true
				all = append(all, p)
			}
		}
	}
	return all, nil
}
