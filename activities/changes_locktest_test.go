package activities_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/locktest"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows/contract"
)

// changeID is the id of a change that acts make: one for each name.
func changeID(name string) uuid.UUID { return uuid.NewSHA1(uuid.Nil, []byte("change "+name)) }

// alter changes a rule. What it answers is what was done, or that it was refused: as it is when it stands already.
func alter(name, set, key string, value any) locktest.Act {
	return func(ctx context.Context, e *locktest.Env) (string, error) {
		in := ruleChange(set, key, value)
		in.Change = changeID(name)
		_, err := (&activities.Operator{DB: e.DB()}).RuleChange(ctx, in)
		if errors.Is(err, entitlements.ErrInvalid) || errors.Is(err, entitlements.ErrInProgress) {
			return "refused", nil
		}
		return "done", err
	}
}

// drainOnce is a pass over what the change "owing" owes.
func drainOnce(_ context.Context, e *locktest.Env) (string, error) {
	_, err := turn(e.DB(), contract.DrainRequest{ChangeID: changeID("owing").String()})
	return "", err
}

// reopenAll reopens what is parked.
func reopenAll(ctx context.Context, e *locktest.Env) (string, error) {
	_, err := (&activities.Operator{DB: e.DB()}).ReopenObligations(ctx, nil)
	return "", err
}

// owing has the organisations owe what a change above the cap left: extra gives as much as can be.
func (s *scene) owing(organizations ...string) {
	s.t.Helper()
	conn, err := s.env.Conn(s.t.Context())
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, conn.Close(context.WithoutCancel(s.t.Context()))) }()
	for _, sql := range []string{
		`UPDATE core.set_rules SET numeric_value = 1000000000000 WHERE set_id = (SELECT id FROM core.entitlement_sets WHERE slug = 'extra') AND $1::uuid IS NOT NULL AND $2::text[] IS NOT NULL`,
		`INSERT INTO core.changes (id, kind, summary, act, committed_at, owed) VALUES ($1, 'rules', 'extra gives more', 'rule-change-commit', core.clock(), cardinality($2::text[]))`,
		`INSERT INTO core.change_obligations (pool_id, change_id) SELECT p.id, $1 FROM core.pools p JOIN core.organizations o ON o.id = p.organization_id WHERE o.slug = ANY ($2::text[])`,
	} {
		_, err := conn.Exec(s.t.Context(), sql, changeID("owing"), organizations)
		require.NoError(s.t, err)
	}
}

// extras gives an organisation a subscription to one extra; or to more than a rule of the greatest value can be of.
func (s *scene) extras(slug string, broken bool) {
	s.t.Helper()
	customer := s.member(slug)
	s.reconcile(s.subscribed(slug, customer, "extra"))
	if !broken {
		return
	}
	conn, err := s.env.Conn(s.t.Context())
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, conn.Close(context.WithoutCancel(s.t.Context()))) }()
	_, err = conn.Exec(s.t.Context(), `INSERT INTO core.positions (pool_id, product_id, source, subscription_id, item_id, quantity, status, starts_at, created_act)
		SELECT x.pool_id, x.product_id, x.source, 'sub_many', 'si_many_' || i, 1000000, 'active', core.clock(), 'test' FROM core.positions x, generate_series(1, 10) i WHERE x.subscription_id = $1`, s.env.Get(slug))
	require.NoError(s.t, err)
	require.NoError(s.t, s.db.Run(s.t.Context(), lockorder.Spec{Path: "test-settle", Kind: lockorder.Materializing}, func(ctx context.Context, tx *lockorder.Tx) error {
		pools, err := entitlements.PoolsOfSubscription(ctx, tx, "sub_many")
		if err != nil {
			return err
		}
		if err := entitlements.LockPools(ctx, tx, pools...); err != nil {
			return err
		}
		_, err = entitlements.Settle(ctx, tx, entitlements.Act{Name: "test"}, pools...)
		return err
	}))
}

// many makes more organisations than the cap, each with an extra.
func (s *scene) many() {
	s.t.Helper()
	conn, err := s.env.Conn(s.t.Context())
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, conn.Close(context.WithoutCancel(s.t.Context()))) }()
	tx, err := conn.Begin(s.t.Context())
	require.NoError(s.t, err)
	for _, sql := range crowdSQL {
		_, err := tx.Exec(s.t.Context(), sql, small, 0)
		require.NoError(s.t, err)
	}
	require.NoError(s.t, tx.Commit(s.t.Context()))
}

