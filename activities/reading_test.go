package activities_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/workflows/contract"
)

// A read outside a transaction ends by itself when the database does not answer: here somebody has locked the tables.
func TestAReadThatTheDatabaseDoesNotAnswerEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	customer := r.member("acme")
	session, subscription, _ := r.checkout("acme", "")
	conn := r.database.Conn(t)
	begun, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = begun.Exec(t.Context(), `LOCK TABLE stripe.subscriptions, stripe.parked_work, core.organizations IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)

	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	env.SetTestTimeout(time.Minute)
	parked := &activities.Parked{DB: r.db, Signaler: &signals{got: map[string]contract.ReconcileSignal{}}}
	env.RegisterActivity(parked)
	acts := map[string]func() error{
		"reconcile": func() error {
			_, err := r.subs.ReconcileSubscription(t.Context(), contract.ReconcileRequest{SubscriptionID: subscription})
			return err
		},
		"link": func() error {
			_, err := r.subs.LinkFromCheckout(t.Context(), contract.LinkRequest{SubscriptionID: subscription, CheckoutSession: session})
			return err
		},
		"retry": func() error {
			_, err := env.ExecuteActivity(parked.RetryParked)
			return err
		},
	}
	const unanswered = "did not answer a read within 10s"
	var all sync.WaitGroup
	for name, act := range acts {
		all.Go(func() {
			began := time.Now()
			err := act()
			if took := time.Since(began); took > 14*time.Second {
				t.Errorf("%s took %s", name, took)
			}
			if !retryable(err, activities.ErrTypeCancelled) {
				t.Errorf("%s: %v", name, err)
			}
			assert.ErrorContains(t, err, unanswered, name)
		})
	}
	all.Go(func() { // a command of a person
		_, err := r.operator.LinkCustomer(t.Context(), activities.LinkCustomerRequest{Customer: customer, Organization: "acme"})
		assert.ErrorContains(t, err, unanswered)
	})
	all.Wait()

	require.NoError(t, begun.Rollback(t.Context()))
	require.True(t, r.linkFrom(session, subscription).Linked)
	require.Equal(t, contract.OutcomeApplied, r.reconcile(subscription).Outcome, "the connections are of use again")
}
