package entitlements

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// ErrOwed is wrapped when what a change owes a pool cannot be settled, so that nothing else can be done with the pool
// either. The text names the pool and what failed.
var ErrOwed = errors.New("what a change owes the pool cannot be settled")

// LockPools locks the rows of pools, then settles what changes owe them, so that whatever follows in the transaction
// begins from what the present rules give. Pools may be named in any order and twice; none is ErrNotFound. The
// transaction holds the rendezvous, and takes every lock that ranks above the obligations' afterwards. Where settling
// fails the error wraps ErrOwed.
func LockPools(ctx context.Context, tx *lockorder.Tx, pools ...uuid.UUID) error {
	if err := tx.RequireKind(lockorder.Materializing, lockorder.RuleChange); err != nil {
		return err
	}
	pools = ascending(pools)
	if len(pools) == 0 {
		return nil
	}
	if err := tx.Lock(ctx, PoolRows(pools)...); err != nil {
		return err
	}
	q := entitlementsdb.New(tx)
	owed, err := q.ListOwed(ctx, pools)
	if err != nil {
		return fmt.Errorf("reading what %d pools are owed: %w", len(pools), err)
	}
	if len(owed) == 0 {
		return nil
	}
	locks := make([]lockorder.Lock, len(owed))
	owing := make([]uuid.UUID, len(owed))
	for i, o := range owed {
		locks[i], owing[i] = lockorder.ChangeObligationRow(o.PoolID, o.ChangeID), o.PoolID
	}
	if err := tx.Lock(ctx, locks...); err != nil {
		return err
	}
	for _, pool := range slices.Compact(owing) {
		if _, err := q.SettleOwed(ctx, pool); err != nil {
			if passing(err) {
				return fmt.Errorf("settling what pool %s is owed: %w", pool, err)
			}
			return fmt.Errorf("pool %s: %w: %w", pool, ErrOwed, err)
		}
	}
	return nil
}

// passing says that an error is of the moment, and says nothing of the rows.
func passing(err error) bool {
	switch lockorder.VerdictOf(err) {
	case lockorder.VerdictOther, lockorder.VerdictConflict:
		return false
	}
	return true
}
