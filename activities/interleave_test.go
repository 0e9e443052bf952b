package activities_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/internal/catalog"
	"github.com/bursarhq/bursar/internal/locktest"
	"github.com/bursarhq/bursar/internal/stripeapi/standin"
)

// Acts that run at once end as they would one after the other.
func TestInterleave(t *testing.T) {
	resubscribed := set(func(s *scene) {
		id := s.subscribed("subscription", s.member("acme"), "silver")
		s.reconcile(id)
		s.change(id, toPrice("gold"))
	})
	for name, i := range map[string]locktest.Interleaving{
		"two reconciles of one subscription": {
			Setup: set(func(s *scene) { s.subscribed("subscription", s.member("acme"), "silver", "extra") }),
			Actors: []locktest.Actor{
				{Name: "reconcile", Act: reconcileOf("subscription")}, {Name: "another", Act: reconcileFor("subscription", "evt_another")},
			},
		},
		"two subscriptions on one pool": {
			Setup: set(func(s *scene) {
				customer := s.member("acme")
				upgraded, cancelled := s.subscribed("upgraded", customer, "silver"), s.subscribed("cancelled", customer, "silver", "extra")
				s.reconcile(upgraded)
				s.reconcile(cancelled)
				s.change(upgraded, toPrice("gold"))
				s.status(cancelled, "canceled")
			}),
			Actors: []locktest.Actor{{Name: "upgrade", Act: reconcileOf("upgraded")}, {Name: "cancel", Act: reconcileOf("cancelled")}},
		},
		"three subscriptions on one pool": {
			Setup: set(func(s *scene) {
				customer := s.member("acme")
				s.reconcile(s.subscribed("suspended", customer, "silver"))
				s.status(s.env.Get("suspended"), "unpaid")
				s.reconcile(s.subscribed("cancelled", customer, "gold"))
				s.status(s.env.Get("cancelled"), "canceled")
				s.subscribed("new", customer, "silver", "extra")
			}),
			Actors: []locktest.Actor{
				{Name: "suspend", Act: reconcileOf("suspended")}, {Name: "cancel", Act: reconcileOf("cancelled")}, {Name: "begin", Act: reconcileOf("new")},
			},
		},
		"reconcile and link": {
			Setup: set(func(s *scene) {
				s.organization("acme")
				customer := s.stripe.PutCustomer(standin.Customer{Name: "acme"}).ID
				s.env.Set("customer", customer)
				s.subscribed("subscription", customer, "gold")
			}),
			Actors: []locktest.Actor{{Name: "reconcile", Act: reconcileOf("subscription")}, {Name: "link", Act: linkTo("acme")}},
		},
		"reconcile and checkout": {
			Setup: set(func(s *scene) {
				s.organization("acme")
				s.checkedOut("acme")
			}),
			Actors: []locktest.Actor{{Name: "reconcile", Act: reconcileOf("subscription")}, {Name: "link", Act: linkFromCheckout}},
		},
		"checkout and link to another": {
			Setup: set(func(s *scene) {
				s.organization("acme")
				s.organization("tern")
				s.checkedOut("acme")
			}),
			Actors: []locktest.Actor{{Name: "checkout", Act: linkFromCheckout}, {Name: "link", Act: linkTo("tern")}},
		},
		"reconcile and rule change": {
			Setup: resubscribed,
			Actors: []locktest.Actor{
				{Name: "reconcile", Act: reconcileOf("subscription")},
				{Name: "apply", Act: applyCatalogue(`sets: [{id: gold, rules: {sites: 30, storage: 200, support: true}}, {id: silver, rules: {sites: 6, storage: 50}}]`)},
			},
			Schedules: 30,
		},
		"reconcile and mapping change": {
			Setup: resubscribed,
			Actors: []locktest.Actor{
				{Name: "reconcile", Act: reconcileOf("subscription")},
				{Name: "apply", Act: applyCatalogue(`products: [{id: silver, name: Silver, sets: [silver], stripe: {prices: [price_gold]}}]`)},
			},
			Schedules: 30,
		},
		"reconcile and park": {
			Setup:  resubscribed,
			Actors: []locktest.Actor{{Name: "reconcile", Act: reconcileOf("subscription")}, {Name: "park", Act: parkSubscription}},
		},
		"request for a retry and the reconcile that resolves": {
			Setup: set(func(s *scene) {
				s.subscribed("subscription", s.member("acme"), "silver")
				_, err := parkSubscription(s.t.Context(), s.env)
				require.NoError(s.t, err)
			}),
			Actors: []locktest.Actor{{Name: "request", Act: requestRetry}, {Name: "reconcile", Act: reconcileOf("subscription")}},
		},
		"two requests for retries and a reconcile": {
			Setup: set(func(s *scene) { s.parkTwo() }),
			Actors: []locktest.Actor{
				{Name: "up", Act: requestRetriesOf("subscription", "second")}, {Name: "down", Act: requestRetriesOf("second", "subscription")},
				{Name: "reconcile", Act: reconcileOf("second")},
			},
		},
		"two links of one customer": {
			Setup: set(func(s *scene) {
				s.organization("acme")
				s.organization("tern")
				s.env.Set("customer", s.stripe.PutCustomer(standin.Customer{Name: "acme"}).ID)
			}),
			Actors: []locktest.Actor{{Name: "acme", Act: linkTo("acme")}, {Name: "tern", Act: linkTo("tern")}},
		},
		"two organisations of one slug": {
			Setup:  set(nil),
			Actors: []locktest.Actor{{Name: "one", Act: createOrganization}, {Name: "other", Act: createOrganization}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if i.Again == nil {
				i.Again = again
			}
			locktest.Interleave(t, i)
		})
	}
}

