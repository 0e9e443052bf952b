package activities_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/locktest"
	"github.com/bursarhq/bursar/workflows/contract"
)

// planSQL adds a type whose default gives an allowance of 10 of a key without a window.
const planSQL = `
INSERT INTO core.resource_keys (key, kind, aggregation) VALUES ('seats', 'numeric', 'sum');
INSERT INTO core.entitlement_sets (slug, name) VALUES ('plan', 'Plan');
INSERT INTO core.set_rules (set_id, resource_key, kind, numeric_value) SELECT id, 'seats', 'numeric', 10 FROM core.entitlement_sets WHERE slug = 'plan';
INSERT INTO core.products (slug, name) VALUES ('plan', 'Plan');
INSERT INTO core.product_sets (product_id, set_id) SELECT p.id, s.id FROM core.products p, core.entitlement_sets s WHERE p.slug = 'plan' AND s.slug = 'plan';
INSERT INTO core.organization_types (slug, name, default_product_id) SELECT 'planned', 'Planned', id FROM core.products WHERE slug = 'plan';`

// planned makes an organisation that has the allowance, and does what the test finds done.
func planned(done ...locktest.Act) func(testing.TB, *locktest.Env) {
	return func(t testing.TB, e *locktest.Env) {
		newScene(t, e, func(s *scene) {
			conn, err := e.Conn(t.Context())
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), planSQL)
			require.NoError(t, err)
			require.NoError(t, conn.Close(t.Context()))
			org, err := s.operator.CreateOrganization(t.Context(), activities.NewOrganizationRequest{Slug: "acme", Name: "Acme", Type: "planned"})
			require.NoError(t, err)
			e.Set("pool", org.DefaultPool.String())
			for _, act := range done {
				_, err := act(t.Context(), e)
				require.NoError(t, err)
			}
		})
	}
}

func seatsOf(e *locktest.Env) contract.UsageSpend {
	return contract.UsageSpend{Pool: uuid.MustParse(e.Get("pool")), Key: "seats"}
}

// told is an act's outcome without the moment that it was done at.
func told(r contract.ActResult, err error, keys ...string) (string, error) {
	if err != nil {
		return "", err
	}
	var data map[string]any
	if err := json.Unmarshal(r.Data, &data); err != nil {
		return "", err
	}
	out := ""
	for _, k := range keys {
		out += fmt.Sprintf("%s %v ", k, data[k])
	}
	return out, nil
}

// spendSeats spends under an id. That it was exhausted, and how, is an answer.
func spendSeats(id string, n int64) locktest.Act {
	return func(ctx context.Context, e *locktest.Env) (string, error) {
		in := seatsOf(e)
		in.ID, in.N = id, n
		r, err := (&activities.Operator{DB: e.DB()}).UsageSpend(ctx, in)
		var exhausted *entitlements.Exhausted
		if errors.As(err, &exhausted) {
			return fmt.Sprintf("exhausted, %d left", exhausted.Left), nil
		}
		return told(r, err, "n", "used", "left")
	}
}

func releaseSeats(id string, keep int64) locktest.Act {
	return func(ctx context.Context, e *locktest.Env) (string, error) {
		r, err := (&activities.Operator{DB: e.DB()}).UsageRelease(ctx, contract.UsageRelease{Pool: seatsOf(e).Pool, Key: "seats", ID: id, Keep: keep})
		if errors.Is(err, entitlements.ErrNotFound) {
			return "not spent", nil
		}
		return told(r, err, "freed", "kept", "used")
	}
}

func raiseSeats(to int64) locktest.Act {
	return func(ctx context.Context, e *locktest.Env) (string, error) {
		r, err := (&activities.Operator{DB: e.DB()}).UsageRaise(ctx, contract.UsageAdjust{Pool: seatsOf(e).Pool, Key: "seats", To: to})
		return told(r, err, "was", "used")
	}
}

func boundSeats(to int64) locktest.Act {
	return func(ctx context.Context, e *locktest.Env) (string, error) {
		r, err := (&activities.Operator{DB: e.DB()}).UsageBound(ctx, contract.UsageAdjust{Pool: seatsOf(e).Pool, Key: "seats", To: to})
		return told(r, err, "was", "used")
	}
}

func TestCrashUsage(t *testing.T) {
	for name, s := range map[string]locktest.Scenario{
		"spend, of a counter that is not there yet": {Setup: planned(), Act: spendSeats("a", 3)},
		"spend":              {Setup: planned(spendSeats("before", 4)), Act: spendSeats("a", 3)},
		"spend what is left": {Setup: planned(spendSeats("before", 4)), Act: spendSeats("a", 6)},
		"exhausted":          {Setup: planned(spendSeats("before", 9)), Act: spendSeats("a", 3)},
		"repeat":             {Setup: planned(spendSeats("a", 3)), Act: spendSeats("a", 3)},
		"release":            {Setup: planned(spendSeats("a", 3)), Act: releaseSeats("a", 0)},
		"release a part":     {Setup: planned(spendSeats("a", 3), spendSeats("b", 1)), Act: releaseSeats("a", 1)},
		"raise":              {Setup: planned(spendSeats("a", 3)), Act: raiseSeats(7)},
		"raise from nothing": {Setup: planned(), Act: raiseSeats(7)},
		"bound":              {Setup: planned(spendSeats("a", 8)), Act: boundSeats(2)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.Crash(t, s)
		})
	}
}

