package activities_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows/contract"
)

// gives issues a grant to an organisation, until 2090, and returns it.
func (r *rig) gives(organization, product string) uuid.UUID {
	r.t.Helper()
	id := uuid.New()
	_, err := r.operator.GrantIssue(r.t.Context(), contract.GrantIssue{ID: id, Organization: organization, Product: product, Quantity: 1, Until: later(2090)})
	require.NoError(r.t, err)
	return id
}

// ends has grants, and their positions, end after a time from now; it may be over.
func (r *rig) ends(in time.Duration, grants ...uuid.UUID) {
	r.t.Helper()
	_, err := r.pool.Exec(r.t.Context(), `WITH g AS (
			UPDATE core.grants SET starts_at = '2020-01-01', ends_at = core.clock() + $2::interval WHERE id = ANY ($1) RETURNING id, starts_at, ends_at)
		UPDATE core.positions p SET starts_at = g.starts_at, ends_at = g.ends_at FROM g WHERE p.grant_id = g.id`, grants, in)
	require.NoError(r.t, err)
}

// members makes organisations that hold gold by a grant each, and returns the grants.
func (r *rig) members(n int) (grants []uuid.UUID) {
	r.t.Helper()
	for i := range n {
		slug := fmt.Sprintf("member-%d", i)
		_, err := r.operator.CreateOrganization(r.t.Context(), activities.NewOrganizationRequest{Slug: slug, Name: slug, Type: "member"})
		require.NoError(r.t, err)
		grants = append(grants, r.gives(slug, "gold"))
	}
	return grants
}

// refuse has whatever writes the ledger of an organisation's pool fail, until the function that it returns is called.
func (r *rig) refuse(organization string) (stop func()) {
	r.t.Helper()
	exec := func(sql string) {
		_, err := r.pool.Exec(r.t.Context(), sql)
		require.NoError(r.t, err)
	}
	exec(fmt.Sprintf(`CREATE FUNCTION core.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF EXISTS (SELECT FROM core.pools p JOIN core.organizations o ON o.id = p.organization_id WHERE p.id = NEW.pool_id AND o.slug = '%s') THEN
			RAISE EXCEPTION 'this pool cannot be settled';
		END IF;
		RETURN NEW; END $$;
		CREATE TRIGGER refuse BEFORE INSERT ON core.ledger FOR EACH ROW EXECUTE FUNCTION core.refuse()`, organization))
	return func() { exec(`DROP TRIGGER refuse ON core.ledger`) }
}

// A grant that cannot be swept stops no other, tells why, and is tried again by the next sweep.
func TestASweepGoesOnAfterAFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	grants := r.members(5)
	r.ends(-time.Minute, grants...)
	mended := r.refuse("member-2")
	for n := 1; n <= 2; n++ {
		swept, err := sweep(r.db)
		require.NoError(t, err)
		require.Equal(t, contract.GrantSweep{Expired: map[int]int{1: 4}[n], Failed: 1}, swept)
		overdue, err := entitlements.ListGrants(t.Context(), r.db.Reader(), entitlements.GrantFilter{Overdue: true})
		require.NoError(t, err)
		require.Len(t, overdue, 1)
		require.Equal(t, grants[2], overdue[0].ID)
		require.Equal(t, n, overdue[0].Attempts)
		require.Contains(t, overdue[0].LastError, "this pool cannot be settled")
	}
	mended()
	swept, err := sweep(r.db)
	require.NoError(t, err)
	require.Equal(t, contract.GrantSweep{Expired: 1}, swept)
	require.Equal(t, free, r.entitlements("member-2"))
	r.ledgerAgrees()
}

// A grant that becomes due while the sweep runs is expired by it or by the next.
func TestAGrantThatBecomesDueDuringASweep(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	grants := r.members(40)
	r.ends(-time.Minute, grants[:20]...)
	for i, g := range grants[20:] { // while the first are expired
		r.ends(time.Duration(i*3)*time.Millisecond, g)
	}
	first, err := sweep(r.db)
	require.NoError(t, err)
	eventually(t, "the last has ended", func() bool { return r.count(`SELECT count(*) FROM core.grants WHERE ends_at > core.clock()`) == 0 })
	second, err := sweep(r.db)
	require.NoError(t, err)
	t.Logf("expired by the first sweep: %d", first.Expired)
	require.Equal(t, len(grants), first.Expired+second.Expired)
	require.Equal(t, len(grants), r.count(`SELECT count(*) FROM core.grants WHERE state = 'expired'`))
	third, err := sweep(r.db)
	require.NoError(t, err)
	require.Zero(t, third)
}