func TestCrashOfChanges(t *testing.T) {
	for name, s := range map[string]locktest.Scenario{
		"a change that settles all itself": {Act: alter("one", "extra", "sites", 5), Setup: set(func(s *scene) { s.extras("acme", false) })},
		"a change that takes a rule away":  {Act: alter("one", "extra", "sites", nil), Setup: set(func(s *scene) { s.extras("acme", false) })},
		"a change that mends what is owed": {Act: alter("one", "extra", "sites", 5), Setup: set(func(s *scene) {
			s.extras("acme", true)
			s.owing("acme")
		})},
		"a change that leaves pools owed": {Act: alter("one", "extra", "sites", 5), Setup: set((*scene).many)},
		"a drain with a pool that fails": {Act: drainOnce, Setup: set(func(s *scene) {
			s.extras("acme", false)
			s.extras("broken", true)
			s.owing("acme", "broken")
		})},
		"a conferral on a pool that is owed": {Act: reconcileOf("subscription"), Setup: set(func(s *scene) {
			s.extras("acme", false)
			s.subscribed("subscription", customerOf(s, "acme"), "gold")
			s.owing("acme")
		})},
		"what is parked reopened": {Act: reopenAll, Setup: set(func(s *scene) {
			s.extras("broken", true)
			s.owing("broken")
			s.park()
		})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.Crash(t, s)
		})
	}
}

// customerOf returns the customer whose subscription to extras is kept under the organisation's name.
func customerOf(s *scene, slug string) string {
	sub, ok := s.stripe.GetSubscription(s.env.Get(slug))
	require.True(s.t, ok)
	return sub.Customer
}

// park drains until nothing is open.
func (s *scene) park() {
	s.t.Helper()
	for range entitlements.MaxAttempts {
		_, err := drainOnce(s.t.Context(), s.env)
		require.NoError(s.t, err)
	}
}

func TestInterleaveChanges(t *testing.T) {
	owed := func(more func(*scene)) func(testing.TB, *locktest.Env) {
		return set(func(s *scene) {
			s.extras("acme", false)
			s.subscribed("subscription", customerOf(s, "acme"), "gold")
			s.owing("acme")
			if more != nil {
				more(s)
			}
		})
	}
	for name, i := range map[string]locktest.Interleaving{
		"a change of rules and a reconcile": {
			Setup: set(func(s *scene) {
				s.extras("acme", false)
				s.subscribed("subscription", customerOf(s, "acme"), "gold")
			}),
			Actors:    []locktest.Actor{{Name: "change", Act: alter("one", "extra", "sites", 5)}, {Name: "reconcile", Act: reconcileOf("subscription")}},
			Schedules: 30,
		},
		"two changes of one rule": {
			Setup: set(func(s *scene) { s.extras("acme", false) }),
			Actors: []locktest.Actor{
				{Name: "five", Act: alter("five", "extra", "sites", 5)}, {Name: "six", Act: alter("six", "extra", "sites", 6)},
			},
			Schedules: 30,
		},
		"a drain and a reconcile":  {Setup: owed(nil), Actors: []locktest.Actor{{Name: "drain", Act: drainOnce}, {Name: "reconcile", Act: reconcileOf("subscription")}}},
		"two drains of one change": {Setup: owed(nil), Actors: []locktest.Actor{{Name: "one", Act: drainOnce}, {Name: "other", Act: drainOnce}}},
		"a drain and a mending change": {
			Setup: set(func(s *scene) {
				s.extras("broken", true)
				s.owing("broken")
			}),
			Actors:    []locktest.Actor{{Name: "drain", Act: drainOnce}, {Name: "mend", Act: alter("mend", "extra", "sites", 5)}},
			Schedules: 30,
		},
		"a failure that is noted twice": {
			Setup: set(func(s *scene) {
				s.extras("broken", true)
				s.owing("broken")
			}),
			Actors: []locktest.Actor{{Name: "one", Act: drainOnce}, {Name: "other", Act: drainOnce}},
		},
		"a drain, a reconcile and a change": {
			Setup: owed(nil),
			Actors: []locktest.Actor{
				{Name: "drain", Act: drainOnce}, {Name: "reconcile", Act: reconcileOf("subscription")}, {Name: "change", Act: alter("one", "extra", "sites", 5)},
			},
			Schedules: 30,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i.Again = again
			locktest.Interleave(t, i)
		})
	}
}
