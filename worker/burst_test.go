package worker

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/workflows/contract"
)

// reconciles adds up what all closed runs of a subscription's workflow report; a run reports those of its whole chain.
func (r *rig) reconciles(subscription string) int {
	r.t.Helper()
	var result contract.SubscriptionReconcileResult
	ctx, cancel := context.WithTimeout(r.t.Context(), 60*time.Second)
	defer cancel()
	require.NoError(r.t, r.temporal.GetWorkflow(ctx, contract.SubscriptionWorkflowID(subscription), "").Get(ctx, &result))
	return result.Reconciles
}

// Fifty signals at once, through the real server: one mirror row, one position per item, no failed activity, and a
// handful of reads.
func TestFiftySignalsAtOnce(t *testing.T) {
	r := newRig(t, "fifty")
	r.start(Options{})
	r.organization("acme")
	customer := r.customer()
	r.link(customer, "acme")
	sub := r.subscribe(customer)

	var signals sync.WaitGroup
	errs := make(chan error, 50)
	for i := range 50 {
		signals.Go(func() {
			errs <- r.starter.SignalReconcile(t.Context(), sub, contract.ReconcileSignal{EventID: fmt.Sprintf("evt_Fifty%d", i%40), EventType: "customer.subscription.updated"})
		})
	}
	signals.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, "active", r.outcome(sub).Status)
	require.Equal(t, 20, r.sites("acme"))
	require.LessOrEqual(t, r.reconciles(sub), 5, "a handful of reconciles")
	require.LessOrEqual(t, r.stripe.Reads(sub), 6, "a handful of reads")

	conn := r.database.Conn(t)
	var mirrors, positions, events int
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM stripe.subscriptions),
		(SELECT count(*) FROM core.positions WHERE source = 'subscription'), (SELECT count(*) FROM stripe.subscription_events)`).Scan(&mirrors, &positions, &events))
	require.Equal(t, []int{1, 1, 40}, []int{mirrors, positions, events}, "one mirror row, one position, every event kept once")

	runs, failed := 0, 0
	iterator := r.temporal.GetWorkflowHistory(t.Context(), contract.SubscriptionWorkflowID(sub), "", false, 0)
	for iterator.HasNext() {
		event, err := iterator.Next()
		require.NoError(t, err)
		if event.GetActivityTaskStartedEventAttributes() != nil {
			runs++
			if event.GetActivityTaskStartedEventAttributes().GetLastFailure() != nil {
				failed++
			}
		}
		require.Nil(t, event.GetActivityTaskFailedEventAttributes(), "no error surfaces")
	}
	require.NotZero(t, runs)
	require.Zero(t, failed, "no try failed")
}

// Two subscriptions of one customer, on one ladder, changed at once again and again: no deadlock, no failure, and at the end
// what Stripe says.
func TestTwoSubscriptionsOfOneCustomer(t *testing.T) {
	r := newRig(t, "twins")
	r.start(Options{})
	r.organization("acme")
	customer := r.customer()
	r.link(customer, "acme")
	subs := []string{r.subscribe(customer), r.subscribe(customer)}
	for round := range 8 {
		status := []string{"unpaid", "active"}[round%2]
		var both sync.WaitGroup
		errs := make(chan error, len(subs))
		for _, sub := range subs {
			both.Go(func() {
				if err := r.stripe.SetStatus(sub, status); err != nil {
					errs <- err
					return
				}
				result, err := r.starter.ReconcileNow(t.Context(), sub)
				if err == nil && result.Outcome == contract.OutcomeParked {
					err = fmt.Errorf("parked: %s", result.Detail)
				}
				errs <- err
			})
		}
		both.Wait()
		close(errs)
		for err := range errs {
			require.NoError(t, err)
		}
		require.Equal(t, map[string]int{"unpaid": 0, "active": 20}[status], r.sites("acme"), "round %d", round)
	}
	require.NotContains(t, r.database.ServerLog(t), "deadlock")
}
