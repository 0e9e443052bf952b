package worker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/stripeapi"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows/contract"
)

// broken answers for one subscription with an error that no retry mends, so that its workflow parks it, on the DB queue.
type broken struct {
	activities.StripeReader
	id string
}

func (b broken) Subscription(ctx context.Context, id string) (*stripe.Subscription, error) {
	if id == b.id {
		return nil, fmt.Errorf("%w: as the test has it", entitlements.ErrInvalid)
	}
	return b.StripeReader.Subscription(ctx, id)
}

// Transactions of the IO queue get no more connections than their reserve: while they hold all of it, one more is told at once that
// it is busy, and the DB queue goes on as if nothing were.
func TestTheReserveBoundsTheIOQueue(t *testing.T) {
	r := newRig(t, "reserve")
	r.config.DBMaxConns, r.config.DBReserve = 4, 2
	options := watchedOptions()
	options.MaxConns, options.Budget, options.LockTimeout = 4, 90*time.Second, 80*time.Second // nobody gives up during the test
	pool, err := lockorder.Open(t.Context(), r.database.URL(), options)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	client := stripeapi.New(r.config.stripe())
	t.Cleanup(client.Close)
	const hopeless = "sub_Hopeless"
	r.start(Options{DB: pool, Stripe: broken{client, hopeless}})
	r.organization("acme")
	customer := r.customer()
	r.link(customer, "acme")
	subs := []string{r.subscribe(customer), r.subscribe(customer), r.subscribe(customer)}

	// Somebody has locked a table that their transactions read, and that parking does not: theirs stay open.
	holder, err := r.database.Conn(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = holder.Exec(t.Context(), `LOCK TABLE core.positions IN ACCESS EXCLUSIVE MODE`)
	require.NoError(t, err)

	conn := r.database.Conn(t)
	waiting := func() (n int) {
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'relation' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n)
		assert.NoError(t, err)
		return n
	}
	for _, id := range subs {
		require.NoError(t, r.starter.SignalReconcile(t.Context(), id, contract.ReconcileSignal{EventType: "test"}))
	}
	busy := func() (n int) {
		for _, id := range subs {
			described, err := r.temporal.DescribeWorkflowExecution(t.Context(), contract.SubscriptionWorkflowID(id), "")
			if !assert.NoError(t, err) {
				return -1
			}
			for _, pending := range described.PendingActivities {
				if pending.LastFailure.GetApplicationFailureInfo().GetType() == activities.ErrTypeBusy {
					n++
				}
			}
		}
		return n
	}
	require.Eventually(t, func() bool { return waiting() == 2 && busy() == 1 }, 30*time.Second, 50*time.Millisecond, "two wait with a connection each, and the third is told")

	began := time.Now()
	require.NoError(t, r.starter.SignalReconcile(t.Context(), hopeless, contract.ReconcileSignal{EventType: "test"}))
	require.Equal(t, contract.OutcomeParked, r.outcome(hopeless).Outcome)
	require.Less(t, time.Since(began), 10*time.Second)
	parked, err := billing.AllParked(t.Context(), r.db.Reader(), billing.ParkedFilter{Object: hopeless})
	require.NoError(t, err)
	require.Len(t, parked, 1)
	require.Equal(t, []int{2, 1}, []int{waiting(), busy()}, "all the while")

	require.NoError(t, holder.Rollback(t.Context()))
	for _, id := range subs {
		require.Equal(t, "active", r.outcome(id).Status)
	}
}
