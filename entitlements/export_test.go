package entitlements

import (
	"context"

	"github.com/bursarhq/bursar/lockorder"
)

// SeenUsage is what a spend has seen before it takes its lock.
type SeenUsage = seenUsage

// Read sees it.
func (p *seenUsage) Read(ctx context.Context, q lockorder.Querier, c Counter, spend string) error {
	return p.read(ctx, q, c, spend)
}

// SpendSeen spends after a pause between the look and the lock.
func SpendSeen(ctx context.Context, tx *lockorder.Tx, s Spending, seen SeenUsage) (Spent, error) {
	return s.in(ctx, tx, seen)
}
