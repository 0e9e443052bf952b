package activities_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/db"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/locktest"
	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows/contract"
)

// ruleChange is a request to have a set give so much of a key; nil takes the rule away.
func ruleChange(set, key string, value any) contract.RuleChange {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return contract.RuleChange{Change: uuid.New(), Set: set, Deltas: []contract.RuleDelta{{Key: key, Value: raw}}}
}

// change commits a change of rules and returns what it did.
func (r *rig) ruleChange(in contract.RuleChange) contract.ChangeRef {
	r.t.Helper()
	result, err := r.operator.RuleChange(r.t.Context(), in)
	require.NoError(r.t, err)
	return *result.Change
}

// turn runs the activity once, as a worker does.
func turn(handle *lockorder.DB, request contract.DrainRequest) (contract.DrainTurn, error) {
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	env.SetTestTimeout(5 * time.Minute)
	drain := &activities.Drain{DB: handle}
	env.RegisterActivity(drain)
	value, err := env.ExecuteActivity(drain.DrainChange, request)
	if err != nil {
		return contract.DrainTurn{}, err
	}
	var t contract.DrainTurn
	return t, value.Get(&t)
}

// drain goes on until nothing is open, as the workflow does but without its pauses.
func (r *rig) drain(change string) (settled, failed, parked int) {
	r.t.Helper()
	request := contract.DrainRequest{ChangeID: change}
	for {
		done, err := turn(r.db, request)
		require.NoError(r.t, err)
		settled, failed = settled+done.Settled, failed+done.Failed
		if done.Open == 0 {
			return settled, failed, done.Parked
		}
		if request.After = done.After; request.After == "" {
			request.Pass++
		}
	}
}

// small is a crowd just above the cap.
const small = entitlements.SyncCap + 2

// A conferral between a commit above the cap and its drain leaves the pool right, and the drain finds nothing to do there.
func TestConferralBetweenCommitAndDrain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.crowd(small, 0)
	customer := r.member("acme")
	extra := r.subscribe(customer, "extra")
	r.reconcile(extra)
	change := r.ruleChange(ruleChange("extra", "sites", 5))
	require.Equal(t, small+1, change.Owed)
	require.Equal(t, "sites=3", r.entitlements("acme"))

	r.reconcile(r.subscribe(customer, "gold"))
	require.Equal(t, "sites=25 storage=200 support=true", r.entitlements("acme"))
	require.Equal(t, "3→6 rule-change-commit, 6→25 subscription-reconcile", r.text(`SELECT string_agg(concat(l.from_value, '→', l.to_value, ' ', l.act), ', ' ORDER BY l.id)
		FROM core.ledger l JOIN core.pools p ON p.id = l.pool_id JOIN core.organizations o ON o.id = p.organization_id
		WHERE o.slug = 'acme' AND l.resource_key = 'sites' AND l.from_value IN ('3', '6')`), "what was owed is settled first, in the change's name")

	settled, failed, parked := r.drain(change.ID)
	require.Equal(t, []int{small, 0, 0}, []int{settled, failed, parked})
	require.Equal(t, "sites=25 storage=200 support=true", r.entitlements("acme"))
	require.Equal(t, "sites=6", r.entitlements("org-1"))
	r.ledgerAgrees()
}

// What a pool is owed and cannot be settled parks the act that needs the pool, with the reason; a change that mends the rule gets
// through, and then everything else does.
func TestWhatCannotBeSettledParksTheActAndIsMended(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.crowd(small, 1)
	change := r.ruleChange(ruleChange("extra", "sites", entitlements.MaxNumber))
	settled, failed, parked := r.drain(change.ID)
	require.Equal(t, []int{small - 1, entitlements.MaxAttempts, 1}, []int{settled, failed, parked})

	customer := "cus_broken"
	_, err := r.operator.LinkCustomer(t.Context(), activities.LinkCustomerRequest{Customer: customer, Organization: "org-1"})
	require.NoError(t, err)
	sub := r.subscribe(customer, "gold")
	_, err = r.subs.ReconcileSubscription(t.Context(), contract.ReconcileRequest{SubscriptionID: sub})
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, activities.ErrTypeOwedUnsettled, app.Type())
	require.True(t, app.NonRetryable())
	require.Contains(t, app.Message(), "bigint out of range")

	// Reopened, it fails as before; of an id that names nothing parked nothing is reopened.
	_, err = r.operator.ReopenObligations(t.Context(), []uuid.UUID{uuid.MustParse(change.ID), uuid.New()})
	require.ErrorIs(t, err, entitlements.ErrNotFound)
	require.Equal(t, 1, r.count(`SELECT count(*) FROM core.change_obligations WHERE state = 'parked'`))
	reopened, err := r.operator.ReopenObligations(t.Context(), []uuid.UUID{uuid.MustParse(change.ID)})
	require.NoError(t, err)
	require.Equal(t, activities.ReopenResult{Reopened: 1, Changes: []uuid.UUID{uuid.MustParse(change.ID)}}, reopened)
	require.Equal(t, "0 open", r.text(`SELECT attempts || ' ' || state FROM core.change_obligations WHERE state <> 'settled'`))
	_, failed, _ = r.drain(change.ID)
	require.Equal(t, entitlements.MaxAttempts, failed)

	mended := r.ruleChange(ruleChange("extra", "sites", 2))
	_, failed, parked = r.drain(mended.ID)
	require.Zero(t, failed+parked)
	require.Zero(t, r.count(`SELECT count(*) FROM core.change_obligations WHERE state <> 'settled'`), "what the first change owed is settled with it")
	r.reconcile(sub)
	require.Equal(t, "sites=20000020 storage=200 support=true", r.entitlements("org-1"))
	r.ledgerAgrees()
}

