package activities_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/workflows/contract"
)

// breakPool makes every change of a pool's positions fail until the result is called.
func (r *rig) breakPool(slug string) (mend func()) {
	r.t.Helper()
	pool := r.text(`SELECT p.id::text FROM core.pools p JOIN core.organizations o ON o.id = p.organization_id WHERE o.slug = $1`, slug)
	_, err := r.pool.Exec(r.t.Context(), `CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'out of order'; END $$`)
	require.NoError(r.t, err)
	_, err = r.pool.Exec(r.t.Context(), fmt.Sprintf(`CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON core.positions FOR EACH ROW WHEN (NEW.pool_id = '%s') EXECUTE FUNCTION public.refuse()`, pool))
	require.NoError(r.t, err)
	return func() {
		_, err := r.pool.Exec(r.t.Context(), `DROP FUNCTION public.refuse() CASCADE`)
		require.NoError(r.t, err)
	}
}

// A default reaches every organisation by itself: one that cannot be settled is parked with the reason, keeps what it has, and leaves the
// others alone; until it is mended and retried, the default is not changed again.
func TestADefaultThatOneOrganisationCannotTake(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.reconcile(r.subscribe(r.member("paying"), "gold"))
	for _, slug := range []string{"broken", "first", "second"} {
		r.member(slug)
	}
	mend := r.breakPool("broken")
	before := r.held("broken", true)

	in := contract.DefaultChange{Change: uuid.New(), Type: "member", Product: "extra", Incumbents: entitlements.IncumbentsGrandfather}
	result, err := r.operator.DefaultChange(t.Context(), in)
	require.NoError(t, err)
	require.Equal(t, 4, result.Change.Owed)
	settled, failed, parked := r.drain(result.Change.ID)
	require.Equal(t, []int{3, entitlements.MaxAttempts, 1}, []int{settled, failed, parked})

	for _, slug := range []string{"first", "second"} {
		require.Equal(t, "extra×1:active free×1:active", r.held(slug, false), slug)
		require.Equal(t, "sites=3", r.entitlements(slug))
	}
	require.Equal(t, "extra×1:active gold×1:active", r.held("paying", false))
	require.Equal(t, before, r.held("broken", true))
	require.Equal(t, free, r.entitlements("broken"))
	require.Equal(t, "parked 5 out of order", r.text(`SELECT concat_ws(' ', b.state, b.attempts, substring(b.last_error FROM 'out of order'))
		FROM core.change_obligations b WHERE b.state <> 'settled'`))

	again := contract.DefaultChange{Change: uuid.New(), Type: "member", Product: "free", Incumbents: entitlements.IncumbentsMigrate}
	_, err = r.operator.DefaultChange(t.Context(), again)
	require.ErrorIs(t, err, entitlements.ErrInProgress)
	require.ErrorContains(t, err, "1 organisation of type member; 1 of them is parked: bursar parked shows why")

	mend()
	reopened, err := r.operator.ReopenObligations(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, activities.ReopenResult{Reopened: 1, Changes: []uuid.UUID{in.Change}}, reopened)
	settled, failed, parked = r.drain(result.Change.ID)
	require.Equal(t, []int{1, 0, 0}, []int{settled, failed, parked})
	require.Equal(t, "extra×1:active free×1:active", r.held("broken", false))
	require.Equal(t, "sites=3", r.entitlements("broken"))

	result, err = r.operator.DefaultChange(t.Context(), again)
	require.NoError(t, err)
	settled, _, _ = r.drain(result.Change.ID)
	require.Equal(t, 4, settled)
	require.Equal(t, "free×1:active", r.held("broken", false), "the grant holds the ladder, and the old default is migrated")
	require.Equal(t, "gold×1:active", r.held("paying", false))
	r.ledgerAgrees()
}
