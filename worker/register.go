package worker

import (
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows"
	"github.com/bursarhq/bursar/workflows/contract"
)

// dependencies are what the activities work with.
type dependencies struct {
	db       *lockorder.DB // the whole pool
	reserved *lockorder.DB // the share of the IO queue
	stripe   activities.StripeReader
	livemode bool
	temporal client.Client
}

// served is what one queue serves.
type served struct {
	workflows  func(worker.WorkflowRegistry) // nil where there are none
	activities map[string]any
}

// register is the one list of what the workers serve, by task queue. Activities are named one by one, since some of a
// receiver's run on one queue and some on the other, each with the share of the pool that is its queue's.
func register(d dependencies) map[string]served {
	onDB := &activities.Subscriptions{DB: d.db, Stripe: d.stripe, Livemode: d.livemode}
	onIO := &activities.Subscriptions{DB: d.reserved, Stripe: d.stripe, Livemode: d.livemode}
	parked := &activities.Parked{DB: d.reserved, Signaler: workflows.Starter{Client: d.temporal}}
	grants := &activities.Grants{DB: d.db}
	keeper := &activities.Keeper{Starter: workflows.Starter{Client: d.temporal}}
	drains := &activities.Drain{DB: d.db, Starter: workflows.Starter{Client: d.temporal}}
	database := acts(&activities.Operator{DB: d.db})
	database[contract.ActivityParkSubscription] = onDB.ParkSubscription
	database[contract.ActivitySweepGrants] = grants.SweepGrants
	database[contract.ActivityKeep] = keeper.Keep
	database[contract.ActivityDrainChange] = drains.DrainChange
	return map[string]served{
		contract.QueueDB: {workflows: workflows.Register, activities: database},
		contract.QueueIO: {
			activities: map[string]any{
				contract.ActivityReconcileSubscription: onIO.ReconcileSubscription,
				contract.ActivityLinkFromCheckout:      onIO.LinkFromCheckout,
				contract.ActivityRetryParked:           parked.RetryParked,
				contract.ActivityStartDrains:           drains.StartDrains,
			},
		},
	}
}

func (s served) on(w worker.Worker) {
	if s.workflows != nil {
		s.workflows(w)
	}
	for name, fn := range s.activities {
		w.RegisterActivityWithOptions(fn, activity.RegisterOptions{Name: name})
	}
}
