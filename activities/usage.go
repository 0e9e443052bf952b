package activities

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/workflows/contract"
)

// UsageSpend takes of an allowance. One that does not hold it fails for good, with an error that wraps
// entitlements.ErrExhausted and says what is left; other errors wrap entitlements.ErrInvalid or ErrNotFound.
//
// Running it twice is safe: a spend of that id is taken once, and a second run gets its answer.
func (o *Operator) UsageSpend(ctx context.Context, in contract.UsageSpend) (contract.ActResult, error) {
	spent, err := entitlements.Spend(ctx, o.DB, entitlements.Spending{ID: in.ID, Pool: in.Pool, Key: in.Key, N: in.N})
	if err != nil {
		return contract.ActResult{}, translateInActivity(ctx, err)
	}
	detail := fmt.Sprintf("Spent %d of %s: %d used, %d left of %d%s", spent.N, in.Key, spent.Used, spent.Left, spent.Limit, renewal(spent.RenewsAt))
	if spent.Repeated {
		detail = fmt.Sprintf("Spend %s of %s stands already: it took %d, at %s", in.ID, in.Key, spent.N, spent.At.Format(time.RFC3339))
	}
	return usageResult(detail, struct {
		ID string `json:"id"`
		entitlements.Spent
	}{in.ID, spent})
}

// UsageRelease gives back a spend or a part of it. Errors wrap entitlements.ErrInvalid or ErrNotFound.
//
// Running it twice is safe: what is kept of the spend is named, and a second run finds no more than that.
func (o *Operator) UsageRelease(ctx context.Context, in contract.UsageRelease) (contract.ActResult, error) {
	released, err := entitlements.Release(ctx, o.DB, entitlements.Releasing{ID: in.ID, Pool: in.Pool, Key: in.Key, Keep: in.Keep})
	if err != nil {
		return contract.ActResult{}, translateInActivity(ctx, err)
	}
	detail := fmt.Sprintf("Released %d of spend %s of %s: %d of it stays spent, and %d are used", released.Freed, in.ID, in.Key, released.Kept, released.Used)
	switch {
	case released.Freed == 0:
		detail = fmt.Sprintf("Nothing was released: %d of spend %s of %s stays spent", released.Kept, in.ID, in.Key)
	case released.WindowOver:
		detail += "; the window that it was taken from is over, so they cannot be spent again"
	}
	return usageResult(detail, released)
}

// UsageRaise makes a counter at least what was measured. Errors wrap entitlements.ErrInvalid or ErrNotFound.
//
// Running it twice is safe: a counter that is as high stays as it is.
func (o *Operator) UsageRaise(ctx context.Context, in contract.UsageAdjust) (contract.ActResult, error) {
	adjusted, err := entitlements.RaiseTo(ctx, o.DB, entitlements.Counter{Pool: in.Pool, Key: in.Key}, in.To)
	return adjustResult(ctx, "Raised", in, adjusted, err)
}

// UsageBound makes a counter at most what was counted. Errors wrap entitlements.ErrInvalid or ErrNotFound.
//
// Running it twice is safe: a counter that is as low stays as it is. What was spent between the two is bounded too, as it is
// when a bound comes late.
func (o *Operator) UsageBound(ctx context.Context, in contract.UsageAdjust) (contract.ActResult, error) {
	adjusted, err := entitlements.Bound(ctx, o.DB, entitlements.Counter{Pool: in.Pool, Key: in.Key}, in.To)
	return adjustResult(ctx, "Bounded", in, adjusted, err)
}

func adjustResult(ctx context.Context, did string, in contract.UsageAdjust, adjusted entitlements.Adjusted, err error) (contract.ActResult, error) {
	if err != nil {
		return contract.ActResult{}, translateInActivity(ctx, err)
	}
	detail := fmt.Sprintf("%s %s from %d to %d", did, in.Key, adjusted.Was, adjusted.Used)
	if adjusted.Was == adjusted.Used {
		detail = fmt.Sprintf("Nothing was changed: %d of %s are used", adjusted.Used, in.Key)
	}
	detail += fmt.Sprintf("; %d left of %d%s", adjusted.Left, adjusted.Limit, renewal(adjusted.RenewsAt))
	return usageResult(detail, adjusted)
}

// renewal says when a new window begins, where one does.
func renewal(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return "; a new window begins " + at.Format(time.RFC3339)
}

func usageResult(detail string, outcome any) (contract.ActResult, error) {
	data, err := json.Marshal(outcome)
	if err != nil {
		return contract.ActResult{}, fmt.Errorf("the outcome: %w", err)
	}
	return contract.ActResult{Detail: detail, Data: data}, nil
}
