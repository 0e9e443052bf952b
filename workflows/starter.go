package workflows

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/bursarhq/bursar/workflows/contract"
)

const (
	// signalTimeout bounds SignalReconcile when the caller's context does not bound it sooner.
	signalTimeout = 8 * time.Second
	// reconcileNowTimeout bounds ReconcileNow when the caller's context does not bound it sooner.
	reconcileNowTimeout = time.Minute
	// reconcileNowTries is how often an update that met the end of a run is sent to the next.
	reconcileNowTries = 5
)

// Starter reaches the workflow of a subscription from outside, starting it where none runs. It may be used from any
// goroutine.
type Starter struct{ Client client.Client }

// SignalReconcile says that something about the subscription may have changed. When it returns nil, Temporal has it,
// and a read of Stripe begun after now will follow. Sending the same signal twice costs nothing but that read.
func (s Starter) SignalReconcile(ctx context.Context, subscriptionID string, signal contract.ReconcileSignal) error {
	if !validStripeID(subscriptionID, "sub_") {
		return fmt.Errorf("%q is not the id of a Stripe subscription", subscriptionID)
	}
	ctx, cancel := context.WithTimeout(ctx, signalTimeout)
	defer cancel()
	options := startOptions(subscriptionID)
	_, err := s.Client.SignalWithStartWorkflow(ctx, options.ID, contract.SignalReconcile, signal, options,
		contract.SubscriptionReconcile, contract.SubscriptionReconcileInput{SubscriptionID: subscriptionID})
	if err != nil {
		return fmt.Errorf("signalling the reconcile of %s: %w", subscriptionID, err)
	}
	return nil
}

// ReconcileNow has the subscription read from Stripe and applied, and answers with the outcome of a read begun after the
// call. It waits a minute at most, less when ctx ends sooner; the workflow goes on also when nobody waits any more.
func (s Starter) ReconcileNow(ctx context.Context, subscriptionID string) (contract.ReconcileResult, error) {
	return s.ReconcileNowFor(ctx, subscriptionID, contract.ReconcileSignal{EventType: "operator"})
}

// ReconcileNowFor is ReconcileNow with a cause. A checkout session named in it is linked before the read: this is what
// the page does that a member returns to from a checkout.
func (s Starter) ReconcileNowFor(ctx context.Context, subscriptionID string, cause contract.ReconcileSignal) (contract.ReconcileResult, error) {
	if !validStripeID(subscriptionID, "sub_") {
		return contract.ReconcileResult{}, fmt.Errorf("%q is not the id of a Stripe subscription", subscriptionID)
	}
	ctx, cancel := context.WithTimeout(ctx, reconcileNowTimeout)
	defer cancel()
	for try := 1; ; try++ {
		result, err := s.updateWithStart(ctx, subscriptionID, cause)
		if err == nil {
			return result, nil
		}
		if try >= reconcileNowTries || ctx.Err() != nil || !metEndOfRun(err) {
			return contract.ReconcileResult{}, fmt.Errorf("reconciling %s now: %w", subscriptionID, err)
		}
	}
}

func (s Starter) updateWithStart(ctx context.Context, subscriptionID string, cause contract.ReconcileSignal) (result contract.ReconcileResult, err error) {
	options := startOptions(subscriptionID)
	handle, err := s.Client.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: s.Client.NewWithStartWorkflowOperation(options, contract.SubscriptionReconcile,
			contract.SubscriptionReconcileInput{SubscriptionID: subscriptionID}),
		UpdateOptions: client.UpdateWorkflowOptions{
			UpdateName:   contract.UpdateReconcileNow,
			Args:         []any{cause},
			WaitForStage: client.WorkflowUpdateStageCompleted,
		},
	})
	if err != nil {
		return result, err
	}
	err = handle.Get(ctx, &result)
	return result, err
}

// metEndOfRun tells an update that a run could not take because it was ending from one that failed. Sent again, it reaches the
// next run.
func metEndOfRun(err error) bool {
	var notFound *serviceerror.NotFound
	var notReady *serviceerror.WorkflowNotReady
	var appErr *temporal.ApplicationError
	return errors.As(err, &notFound) || errors.As(err, &notReady) ||
		errors.As(err, &appErr) && appErr.Type() == "AcceptedUpdateCompletedWorkflow"
}

func startOptions(subscriptionID string) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID:                       contract.SubscriptionWorkflowID(subscriptionID),
		TaskQueue:                contract.QueueDB,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowTaskTimeout:      10 * time.Second,
		StaticSummary:            "Reconcile " + subscriptionID + " with Stripe",
		StaticDetails:            "Reads the subscription from Stripe and makes positions and entitlements follow it. Signals and updates say that something may have changed; it completes when nothing waits.",
		TypedSearchAttributes:    temporal.NewSearchAttributes(keyObject.ValueSet(subscriptionID)),
	}
}

// StartAct starts the workflow of one act, whose id is a UUID, and returns the handle to wait for its result. An id that was used
// before is refused: an act is done once.
func (s Starter) StartAct(ctx context.Context, act string, in contract.OperatorActInput) (client.WorkflowRun, error) {
	attributes := []temporal.SearchAttributeUpdate{}
	if in.Organization != "" {
		attributes = append(attributes, keyOrganization.ValueSet(in.Organization))
	}
	if in.Object != "" {
		attributes = append(attributes, keyObject.ValueSet(in.Object))
	}
	ctx, cancel := context.WithTimeout(ctx, signalTimeout)
	defer cancel()
	run, err := s.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                                       contract.OperatorActWorkflowID(act),
		TaskQueue:                                contract.QueueDB,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE,
		WorkflowIDConflictPolicy:                 enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		WorkflowTaskTimeout:                      10 * time.Second,
		StaticSummary:                            in.Summary,
		TypedSearchAttributes:                    temporal.NewSearchAttributes(attributes...),
	}, contract.OperatorAct, in)
	if err != nil {
		return nil, fmt.Errorf("starting act %s: %w", act, err)
	}
	return run, nil
}

// Keep signals the one workflow of an id to look again, and starts it where none runs.
func (s Starter) Keep(ctx context.Context, in contract.KeeperInput) error {
	ctx, cancel := context.WithTimeout(ctx, signalTimeout)
	defer cancel()
	_, err := s.Client.SignalWithStartWorkflow(ctx, in.ID, contract.SignalLookAgain, nil, client.StartWorkflowOptions{
		ID:                       in.ID,
		TaskQueue:                contract.QueueDB,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowTaskTimeout:      10 * time.Second,
		StaticSummary:            in.Summary,
	}, in.Workflow, struct{}{})
	if err != nil {
		return fmt.Errorf("keeping %s running: %w", in.ID, err)
	}
	return nil
}

// StartDrain starts the drain of a change. Where one runs already, it is enough.
func (s Starter) StartDrain(ctx context.Context, change string) error {
	ctx, cancel := context.WithTimeout(ctx, signalTimeout)
	defer cancel()
	_, err := s.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID:                       contract.RuleChangeDrainWorkflowID(change),
		TaskQueue:                contract.QueueDB,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowTaskTimeout:      10 * time.Second,
		StaticSummary:            "Settle what change " + change + " owes",
		TypedSearchAttributes:    temporal.NewSearchAttributes(keyObject.ValueSet(change)),
	}, contract.RuleChangeDrain, contract.RuleChangeDrainInput{ChangeID: change})
	if err != nil {
		return fmt.Errorf("starting the drain of change %s: %w", change, err)
	}
	return nil
}
