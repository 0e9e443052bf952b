package activities_test

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/internal/locktest"
	"github.com/bursarhq/bursar/internal/stripeapi/standin"
)

// Every activity, killed anywhere and run again, ends where it would have ended undisturbed.
func TestCrash(t *testing.T) {
	for name, s := range map[string]locktest.Scenario{
		"active for the first time": {Act: reconcileOf("subscription"), Setup: set(func(s *scene) {
			s.subscribed("subscription", s.member("acme"), "silver", "extra")
		})},
		"upgrade": {Act: reconcileOf("subscription"), Setup: set(func(s *scene) {
			id := s.subscribed("subscription", s.member("acme"), "silver", "extra")
			s.reconcile(id)
			s.change(id, func(sub *standin.Subscription) {
				toPrice("gold")(sub)
				sub.Items = sub.Items[:1]
			})
		})},
		"suspended": {Act: reconcileOf("subscription"), Setup: set(func(s *scene) {
			id := s.subscribed("subscription", s.member("acme"), "silver")
			s.reconcile(id)
			s.status(id, "unpaid")
		})},
		"ended": {Act: reconcileOf("subscription"), Setup: set(func(s *scene) {
			id := s.subscribed("subscription", s.member("acme"), "gold")
			s.reconcile(id)
			s.status(id, "canceled")
		})},
		"unknown customer": {Act: reconcileOf("subscription"), Setup: set(func(s *scene) {
			s.subscribed("subscription", s.stripe.PutCustomer(standin.Customer{Name: "acme"}).ID, "gold")
		})},
		"unmapped": {Act: reconcileOf("subscription"), Setup: set(func(s *scene) {
			s.subscribed("subscription", s.member("acme"), "silver", "strange")
		})},
		"freed": {Act: reconcileOf("subscription"), Setup: set(func(s *scene) {
			customer := s.stripe.PutCustomer(standin.Customer{Name: "acme"}).ID
			s.reconcile(s.subscribed("subscription", customer, "gold"))
			s.organization("acme")
			s.link(customer, "acme")
		})},
		"unknown to Stripe": {Act: reconcileOf("subscription"), Setup: set(func(s *scene) {
			id := s.subscribed("subscription", s.member("acme"), "silver")
			s.reconcile(id)
			s.stripe.Forget(id)
		})},
		"park": {Act: parkSubscription, Setup: set(func(s *scene) {
			s.reconcile(s.subscribed("subscription", s.member("acme"), "silver"))
		})},
		"park the unseen": {Act: parkSubscription, Setup: set(func(s *scene) { s.env.Set("subscription", "sub_unseen") })},
		"link from checkout": {Act: linkFromCheckout, Setup: set(func(s *scene) {
			s.organization("acme")
			s.checkedOut("acme")
		})},
		"checkout of nobody":  {Act: linkFromCheckout, Setup: set(func(s *scene) { s.checkedOut("nobody") })},
		"create organization": {Act: createOrganization, Setup: set(nil)},
		"link customer": {Act: linkTo("acme"), Setup: set(func(s *scene) {
			s.organization("acme")
			s.env.Set("customer", s.stripe.PutCustomer(standin.Customer{Name: "acme"}).ID)
		})},
		"request retry": {Act: requestRetries, Setup: set(func(s *scene) { s.parkTwo() })},
		"retry parked":  crashOfRetryParked(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.Crash(t, s)
		})
	}
}

// crashOfRetryParked signals two subscriptions by HTTP. A signal may come twice, and none may be lost.
func crashOfRetryParked() locktest.Scenario {
	var mu sync.Mutex
	signalled := map[string]bool{}
	return locktest.Scenario{
		Act: retryParked,
		Setup: func(t testing.TB, e *locktest.Env) {
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				signalled[strings.TrimPrefix(r.URL.Path, "/")] = true
			}))
			t.Cleanup(server.Close)
			e.Set("signals", server.URL)
			newScene(t, e, func(s *scene) {
				s.parkTwo()
				_, err := s.operator.RequestRetry(t.Context(), activities.RetryRequest{All: true})
				require.NoError(t, err)
			})
		},
		Reset: func(context.Context, *locktest.Env) error {
			mu.Lock()
			defer mu.Unlock()
			clear(signalled)
			return nil
		},
		Outside: func(context.Context, *locktest.Env) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			return strings.Join(slices.Sorted(maps.Keys(signalled)), " "), nil
		},
	}
}

// organization makes a member that no customer pays for.
func (r *rig) organization(slug string) {
	_, err := r.operator.CreateOrganization(r.t.Context(), activities.NewOrganizationRequest{Slug: slug, Name: strings.ToUpper(slug), Type: "member"})
	require.NoError(r.t, err)
}

// checkedOut keeps a completed checkout that names the organisation.
func (s *scene) checkedOut(reference string) {
	session, subscription, customer := s.checkout(reference, "")
	s.env.Set("session", session)
	s.env.Set("subscription", subscription)
	s.env.Set("customer", customer)
}

// parkTwo parks two subscriptions.
func (s *scene) parkTwo() {
	for _, name := range []string{"subscription", "second"} {
		s.reconcile(s.subscribed(name, s.stripe.PutCustomer(standin.Customer{Name: name}).ID, "gold"))
	}
}