// At or below the cap a change that mends what cannot be settled gets through in one transaction.
func TestAMendingChangeSettlesWhatIsOwed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.crowd(small, 1)
	change := r.ruleChange(ruleChange("extra", "sites", entitlements.MaxNumber))
	r.drain(change.ID)
	_, err := r.pool.Exec(t.Context(), `UPDATE core.positions SET status = 'ended', ended_at = core.clock(), ended_act = 'test', end_reason = 'test'
		WHERE source = 'subscription' AND subscription_id <> 'sub_org-1'`)
	require.NoError(t, err)
	done := r.ruleChange(ruleChange("extra", "sites", 2))
	require.Zero(t, done.Owed)
	require.Equal(t, "sites=20000001", r.entitlements("org-1"))
	require.Equal(t, "rule-change-commit", r.text(`SELECT settled_act FROM core.change_obligations b JOIN core.pools p ON p.id = b.pool_id
		JOIN core.organizations o ON o.id = p.organization_id WHERE o.slug = 'org-1'`))
}

// A change at or below the cap that some pool could not be settled by is refused, and changes nothing.
func TestAChangeThatAPoolCannotTakeIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.crowd(5, 1)
	before := r.frozen()
	_, err := r.operator.RuleChange(t.Context(), ruleChange("extra", "sites", entitlements.MaxNumber))
	require.ErrorIs(t, err, entitlements.ErrInvalid)
	require.ErrorContains(t, err, "bigint out of range")
	require.Equal(t, before, r.frozen())
	require.Zero(t, r.count(`SELECT count(*) FROM core.changes`))
}

// A pool that somebody holds is left to the next pass and holds up no other; one that is held for ever is parked in the end.
func TestABusyPoolIsLeftToTheNextPass(t *testing.T) {
	t.Parallel()
	r := newRigWith(t, lockorder.Options{LockTimeout: 200 * time.Millisecond}, pgtest.Setting("deadlock_timeout", "50ms"))
	r.crowd(small, 0)
	change := r.ruleChange(ruleChange("extra", "sites", 5))
	holder, err := r.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = holder.Exec(t.Context(), `SELECT FROM core.pools p JOIN core.organizations o ON o.id = p.organization_id WHERE o.slug = 'org-7' FOR NO KEY UPDATE OF p`)
	require.NoError(t, err)

	got, err := turn(r.db, contract.DrainRequest{ChangeID: change.ID})
	require.NoError(t, err)
	require.Equal(t, contract.DrainTurn{Settled: small - 1, Busy: 1, Open: 1}, got)
	for pass := 4; pass < 4+entitlements.MaxAttempts; pass++ {
		got, err = turn(r.db, contract.DrainRequest{ChangeID: change.ID, Pass: pass})
		require.NoError(t, err)
		require.Equal(t, 1, got.Failed)
	}
	require.Equal(t, []int{0, 1}, []int{got.Open, got.Parked})
	require.NoError(t, holder.Rollback(t.Context()))

	_, err = r.operator.ReopenObligations(t.Context(), nil)
	require.NoError(t, err)
	settled, failed, parked := r.drain(change.ID)
	require.Equal(t, []int{1, 0, 0}, []int{settled, failed, parked})
	require.Equal(t, "sites=6", r.entitlements("org-7"))
}

