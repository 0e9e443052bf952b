package activities_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/locktest"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows/contract"
)

// grantAct is an act on grants of which the inputs are kept in the Env.
type grantAct func(ctx context.Context, o *activities.Operator, e *locktest.Env) (contract.ActResult, error)

// on makes an act of it. What it answers is the grant's state, or that it was refused: as it is when it was done before.
func on(do grantAct) locktest.Act {
	return func(ctx context.Context, e *locktest.Env) (string, error) {
		result, err := do(ctx, &activities.Operator{DB: e.DB()}, e)
		if errors.Is(err, entitlements.ErrInvalid) {
			return "refused", nil
		}
		var out entitlements.GrantOutcome
		if err == nil {
			err = json.Unmarshal(result.Data, &out)
		}
		return out.Grant.State, err
	}
}

// newGrant is the id that an act makes a grant of: one for each name.
func newGrant(name string) uuid.UUID { return uuid.NewSHA1(uuid.Nil, []byte(name)) }

func kept(e *locktest.Env, name string) uuid.UUID { return uuid.MustParse(e.Get(name)) }

// later is an end that is to come, the same in every run.
func later(year int) *time.Time {
	t := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
	return &t
}

func issueGrant(name, organization, product string) locktest.Act {
	return on(func(ctx context.Context, o *activities.Operator, _ *locktest.Env) (contract.ActResult, error) {
		return o.GrantIssue(ctx, contract.GrantIssue{ID: newGrant(name), Organization: organization, Product: product, Quantity: 1, Until: later(2100), Note: name})
	})
}

func extendGrant(name, grant string, year int) locktest.Act {
	return on(func(ctx context.Context, o *activities.Operator, e *locktest.Env) (contract.ActResult, error) {
		return o.GrantExtend(ctx, contract.GrantExtend{ID: newGrant(name), Grant: kept(e, grant), Until: later(year)})
	})
}

func manageGrant(name, grant string, quantity int64) locktest.Act {
	return on(func(ctx context.Context, o *activities.Operator, e *locktest.Env) (contract.ActResult, error) {
		return o.GrantManage(ctx, contract.GrantManage{ID: newGrant(name), Grant: kept(e, grant), Quantity: &quantity})
	})
}

func assignGrant(name, grant, organization string) locktest.Act {
	return on(func(ctx context.Context, o *activities.Operator, e *locktest.Env) (contract.ActResult, error) {
		return o.GrantManage(ctx, contract.GrantManage{ID: newGrant(name), Grant: kept(e, grant), Organization: organization})
	})
}

func revokeGrant(grant string) locktest.Act {
	return on(func(ctx context.Context, o *activities.Operator, e *locktest.Env) (contract.ActResult, error) {
		return o.GrantRevoke(ctx, contract.GrantRevoke{Grant: kept(e, grant)})
	})
}

func resumeGrant(grant string) locktest.Act {
	return on(func(ctx context.Context, o *activities.Operator, e *locktest.Env) (contract.ActResult, error) {
		return o.GrantResume(ctx, contract.GrantResume{Grant: kept(e, grant)})
	})
}

// sweepGrants runs the activity as a worker does. Where a lock was busy, the next sweep tries again.
func sweepGrants(_ context.Context, e *locktest.Env) (string, error) {
	swept, err := sweep(e.DB())
	if err == nil && swept.Deferred > 0 {
		err = temporal.NewApplicationError("a lock was busy", activities.ErrTypeBusy)
	}
	return fmt.Sprintf("%d expired, %d begun, %d failed", swept.Expired, swept.Begun, swept.Failed), err
}

// quietActivities runs activities as a worker does, and logs nothing.
func quietActivities() *testsuite.TestActivityEnvironment {
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	return suite.NewTestActivityEnvironment()
}

func sweep(db *lockorder.DB) (swept contract.GrantSweep, err error) {
	env := quietActivities()
	grants := &activities.Grants{DB: db}
	env.RegisterActivity(grants)
	value, err := env.ExecuteActivity(grants.SweepGrants, contract.GrantCursor{})
	if err == nil {
		err = value.Get(&swept)
	}
	return swept, err
}

