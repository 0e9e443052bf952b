package entitlements

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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
	owed, err := lockOwing(ctx, tx, pools)
	if err != nil {
		return err
	}
	q := entitlementsdb.New(tx)
	for _, pool := range owed {
		if _, err := q.SettleOwed(ctx, pool); err != nil {
			if passing(err) {
				return fmt.Errorf("settling what pool %s is owed: %w", pool, err)
			}
			return fmt.Errorf("pool %s: %w: %w", pool, ErrOwed, err)
		}
	}
	return nil
}

// lockOwing locks the rows of pools, then those of what changes owe them, and returns the pools that are owed something,
// ascending.
func lockOwing(ctx context.Context, tx *lockorder.Tx, pools []uuid.UUID) ([]uuid.UUID, error) {
	if err := tx.RequireKind(lockorder.Materializing, lockorder.RuleChange); err != nil {
		return nil, err
	}
	pools = ascending(pools)
	if len(pools) == 0 {
		return nil, nil
	}
	if err := tx.Lock(ctx, PoolRows(pools)...); err != nil {
		return nil, err
	}
	owed, err := entitlementsdb.New(tx).ListOwed(ctx, pools)
	if err != nil {
		return nil, fmt.Errorf("reading what %d pools are owed: %w", len(pools), err)
	}
	locks := make([]lockorder.Lock, len(owed))
	owing := make([]uuid.UUID, len(owed))
	for i, o := range owed {
		locks[i], owing[i] = lockorder.ChangeObligationRow(o.PoolID, o.ChangeID), o.PoolID
	}
	if err := tx.Lock(ctx, locks...); err != nil {
		return nil, err
	}
	return slices.Compact(owing), nil
}

// passing says that an error is of the moment, and says nothing of the rows.
func passing(err error) bool {
	switch lockorder.VerdictOf(err) {
	case lockorder.VerdictOther, lockorder.VerdictConflict:
		return false
	}
	return true
}

// MaxAttempts is how often what a pool is owed may fail to be settled before it is parked.
const MaxAttempts = 5

// OpenObligations returns at most limit pools, ascending, that a change owes and that come after the one given. Begin with
// uuid.Nil. What is parked is left out.
func OpenObligations(ctx context.Context, q lockorder.Querier, change, after uuid.UUID, limit int) ([]uuid.UUID, error) {
	pools, err := entitlementsdb.New(q).ListOpenObligations(ctx, entitlementsdb.ListOpenObligationsParams{ChangeID: change, After: after, Most: int32(limit)})
	if err != nil {
		return nil, fmt.Errorf("reading the pools that change %s owes: %w", change, err)
	}
	return pools, nil
}

// CountObligations returns how many pools a change owes still, and how many of what it owes are parked.
func CountObligations(ctx context.Context, q lockorder.Querier, change uuid.UUID) (open, parked int, err error) {
	n, err := entitlementsdb.New(q).CountObligations(ctx, change)
	if err != nil {
		return 0, 0, fmt.Errorf("counting the pools that change %s owes: %w", change, err)
	}
	return int(n.Open), int(n.Parked), nil
}

// FailObligation notes that what a change owes a pool could not be settled, and why; after MaxAttempts it is parked. What has
// been settled meanwhile stays so. The transaction holds the rendezvous and no row yet.
func FailObligation(ctx context.Context, tx *lockorder.Tx, change, pool uuid.UUID, reason string) (parked bool, err error) {
	if err := tx.RequireKind(lockorder.Materializing); err != nil {
		return false, err
	}
	missing, err := tx.LockExisting(ctx, lockorder.ChangeObligationRow(pool, change))
	if err != nil || len(missing) > 0 {
		return false, err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return false, err
	}
	state, err := entitlementsdb.New(tx).FailObligation(ctx, entitlementsdb.FailObligationParams{
		PoolID: pool, ChangeID: change, Reason: reason, At: now, Most: MaxAttempts})
	switch {
	case isNoRows(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("noting that what change %s owes pool %s failed: %w", change, pool, err)
	}
	return state == obligationParked, nil
}

const obligationParked = "parked"

// ParkedObligation is a pool that a change has not reached, after so many tries that a person has to look.
type ParkedObligation struct {
	Change uuid.UUID `json:"change"`
	// Summary is what the change was.
	Summary      string    `json:"summary"`
	Pool         uuid.UUID `json:"pool"`
	PoolName     string    `json:"pool_name"`
	Organization string    `json:"organization"`
	Attempts     int       `json:"attempts"`
	// Reason is why the last try failed.
	Reason      string    `json:"reason"`
	LastTriedAt time.Time `json:"last_tried_at"`
}

// parkedPage is how many parked obligations are read at once.
const parkedPage = 500

// ParkedObligations returns what is parked, by change and pool; with an object other than uuid.Nil only what is owed by the
// change, or to the pool or the pools of the organisation, of that id.
func ParkedObligations(ctx context.Context, q lockorder.Querier, object uuid.UUID) ([]ParkedObligation, error) {
	params := entitlementsdb.ListParkedObligationsParams{Most: parkedPage}
	if object != uuid.Nil {
		params.Object = &object
	}
	var all []ParkedObligation
	for {
		rows, err := entitlementsdb.New(q).ListParkedObligations(ctx, params)
		if err != nil {
			return nil, fmt.Errorf("reading the obligations that are parked: %w", err)
		}
		for _, r := range rows {
			p := ParkedObligation{Change: r.ChangeID, Summary: r.Summary, Pool: r.PoolID, PoolName: r.Pool, Organization: r.Organization,
				Attempts: int(r.Attempts), Reason: deref(r.LastError)}
			if r.LastTriedAt != nil {
				p.LastTriedAt = r.LastTriedAt.UTC()
			}
			all = append(all, p)
		}
		if len(rows) < parkedPage {
			return all, nil
		}
		last := rows[len(rows)-1]
		params.AfterChange, params.AfterPool = last.ChangeID, last.PoolID
	}
}

// ReopenObligations lets parked obligations be tried again as if they were new, and returns how many were parked still. The
// transaction holds no row yet; give it a page of them.
func ReopenObligations(ctx context.Context, tx *lockorder.Tx, parked ...ParkedObligation) (int, error) {
	locks := make([]lockorder.Lock, len(parked))
	var params entitlementsdb.ReopenObligationsParams
	for i, p := range parked {
		locks[i] = lockorder.ChangeObligationRow(p.Pool, p.Change)
		params.Pools, params.Changes = append(params.Pools, p.Pool), append(params.Changes, p.Change)
	}
	if err := tx.Lock(ctx, locks...); err != nil {
		return 0, err
	}
	n, err := entitlementsdb.New(tx).ReopenObligations(ctx, params)
	if err != nil {
		return 0, fmt.Errorf("reopening %d parked obligations: %w", len(parked), err)
	}
	return int(n), nil
}

// Transient says that a failure is of the moment: another try may have another end, and the pool is not at fault.
func Transient(err error) bool { return passing(err) }
