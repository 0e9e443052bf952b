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