// granted issues a grant to an organisation, "" for none, and keeps it under the product's name.
func (s *scene) granted(organization, product string) uuid.UUID {
	s.t.Helper()
	id := uuid.New()
	_, err := s.operator.GrantIssue(s.t.Context(), contract.GrantIssue{ID: id, Organization: organization, Product: product, Quantity: 1, Until: later(2090)})
	require.NoError(s.t, err)
	s.env.Set(product, id.String())
	return id
}

// past puts the end of grants into the past.
func (s *scene) past(grants ...uuid.UUID) {
	s.exec(`UPDATE core.positions SET starts_at = '2020-01-01', ends_at = '2020-06-01' WHERE grant_id = ANY ($1)`, grants)
	s.exec(`UPDATE core.grants SET starts_at = '2020-01-01', ends_at = '2020-06-01' WHERE id = ANY ($1)`, grants)
}

// begins puts the beginning of grants that were to come into the past.
func (s *scene) begins(organization, product string) {
	id := uuid.New()
	_, err := s.operator.GrantIssue(s.t.Context(), contract.GrantIssue{ID: id, Organization: organization, Product: product, Quantity: 1, From: later(2080)})
	require.NoError(s.t, err)
	s.exec(`UPDATE core.positions SET starts_at = '2021-01-01' WHERE grant_id = $1`, id)
	s.exec(`UPDATE core.grants SET starts_at = '2021-01-01' WHERE id = $1`, id)
}

// exec runs statements past the product.
func (s *scene) exec(sql string, args ...any) {
	s.t.Helper()
	conn, err := s.env.Conn(s.t.Context())
	require.NoError(s.t, err)
	_, err = conn.Exec(s.t.Context(), sql, args...)
	require.NoError(s.t, err)
	require.NoError(s.t, conn.Close(s.t.Context()))
}

// Every act on grants, and their sweep, killed anywhere and run again, ends where it would have ended undisturbed.
func TestCrashGrants(t *testing.T) {
	given := func(grants ...string) func(testing.TB, *locktest.Env) {
		return set(func(s *scene) {
			s.organization("acme")
			for _, product := range grants {
				s.granted("acme", product)
			}
		})
	}
	unassigned := set(func(s *scene) {
		s.organization("acme")
		s.granted("", "gold")
	})
	for name, s := range map[string]locktest.Scenario{
		"issue":            {Act: issueGrant("new", "acme", "gold"), Setup: given("silver")},
		"issue for nobody": {Act: issueGrant("new", "", "gold"), Setup: given()},
		"extend":           {Act: extendGrant("new", "gold", 2110), Setup: given("gold")},
		"extend waiting":   {Act: extendGrant("new", "silver", 2110), Setup: given("gold", "silver")},
		"manage":           {Act: manageGrant("new", "gold", 3), Setup: given("gold")},
		"assign":           {Act: assignGrant("new", "gold", "acme"), Setup: unassigned},
		"revoke":           {Act: revokeGrant("gold"), Setup: given("silver", "gold")},
		"revoke nobody's":  {Act: revokeGrant("gold"), Setup: unassigned},
		"resume":           {Act: resumeGrant("gold"), Setup: given("gold")},
		"sweep": {Act: sweepGrants, Setup: set(func(s *scene) {
			s.organization("acme")
			s.organization("tern")
			s.granted("acme", "silver")
			s.past(s.granted("acme", "gold"), s.granted("", "extra"))
			s.begins("tern", "silver")
		})},
		"sweep with a failure": {Act: sweepGrants, Setup: set(func(s *scene) {
			s.organization("acme")
			s.organization("tern")
			s.past(s.granted("acme", "gold"), s.granted("tern", "gold"))
			s.failing("acme")
		})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.Crash(t, s)
		})
	}
}

// failing has whatever would write the ledger of an organisation's pool fail.
func (s *scene) failing(organization string) {
	s.exec(fmt.Sprintf(`CREATE FUNCTION core.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF EXISTS (SELECT FROM core.pools p JOIN core.organizations o ON o.id = p.organization_id WHERE p.id = NEW.pool_id AND o.slug = '%s') THEN
			RAISE EXCEPTION 'this pool cannot be settled';
		END IF;
		RETURN NEW; END $$;
		CREATE TRIGGER refuse BEFORE INSERT ON core.ledger FOR EACH ROW EXECUTE FUNCTION core.refuse()`, organization))
}

