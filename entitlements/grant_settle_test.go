package entitlements_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/lockorder"
)

// A product whose tier was removed cannot be granted; a grant that holds it holds what stands in its place.
func TestGrantsOfARemovedTier(t *testing.T) {
	h := newHouse(t)
	acme := h.org("acme", "club")
	until := in(time.Hour)
	held, orphan := h.issue("acme", "silver", until), h.issue("", "silver", until)
	remove := entitlements.RemoveTier{Change: uuid.New(), Product: "silver", Disposition: entitlements.DispositionMigrate, To: "gold"}
	require.NoError(t, h.db.Run(t.Context(), lockorder.Spec{Path: "tier-remove", Kind: lockorder.RuleChange}, func(ctx context.Context, tx *lockorder.Tx) error {
		_, err := remove.Do(ctx, tx, act)
		return err
	}))
	h.refuses(entitlements.IssueGrant{ID: uuid.New(), Organization: "acme", Product: "silver", Quantity: 1}, "who held it holds gold: grant that")
	out := h.granted(entitlements.ExtendGrant{ID: uuid.New(), Grant: held})
	require.Equal(t, "gold", out.Grant.Product)
	require.Equal(t, "gold grant active", h.holds(acme.DefaultPool))
	require.Equal(t, "gold", h.granted(entitlements.ManageGrant{ID: uuid.New(), Grant: orphan, Organization: "acme"}).Grant.Product)
}

// What a change owes a pool is settled before a grant is, and where that fails nothing is done.
func TestAGrantSettlesWhatIsOwedFirst(t *testing.T) {
	h := newHouse(t)
	acme := h.org("acme", "club")
	owe := func() {
		_, err := h.pool.Exec(t.Context(), `WITH c AS (INSERT INTO core.changes (id, kind, summary, act, committed_at, owed)
				VALUES (gen_random_uuid(), 'rules', 'storage of free: 2', 'rule-change', core.clock(), 1) RETURNING id)
			INSERT INTO core.change_obligations (pool_id, change_id) SELECT $1, id FROM c`, acme.DefaultPool)
		require.NoError(t, err)
		_, err = h.pool.Exec(t.Context(), `UPDATE core.set_rules r SET numeric_value = numeric_value + 1 FROM core.entitlement_sets s
			WHERE s.id = r.set_id AND s.slug = 'free' AND r.resource_key = 'storage'`)
		require.NoError(t, err)
	}
	owe()
	h.issue("acme", "gold", nil)
	require.Equal(t, "rule-change 1→2, grant-issue 2→100", h.one(`SELECT string_agg(act || ' ' || from_value || '→' || to_value, ', ' ORDER BY id)
		FROM core.ledger WHERE pool_id = $1 AND resource_key = 'storage' AND from_value IS NOT NULL`, acme.DefaultPool))

	owe()
	_, err := h.pool.Exec(t.Context(), `CREATE FUNCTION core.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no more'; END $$;
		CREATE TRIGGER refuse BEFORE UPDATE ON core.change_obligations FOR EACH ROW EXECUTE FUNCTION core.refuse()`)
	require.NoError(t, err)
	_, err = h.tryGrant(t.Context(), "", entitlements.IssueGrant{ID: uuid.New(), Organization: "acme", Product: "disk", Quantity: 1})
	require.ErrorIs(t, err, entitlements.ErrOwed)
}

// What no entitlement can hold is refused, and not tried again and again.
func TestAGrantThatCannotBeSettledIsInvalid(t *testing.T) {
	h := newHouse(t)
	h.org("acme", "club")
	_, err := h.pool.Exec(t.Context(), `UPDATE core.set_rules r SET numeric_value = 1000000000000 FROM core.entitlement_sets s
		WHERE s.id = r.set_id AND s.slug = 'disk' AND r.resource_key = 'storage'`)
	require.NoError(t, err)
	most := func() entitlements.IssueGrant {
		return entitlements.IssueGrant{ID: uuid.New(), Organization: "acme", Product: "disk", Quantity: entitlements.MaxQuantity}
	}
	for range 9 {
		h.granted(most())
	}
	_, err = h.tryGrant(t.Context(), "", most())
	require.ErrorIs(t, err, entitlements.ErrInvalid)
	require.ErrorContains(t, err, "the pool cannot be settled with this")
}

// An extension has the beginning of what it extends, and yet was not held before it was made.
func TestThePastOfAnExtension(t *testing.T) {
	h := newHouse(t)
	acme := h.org("acme", "club")
	gold := h.issue("acme", "gold", in(time.Hour))
	var then time.Time
	require.NoError(t, h.pool.QueryRow(t.Context(), `SELECT core.clock()`).Scan(&then))
	h.granted(entitlements.ExtendGrant{ID: uuid.New(), Grant: gold})
	report, err := entitlements.Effective(t.Context(), h.db.Reader(), acme.ID, then)
	require.NoError(t, err)
	require.Len(t, report.Held, 1)
	require.Equal(t, gold, report.Held[0].Grant.ID)
}
