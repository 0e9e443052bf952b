package entitlements

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// Settle settles pools: gives way with the floor or restores it, and makes pool_entitlements what the conferring
// positions add up to, writing only rows that differ and a ledger line for each. It returns how many entitlements
// changed. The transaction holds the rendezvous and the row of every pool; pools may be named in any order and twice.
func Settle(ctx context.Context, tx *lockorder.Tx, act Act, pools ...uuid.UUID) (int, error) {
	if err := act.check(); err != nil {
		return 0, err
	}
	if err := tx.RequireKind(lockorder.Materializing, lockorder.RuleChange); err != nil {
		return 0, err
	}
	if err := requirePools(tx, pools); err != nil {
		return 0, err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return 0, err
	}
	q := entitlementsdb.New(tx)
	total := 0
	for _, pool := range ascending(pools) {
		n, err := q.SettlePool(ctx, entitlementsdb.SettlePoolParams{PoolID: pool, Act: act.Name, Workflow: act.Workflow, At: now})
		if err != nil {
			return total, fmt.Errorf("settling pool %s: %w", pool, err)
		}
		total += int(n)
	}
	return total, nil
}

// PoolRows returns the row locks of pools.
func PoolRows(pools []uuid.UUID) []lockorder.Lock {
	locks := make([]lockorder.Lock, len(pools))
	for i, pool := range pools {
		locks[i] = lockorder.PoolRow(pool)
	}
	return locks
}

func requirePools(tx *lockorder.Tx, pools []uuid.UUID) error {
	return tx.Require(PoolRows(pools)...)
}

// ascending returns pools in the order of the locks, each once.
func ascending(pools []uuid.UUID) []uuid.UUID {
	out := slices.Clone(pools)
	slices.SortFunc(out, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(out)
}
