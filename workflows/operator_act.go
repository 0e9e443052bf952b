package workflows

import (
	"errors"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/bursarhq/bursar/workflows/contract"
)

// actPersistence bounds all tries of an act: a person waits for it, and may ask again.
const actPersistence = 2 * time.Minute

// OperatorAct does one act of a person: it runs the act's activity, once by its ids however often it is tried, and starts the
// drain of what the act leaves to be settled. Its result is the activity's. An act that fails has changed nothing, unless its
// failure says that this is not known.
func OperatorAct(ctx workflow.Context, in contract.OperatorActInput) (contract.ActResult, error) {
	workflow.SetCurrentDetails(ctx, in.Summary)
	var result contract.ActResult
	options := databaseOptions(in.Summary)
	options.ScheduleToCloseTimeout = actPersistence
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), in.Act, in.Input).Get(ctx, &result)
	if err != nil {
		setOutcome(ctx, contract.OutcomeFailed)
		return result, err
	}
	workflow.SetCurrentDetails(ctx, result.Detail)
	if result.Change != nil && result.Change.Owed > 0 {
		if err := startDrain(ctx, *result.Change); err != nil {
			setOutcome(ctx, contract.OutcomeFailed)
			return result, err
		}
	}
	setOutcome(ctx, contract.OutcomeDone)
	return result, nil
}

// startDrain starts the drain of a change, which goes on by itself. Where one runs already, it is enough.
func startDrain(ctx workflow.Context, change contract.ChangeRef) error {
	ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:            contract.RuleChangeDrainWorkflowID(change.ID),
		TaskQueue:             contract.QueueDB,
		ParentClosePolicy:     enumspb.PARENT_CLOSE_POLICY_ABANDON,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowTaskTimeout:   10 * time.Second,
		StaticSummary:         "Settle what change " + change.ID + " owes",
		TypedSearchAttributes: temporal.NewSearchAttributes(keyObject.ValueSet(change.ID)),
	})
	child := workflow.ExecuteChildWorkflow(ctx, contract.RuleChangeDrain, contract.RuleChangeDrainInput{ChangeID: change.ID})
	err := child.GetChildWorkflowExecution().Get(ctx, nil)
	var running *temporal.ChildWorkflowExecutionAlreadyStartedError
	if errors.As(err, &running) {
		return nil
	}
	return err
}

// setOutcome writes the search attribute that lists find acts by.
func setOutcome(ctx workflow.Context, outcome string) {
	// It fails only where the attribute is not registered, and a worker that finds it missing does not start.
	if err := workflow.UpsertTypedSearchAttributes(ctx, keyOutcome.ValueSet(outcome)); err != nil {
		workflow.GetLogger(ctx).Warn("the outcome could not be shown", "error", err)
	}
}
