package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/workflows/contract"
)

// Receivers that are never called: through them the compiler checks the activities' inputs.
var (
	subscriptions *activities.Subscriptions
	parked        *activities.Parked
	grants        *activities.Grants
	keeper        *activities.Keeper
	drains        *activities.Drain
)

// persistence bounds all tries of one activity. A longer outage goes over into a new run, whose history begins empty.
const persistence = 10 * time.Minute

// retryPolicy has no list of types that are not retryable: package activities says it of each error where it is translated. What
// the SDK raises beside them is retryable. So is an input that a worker cannot decode, or an activity that it does not know:
// while a release is rolled out, another worker can.
func retryPolicy() *temporal.RetryPolicy {
	return &temporal.RetryPolicy{
		InitialInterval:    500 * time.Millisecond,
		BackoffCoefficient: 2,
		MaximumInterval:    time.Minute,
	}
}

// stripeOptions are for activities that call Stripe. One try may take three reads of Stripe, each bounded by the
// client's own time-outs, and three transactions with their waits.
func stripeOptions(summary string) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue:              contract.QueueIO,
		StartToCloseTimeout:    3 * time.Minute,
		ScheduleToCloseTimeout: persistence,
		HeartbeatTimeout:       20 * time.Second, // they heartbeat while they wait for Stripe: a killed worker is noticed soon
		RetryPolicy:            retryPolicy(),
		Summary:                summary,
	}
}

// databaseOptions are for activities of one transaction.
func databaseOptions(summary string) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue:              contract.QueueDB,
		StartToCloseTimeout:    30 * time.Second,
		ScheduleToCloseTimeout: persistence,
		RetryPolicy:            retryPolicy(),
		Summary:                summary,
	}
}

// fanOutOptions are for activities that work through pages and heartbeat a cursor.
func fanOutOptions(summary string) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue:              contract.QueueIO,
		StartToCloseTimeout:    5 * time.Minute,
		ScheduleToCloseTimeout: persistence,
		HeartbeatTimeout:       30 * time.Second,
		RetryPolicy:            retryPolicy(),
		Summary:                summary,
	}
}

// sweepOptions are for activities that work through pages on the database alone. They are on its queue, so that a Stripe that
// hangs does not stop them.
func sweepOptions(summary string) workflow.ActivityOptions {
	options := fanOutOptions(summary)
	options.TaskQueue = contract.QueueDB
	return options
}

func reconcileSubscription(ctx workflow.Context, request contract.ReconcileRequest) (result contract.ReconcileResult, err error) {
	ctx = workflow.WithActivityOptions(ctx, stripeOptions("Read "+request.SubscriptionID+" from Stripe and apply it"))
	err = workflow.ExecuteActivity(ctx, subscriptions.ReconcileSubscription, request).Get(ctx, &result)
	return result, err
}

func linkFromCheckout(ctx workflow.Context, request contract.LinkRequest) workflow.Future {
	options := stripeOptions("Link the customer of checkout " + request.CheckoutSession)
	options.ScheduleToCloseTimeout = linkPersistence
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), subscriptions.LinkFromCheckout, request)
}

func parkSubscription(ctx workflow.Context, request contract.ParkRequest) error {
	ctx = workflow.WithActivityOptions(ctx, databaseOptions("Park "+request.SubscriptionID))
	return workflow.ExecuteActivity(ctx, subscriptions.ParkSubscription, request).Get(ctx, nil)
}

// parkCheckout gives up sooner than parkSubscription: a read waits for it, and the link is tried again anyway.
func parkCheckout(ctx workflow.Context, request contract.ParkRequest) error {
	options := databaseOptions("Park checkout " + request.CheckoutSession)
	options.ScheduleToCloseTimeout = linkPersistence
	ctx = workflow.WithActivityOptions(ctx, options)
	return workflow.ExecuteActivity(ctx, subscriptions.ParkSubscription, request).Get(ctx, nil)
}

func retryParked(ctx workflow.Context) (result contract.ParkedRetryResult, err error) {
	ctx = workflow.WithActivityOptions(ctx, fanOutOptions("Signal the subscriptions whose parked work is due"))
	err = workflow.ExecuteActivity(ctx, parked.RetryParked).Get(ctx, &result)
	return result, err
}

func sweepGrants(ctx workflow.Context, from contract.GrantCursor) (swept contract.GrantSweep, err error) {
	ctx = workflow.WithActivityOptions(ctx, sweepOptions("Expire and begin the grants that are due"))
	err = workflow.ExecuteActivity(ctx, grants.SweepGrants, from).Get(ctx, &swept)
	return swept, err
}

func keep(ctx workflow.Context, in contract.KeeperInput) error {
	options := databaseOptions("Signal " + in.ID + ", starting it where it does not run")
	ctx = workflow.WithActivityOptions(ctx, options)
	return workflow.ExecuteActivity(ctx, keeper.Keep, in).Get(ctx, nil)
}

// drainOptions are for turns of a drain. They are tried until they get through: a database that is away for an hour holds up
// the drain for an hour.
func drainOptions(summary string) workflow.ActivityOptions {
	options := sweepOptions(summary)
	options.ScheduleToCloseTimeout = 0
	return options
}

func drainChange(ctx workflow.Context, request contract.DrainRequest) (turn contract.DrainTurn, err error) {
	ctx = workflow.WithActivityOptions(ctx, drainOptions("Settle pools that change "+request.ChangeID+" owes"))
	err = workflow.ExecuteActivity(ctx, drains.DrainChange, request).Get(ctx, &turn)
	return turn, err
}

func startDrains(ctx workflow.Context) (result contract.DrainStartResult, err error) {
	ctx = workflow.WithActivityOptions(ctx, fanOutOptions("Start the drain of every change that owes pools"))
	err = workflow.ExecuteActivity(ctx, drains.StartDrains).Get(ctx, &result)
	return result, err
}