func TestInterleaveUsage(t *testing.T) {
	for name, i := range map[string]locktest.Interleaving{
		"two spends of what is left for one": {
			Setup:  planned(spendSeats("before", 5)),
			Actors: []locktest.Actor{{Name: "one", Act: spendSeats("one", 3)}, {Name: "other", Act: spendSeats("other", 3)}},
		},
		"two spends of a counter that is not there yet": {
			Setup:  planned(),
			Actors: []locktest.Actor{{Name: "one", Act: spendSeats("one", 3)}, {Name: "other", Act: spendSeats("other", 4)}},
		},
		"a spend from two places": {
			Setup:  planned(spendSeats("before", 5)),
			Actors: []locktest.Actor{{Name: "one", Act: spendSeats("a", 3)}, {Name: "other", Act: spendSeats("a", 3)}},
		},
		"a spend, its repeat and another": {
			Setup: planned(spendSeats("before", 5)),
			Actors: []locktest.Actor{
				{Name: "one", Act: spendSeats("a", 3)}, {Name: "again", Act: spendSeats("a", 3)}, {Name: "other", Act: spendSeats("b", 3)},
			},
		},
		"a spend and a release that makes room": {
			Setup:  planned(spendSeats("before", 9)),
			Actors: []locktest.Actor{{Name: "spend", Act: spendSeats("a", 3)}, {Name: "release", Act: releaseSeats("before", 4)}},
		},
		"a spend and its release": {
			Setup:  planned(),
			Actors: []locktest.Actor{{Name: "spend", Act: spendSeats("a", 3)}, {Name: "release", Act: releaseSeats("a", 0)}},
		},
		"two releases and a bound": {
			Setup: planned(spendSeats("a", 6), spendSeats("b", 4)),
			Actors: []locktest.Actor{
				{Name: "whole", Act: releaseSeats("a", 0)}, {Name: "part", Act: releaseSeats("a", 2)}, {Name: "bound", Act: boundSeats(3)},
			},
		},
		"a raise and a spend": {
			Setup:  planned(),
			Actors: []locktest.Actor{{Name: "raise", Act: raiseSeats(8)}, {Name: "spend", Act: spendSeats("a", 3)}},
		},
		"a spend and a lowered limit": {
			Setup: planned(spendSeats("before", 5)),
			Actors: []locktest.Actor{
				{Name: "spend", Act: spendSeats("a", 3)},
				{Name: "apply", Act: applyCatalogue(`sets: [{id: plan, rules: {seats: 6}}]`)},
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

// An exhausted allowance ends an act for good, and says what is left.
func TestUsageAsTemporalSeesIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, err := r.database.Pool(t).Exec(t.Context(), planSQL)
	require.NoError(t, err)
	org, err := r.operator.CreateOrganization(t.Context(), activities.NewOrganizationRequest{Slug: "acme", Name: "Acme", Type: "planned"})
	require.NoError(t, err)
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	env.RegisterActivity(r.operator)
	spend := func(key, id string, n int64) (result contract.ActResult, failure *temporal.ApplicationError) {
		value, err := env.ExecuteActivity(r.operator.UsageSpend, contract.UsageSpend{Pool: org.DefaultPool, Key: key, ID: id, N: n})
		if err != nil {
			require.ErrorAs(t, err, &failure)
			require.True(t, failure.NonRetryable())
			return result, failure
		}
		require.NoError(t, value.Get(&result))
		return result, nil
	}
	_, failed := spend("seats", "a", 11)
	require.Equal(t, activities.ErrTypeExhausted, failed.Type())
	require.Equal(t, fmt.Sprintf("seats of pool %s: 11 asked for, 10 left of 10", org.DefaultPool), failed.Message())
	_, failed = spend("seat", "a", 1)
	require.Equal(t, activities.ErrTypeNotFound, failed.Type())
	_, failed = spend("seats", "", 1)
	require.Equal(t, activities.ErrTypeInvalidArgument, failed.Type())
	result, _ := spend("seats", "a", 4)
	require.Equal(t, "Spent 4 of seats: 4 used, 6 left of 10", result.Detail)
	require.Nil(t, result.Change)
	again, _ := spend("seats", "a", 4)
	require.Contains(t, again.Detail, "Spend a of seats stands already: it took 4, at ")
}