// A failure that is not the pool's ends the turn as one that may pass; no pool is blamed for it.
func TestALostConnectionBlamesNoPool(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.crowd(small, 0)
	change := r.ruleChange(ruleChange("extra", "sites", 5))
	n := 0
	_, err := turn(r.watched(func() {
		if n++; n == 10 {
			r.endSessions()
		}
	}), contract.DrainRequest{ChangeID: change.ID})
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, activities.ErrTypeConnection, app.Type())
	require.False(t, app.NonRetryable())
	require.Zero(t, r.count(`SELECT count(*) FROM core.change_obligations WHERE attempts > 0`))
	got, err := turn(r.watched(func() {}), contract.DrainRequest{ChangeID: change.ID})
	require.NoError(t, err)
	require.Equal(t, contract.DrainTurn{Settled: small - 10}, got)
}

// watched returns a handle of its own that calls after each transaction.
func (r *rig) watched(each func()) *lockorder.DB {
	r.t.Helper()
	options := db.LockOptions()
	options.Ended = func(lockorder.TxEvent) { each() }
	handle, err := lockorder.Open(r.t.Context(), r.database.URL(), locktest.Watched(options))
	require.NoError(r.t, err)
	r.t.Cleanup(handle.Close)
	return handle
}

// endSessions ends every session of the database but the test's own.
func (r *rig) endSessions() {
	r.t.Helper()
	r.count(`SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
}

// A change of rules while two hundred conferrals run: each of them, and each line of the ledger, has all of the old rules or all of the new.
func TestARuleChangeAmongConferrals(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const conferrals = 200
	r.crowd(conferrals, 0)
	subs := make([]string, conferrals)
	for i := range subs {
		customer := "cus_" + uuid.NewString()[:8]
		_, err := r.operator.LinkCustomer(t.Context(), activities.LinkCustomerRequest{Customer: customer, Organization: fmt.Sprintf("org-%d", i+1)})
		require.NoError(t, err)
		subs[i] = r.subscribe(customer, "silver")
	}
	// Both keys change together, from 5 and 50 to 7 and 70: whoever confers silver has both of one.
	in := ruleChange("silver", "sites", 7)
	in.Deltas = append(in.Deltas, contract.RuleDelta{Key: "storage", Value: json.RawMessage("70")})
	work, changed := make(chan string), make(chan error, 1)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for sub := range work {
				for {
					_, err := r.subs.ReconcileSubscription(context.WithoutCancel(t.Context()), contract.ReconcileRequest{SubscriptionID: sub})
					if err == nil || !retryable(err, activities.ErrTypeBusy, activities.ErrTypeLockTimeout, activities.ErrTypeSubscriptionMoving) {
						if err != nil {
							t.Errorf("%s: %v", sub, err)
						}
						break
					}
				}
			}
		})
	}
	for i, sub := range subs {
		switch i {
		case conferrals / 3:
			go func() {
				_, err := r.operator.RuleChange(context.WithoutCancel(t.Context()), in)
				changed <- err
			}()
		case 2 * conferrals / 3:
			require.NoError(t, <-changed)
		}
		work <- sub
	}
	close(work)
	wait.Wait()
	r.drain(in.Change.String())

	require.Empty(t, r.text(`SELECT format('%s by %s at %s: %s', pool_id, act, at, string_agg(resource_key || '=' || to_value, ' '))
		FROM core.ledger WHERE act <> 'test' AND resource_key IN ('sites', 'storage') GROUP BY pool_id, act, at
		HAVING bool_or(resource_key = 'storage' AND to_value = '50') AND bool_or(resource_key = 'sites' AND to_value NOT IN ('7'))
		    OR bool_or(resource_key = 'storage' AND to_value = '70') AND bool_or(resource_key = 'sites' AND to_value NOT IN ('9'))`), "a line mixes old rules and new")
	require.NotZero(t, r.count(`SELECT count(*) FROM core.ledger WHERE act = 'subscription-reconcile' AND resource_key = 'storage' AND to_value = '50'`), "some conferred by the old rules")
	require.NotZero(t, r.count(`SELECT count(*) FROM core.ledger WHERE act = 'subscription-reconcile' AND resource_key = 'storage' AND to_value = '70'`), "some by the new")
	require.Equal(t, conferrals, r.count(`SELECT count(*) FROM core.pool_entitlements WHERE resource_key = 'sites' AND numeric_value = 9`))
	require.Equal(t, conferrals, r.count(`SELECT count(*) FROM core.pool_entitlements WHERE resource_key = 'storage' AND numeric_value = 70`))
	r.ledgerAgrees()
}

// What a preview tells is what the change and its drain then do, page after page; a pool that could not be settled is told too.
func TestAPreviewTellsWhatHappens(t *testing.T) {
	t.Parallel()
	const pools, broken = 1_100, 2 // more than two pages
	r := newRig(t)
	r.crowd(pools, broken)
	preview := func(in contract.RuleChange) (entitlements.RulePreview, map[string]entitlements.PoolPreview) {
		alter, err := activities.AlterRules(in)
		require.NoError(t, err)
		told := map[string]entitlements.PoolPreview{}
		p, err := alter.Preview(t.Context(), r.db.Reader(), func(one entitlements.PoolPreview) error {
			told[one.Organization] = one
			return nil
		})
		require.NoError(t, err)
		return p, told
	}
	before := r.frozen()
	p, told := preview(ruleChange("extra", "sites", entitlements.MaxNumber))
	require.Equal(t, entitlements.RulePreview{Summary: "set extra: sites 2 → 1000000000000", Pools: pools, Changed: pools, Entitlements: pools - broken, Unsettled: broken}, p)
	require.Len(t, told, pools)
	require.Equal(t, "sites would be 10000000000000000001, which is more than an entitlement can be", told["org-1"].Problem)
	require.Equal(t, []entitlements.ValueChange{{Key: "sites", From: entitlements.Number(3), To: entitlements.Number(1_000_000_000_001)}}, told["org-3"].Changes)
	require.Equal(t, before, r.frozen(), "it writes nothing")

	in := ruleChange("extra", "sites", 7)
	p, told = preview(in)
	require.Equal(t, []int{pools, pools, 0}, []int{p.Pools, p.Changed, p.Unsettled})
	require.False(t, p.AtOnce)
	change := r.ruleChange(in)
	r.drain(change.ID)
	for slug, one := range told {
		require.Len(t, one.Changes, 1)
		require.Equal(t, "sites="+one.Changes[0].To.String(), r.entitlements(slug))
	}
}

// Every change that owes gets a drain; one that cannot be started stops no other, and the failure is told.
func TestStartDrains(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.crowd(small, 0)
	one, two := r.ruleChange(ruleChange("extra", "sites", 5)), r.ruleChange(ruleChange("extra", "sites", 6))
	starter := &drainStarter{refuse: one.ID}
	start := func() (contract.DrainStartResult, error) {
		env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
		drain := &activities.Drain{DB: r.db, Starter: starter}
		env.RegisterActivity(drain)
		value, err := env.ExecuteActivity(drain.StartDrains)
		if err != nil {
			return contract.DrainStartResult{}, err
		}
		var result contract.DrainStartResult
		return result, value.Get(&result)
	}
	_, err := start()
	require.ErrorContains(t, err, "1 of 2 drains could not be started, among them: refused "+one.ID)
	require.Equal(t, []string{two.ID}, starter.started)

	starter.refuse, starter.started = "", nil
	result, err := start()
	require.NoError(t, err)
	require.Equal(t, 2, result.Owing)
	require.ElementsMatch(t, []string{one.ID, two.ID}, starter.started)

	r.drain(one.ID)
	starter.started = nil
	result, err = start()
	require.NoError(t, err)
	require.Zero(t, result.Owing, "the drain of one change settles what the other owes the same pools")
	require.Empty(t, starter.started)
}

type drainStarter struct {
	refuse  string
	started []string
}

func (s *drainStarter) StartDrain(_ context.Context, change string) error {
	if change == s.refuse {
		return fmt.Errorf("refused %s", change)
	}
	s.started = append(s.started, change)
	return nil
}

// A subscription to a product whose tier was removed confers what stands in its place, or nothing, and says so; a tier again, it
// confers itself.
func TestASubscriptionToARemovedTier(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	customer := r.member("acme")
	sub := r.subscribe(customer, "silver")
	remove := func(product, disposition, to string) {
		_, err := r.operator.TierRemove(t.Context(), contract.TierRemove{Change: uuid.New(), Product: product, Disposition: disposition, To: to})
		require.NoError(t, err)
	}
	remove("silver", "migrate", "gold")
	result := r.reconcile(sub)
	require.Equal(t, gold, r.entitlements("acme"))
	require.Contains(t, result.Detail, "1 held as what stands in place of a removed tier")
	require.Equal(t, "gold×1:active", r.held("acme", false))
	require.Equal(t, contract.OutcomeUnchanged, r.reconcile(sub).Outcome, "again it changes nothing")

	remove("gold", "end", "")
	require.Equal(t, free, r.entitlements("acme"))
	result = r.reconcile(sub)
	require.Equal(t, free, r.entitlements("acme"))
	require.Contains(t, result.Detail, "1 not held, the tier having been removed with nothing in its place")
	require.Equal(t, contract.OutcomeUnchanged, result.Outcome)

	_, err := r.operator.TierAdd(t.Context(), contract.TierAdd{Change: uuid.New(), Product: "silver", Ladder: "membership"})
	require.NoError(t, err)
	r.reconcile(sub)
	require.Equal(t, silver, r.entitlements("acme"))
}