// A pool that somebody else holds for long is left to the next sweep; the others are not.
func TestASweepDefersWhatIsBusy(t *testing.T) {
	t.Parallel()
	r := newRigWith(t, lockorder.Options{LockTimeout: 1500 * time.Millisecond})
	grants := r.members(3)
	r.ends(-time.Minute, grants...)
	tx, err := r.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM core.pools WHERE id = (SELECT pool_id FROM core.grants WHERE id = $1) FOR UPDATE`, grants[1])
	require.NoError(t, err)
	swept, err := sweep(r.db)
	require.NoError(t, err)
	require.Equal(t, contract.GrantSweep{Expired: 2, Deferred: 1}, swept)
	require.Zero(t, r.count(`SELECT count(*) FROM core.grants WHERE attempts > 0`), "nothing is wrong with it")
	require.NoError(t, tx.Rollback(t.Context()))
	swept, err = sweep(r.db)
	require.NoError(t, err)
	require.Equal(t, contract.GrantSweep{Expired: 1}, swept)
}

// An activity that takes over from one that died goes on from its heartbeat, and comes by what that one had failed at with the next
// sweep.
func TestASweepGoesOnFromItsHeartbeat(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	grants := r.members(3)
	r.ends(-time.Hour, grants[0])
	r.ends(-time.Minute, grants[1:]...)
	var at time.Time
	require.NoError(t, r.pool.QueryRow(t.Context(), `SELECT ends_at FROM core.grants WHERE id = $1`, grants[0]).Scan(&at))

	env := quietActivities()
	sweeps := &activities.Grants{DB: r.db}
	env.RegisterActivity(sweeps)
	env.SetHeartbeatDetails(contract.GrantSweep{Expired: 7, Failed: 1, From: contract.GrantCursor{At: at, ID: grants[0]}})
	value, err := env.ExecuteActivity(sweeps.SweepGrants, contract.GrantCursor{})
	require.NoError(t, err)
	var swept contract.GrantSweep
	require.NoError(t, value.Get(&swept))
	require.Equal(t, contract.GrantSweep{Expired: 9, Failed: 1}, swept)
	swept, err = sweep(r.db)
	require.NoError(t, err)
	require.Equal(t, contract.GrantSweep{Expired: 1}, swept)
}

// A sweep whose worker stops says so, and keeps what it has done.
func TestASweepStops(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.ends(-time.Minute, r.members(2)...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	env := quietActivities()
	sweeps := &activities.Grants{DB: r.db}
	env.RegisterActivity(sweeps)
	env.SetWorkerOptions(worker.Options{BackgroundActivityContext: ctx})
	_, err := env.ExecuteActivity(sweeps.SweepGrants, contract.GrantCursor{})
	require.Error(t, err)
	require.True(t, retryable(err, activities.ErrTypeCancelled, activities.ErrTypeUnknown), "%v", err)
	swept, err := sweep(r.db)
	require.NoError(t, err)
	require.Equal(t, contract.GrantSweep{Expired: 2}, swept)
}

// What an operator's activity answers in Temporal: final where trying again cannot help.
func TestGrantActsAnswerTemporal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.member("acme")
	env := quietActivities()
	env.RegisterActivity(r.operator)
	in := contract.GrantIssue{ID: uuid.New(), Organization: "acme", Product: "gold", Quantity: 1}
	var first, second contract.ActResult
	for _, got := range []*contract.ActResult{&first, &second} {
		value, err := env.ExecuteActivity(r.operator.GrantIssue, in)
		require.NoError(t, err)
		require.NoError(t, value.Get(got))
	}
	require.Contains(t, first.Detail, "active; 3 entitlements changed")
	require.Contains(t, second.Detail, "it was done before")
	for _, in := range []contract.GrantIssue{
		{ID: in.ID, Organization: "acme", Product: "silver", Quantity: 1},
		{ID: uuid.New(), Organization: "acme", Product: "gold"},
		{ID: uuid.New(), Organization: "nobody", Product: "gold", Quantity: 1},
	} {
		_, err := env.ExecuteActivity(r.operator.GrantIssue, in)
		require.Error(t, err)
		require.False(t, retryable(err, activities.ErrTypeAlreadyExists, activities.ErrTypeInvalidArgument, activities.ErrTypeNotFound))
	}
	value, err := env.ExecuteActivity(r.operator.GrantRevoke, contract.GrantRevoke{Grant: in.ID})
	require.NoError(t, err)
	require.NoError(t, value.Get(&first))
	value, err = env.ExecuteActivity(r.operator.GrantRevoke, contract.GrantRevoke{Grant: in.ID})
	require.NoError(t, err, "the same workflow again")
	require.NoError(t, value.Get(&second))
	require.Contains(t, second.Detail, "it was done before")
}