// Stripe changes while a reconcile is under way, and the event of that change leads to another: what was read before never stands
// in the end. Stripe goes back where it was before each run.
func TestInterleaveChangesAtStripe(t *testing.T) {
	for name, c := range map[string]struct {
		known  bool // a reconcile has seen the subscription before
		change func(*scene, string)
	}{
		"upgrade":      {false, func(s *scene, id string) { s.change(id, toPrice("gold")) }},
		"suspension":   {false, func(s *scene, id string) { s.status(id, "unpaid") }},
		"end":          {true, func(s *scene, id string) { s.status(id, "canceled") }},
		"another mode": {true, func(s *scene, id string) { require.NoError(s.t, s.stripe.SetLivemode(id, true)) }}, // it is parked
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s *scene
			var before standin.Subscription
			locktest.Interleave(t, locktest.Interleaving{
				Setup: func(t testing.TB, e *locktest.Env) {
					s = newScene(t, e, func(s *scene) {
						id := s.subscribed("subscription", s.member("acme"), "silver")
						before, _ = s.stripe.GetSubscription(id)
						if c.known {
							s.reconcile(id)
						}
					})
				},
				Reset: func(context.Context, *locktest.Env) error {
					_, err := s.stripe.PutSubscription(before)
					return err
				},
				Actors: []locktest.Actor{
					{Name: "reconcile", Act: quiet(reconcileOf("subscription"))},
					{Name: "change", Act: func(ctx context.Context, e *locktest.Env) (string, error) {
						e.Step("Stripe changes")
						c.change(s, before.ID)
						return quiet(reconcileFor("subscription", "evt_change"))(ctx, e)
					}},
				},
				Again: again,
			})
		})
	}
}

// quiet answers nothing: which of two reconciles applies a change that Stripe made before both is open.
func quiet(act locktest.Act) locktest.Act {
	return func(ctx context.Context, e *locktest.Env) (string, error) {
		_, err := act(ctx, e)
		return "", err
	}
}

// applyCatalogue plans and applies a file, as the command does; what is in the database and not in the file stays.
func applyCatalogue(text string) locktest.Act {
	return func(ctx context.Context, e *locktest.Env) (string, error) {
		f, err := catalog.Parse("catalog.yaml", []byte(text))
		if err != nil {
			return "", err
		}
		shown, err := catalog.Plan(ctx, e.DB(), f)
		if err != nil {
			return "", err
		}
		done, err := catalog.Apply(ctx, e.DB(), f, shown)
		return fmt.Sprintf("%d changes in %d pools, %d moved, %d effects", len(done.Changes), done.Pools, done.Moved, len(done.Effects)), err
	}
}