// Acts on grants that run at once, also with others on the same pool, end as they would one after the other.
func TestInterleaveGrants(t *testing.T) {
	member := func(stage func(*scene)) func(testing.TB, *locktest.Env) {
		return set(func(s *scene) {
			s.organization("acme")
			stage(s)
		})
	}
	for name, i := range map[string]locktest.Interleaving{
		"two extenders": {
			Setup:  member(func(s *scene) { s.granted("acme", "gold") }),
			Actors: []locktest.Actor{{Name: "one", Act: extendGrant("one", "gold", 2110)}, {Name: "other", Act: extendGrant("other", "gold", 2120)}},
		},
		"two extenders of nobody's": {
			Setup:  member(func(s *scene) { s.granted("", "gold") }),
			Actors: []locktest.Actor{{Name: "one", Act: extendGrant("one", "gold", 2110)}, {Name: "other", Act: extendGrant("other", "gold", 2120)}},
		},
		"extend and revoke": {
			Setup:  member(func(s *scene) { s.granted("acme", "gold") }),
			Actors: []locktest.Actor{{Name: "extend", Act: extendGrant("new", "gold", 2110)}, {Name: "revoke", Act: revokeGrant("gold")}},
		},
		"two changes": {
			Setup:  member(func(s *scene) { s.granted("acme", "extra") }),
			Actors: []locktest.Actor{{Name: "two", Act: manageGrant("two", "extra", 2)}, {Name: "three", Act: manageGrant("three", "extra", 3)}},
		},
		"assign and revoke": {
			Setup:  member(func(s *scene) { s.granted("", "gold") }),
			Actors: []locktest.Actor{{Name: "assign", Act: assignGrant("new", "gold", "acme")}, {Name: "revoke", Act: revokeGrant("gold")}},
		},
		"assign to two": {
			Setup: member(func(s *scene) {
				s.organization("tern")
				s.granted("", "gold")
			}),
			Actors: []locktest.Actor{{Name: "acme", Act: assignGrant("acme", "gold", "acme")}, {Name: "tern", Act: assignGrant("tern", "gold", "tern")}},
		},
		"issues of one id": {
			Setup:  member(func(*scene) {}),
			Actors: []locktest.Actor{{Name: "one", Act: issueGrant("new", "", "gold")}, {Name: "again", Act: issueGrant("new", "", "gold")}},
			Waits:  []string{"INSERT INTO core.grants"},
		},
		"issue, revoke and sweep on one pool": {
			Setup: member(func(s *scene) {
				s.granted("acme", "silver")
				s.past(s.granted("acme", "gold"))
			}),
			Actors: []locktest.Actor{{Name: "issue", Act: issueGrant("new", "acme", "gold")}, {Name: "revoke", Act: revokeGrant("silver")}, {Name: "sweep", Act: sweepGrants}},
		},
		"two sweeps and an extension of what is due": {
			Setup: member(func(s *scene) {
				s.past(s.granted("acme", "gold"))
				s.begins("acme", "silver")
			}),
			Actors: []locktest.Actor{{Name: "sweep", Act: quiet(sweepGrants)}, {Name: "another", Act: quiet(sweepGrants)}, {Name: "extend", Act: extendGrant("new", "gold", 2110)}},
		},
		"issue and the end of a subscription": {
			Setup: set(func(s *scene) {
				s.reconcile(s.subscribed("subscription", s.member("acme"), "gold"))
				s.status(s.env.Get("subscription"), "canceled")
			}),
			Actors: []locktest.Actor{{Name: "issue", Act: issueGrant("new", "acme", "silver")}, {Name: "reconcile", Act: reconcileOf("subscription")}},
		},
		"issue and a rule change": {
			Setup: member(func(s *scene) { s.granted("acme", "silver") }),
			Actors: []locktest.Actor{
				{Name: "issue", Act: issueGrant("new", "acme", "gold")},
				{Name: "apply", Act: quiet(applyCatalogue(`sets: [{id: gold, rules: {sites: 30, storage: 200, support: true}}, {id: silver, rules: {sites: 6, storage: 50}}]`))},
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
