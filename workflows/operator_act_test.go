package workflows

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/bursarhq/bursar/workflows/contract"
)

// tierAdd is an act, with the input that a command writes.
var tierAdd = contract.OperatorActInput{
	Act: contract.ActTierAdd, Input: json.RawMessage(`{"change":"0196f1b4-0000-7000-8000-000000000001","product":"gold","ladder":"membership"}`),
	Organization: "acme", Object: "gold", Summary: "Make gold a tier of membership",
}

// actBench runs OperatorAct with an activity that answers what the test says, and keeps what it and the drains were given.
type actBench struct {
	*testsuite.TestWorkflowEnvironment
	inputs   []string
	outcomes []string
	drains   []contract.RuleChangeDrainInput
}

func newActBench(answer func(n int) (contract.ActResult, error)) *actBench {
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(quiet())
	b := &actBench{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment()}
	Register(b)
	b.RegisterActivityWithOptions(func(_ context.Context, input contract.TierAdd) (contract.ActResult, error) {
		text, err := json.Marshal(input)
		if err != nil {
			return contract.ActResult{}, err
		}
		b.inputs = append(b.inputs, string(text))
		return answer(len(b.inputs))
	}, activity.RegisterOptions{Name: contract.ActTierAdd})
	b.OnUpsertTypedSearchAttributes(mock.Anything).Return(nil).Run(func(args mock.Arguments) {
		outcome, _ := args.Get(0).(temporal.SearchAttributes).GetKeyword(keyOutcome)
		b.outcomes = append(b.outcomes, outcome)
	})
	b.OnWorkflow(contract.RuleChangeDrain, mock.Anything, mock.Anything).Maybe().Return(
		func(_ workflow.Context, in contract.RuleChangeDrainInput) (contract.RuleChangeDrainResult, error) {
			return contract.RuleChangeDrainResult{}, nil
		})
	b.SetOnChildWorkflowStartedListener(func(info *workflow.Info, _ workflow.Context, args converter.EncodedValues) {
		var in contract.RuleChangeDrainInput
		if err := args.Get(&in); err != nil {
			panic(err)
		}
		if info.WorkflowExecution.ID != contract.RuleChangeDrainWorkflowID(in.ChangeID) || info.WorkflowType.Name != contract.RuleChangeDrain {
			panic("another workflow was started: " + info.WorkflowExecution.ID)
		}
		b.drains = append(b.drains, in)
	})
	return b
}

func (b *actBench) act(t *testing.T) (contract.ActResult, error) {
	t.Helper()
	b.ExecuteWorkflow(contract.OperatorAct, tierAdd)
	require.True(t, b.IsWorkflowCompleted())
	if err := b.GetWorkflowError(); err != nil {
		return contract.ActResult{}, err
	}
	var result contract.ActResult
	require.NoError(t, b.GetWorkflowResult(&result))
	return result, nil
}

// An act hands the activity its input as the command wrote it, and answers what the activity does.
func TestAnActAnswersWhatItsActivityDoes(t *testing.T) {
	want := contract.ActResult{Detail: "gold is a tier of membership", Data: json.RawMessage(`{"pools":3}`), Change: &contract.ChangeRef{ID: "c1"}}
	b := newActBench(func(int) (contract.ActResult, error) { return want, nil })
	got, err := b.act(t)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, []string{string(tierAdd.Input)}, b.inputs)
	require.Equal(t, []string{contract.OutcomeDone}, b.outcomes)
	require.Empty(t, b.drains, "nothing is owed")
}

// A failure that may pass is tried again, with the same input: the ids in it make a repeat harmless.
func TestAnActIsTriedAgain(t *testing.T) {
	b := newActBench(func(n int) (contract.ActResult, error) {
		if n < 4 {
			return contract.ActResult{}, temporal.NewApplicationError("the database went away", "ConnectionLost")
		}
		return contract.ActResult{Detail: "done"}, nil
	})
	got, err := b.act(t)
	require.NoError(t, err)
	require.Equal(t, "done", got.Detail)
	require.Len(t, b.inputs, 4)
	for _, input := range b.inputs {
		require.Equal(t, string(tierAdd.Input), input)
	}
	require.Equal(t, []string{contract.OutcomeDone}, b.outcomes)
}

// A refusal ends the act at once, with the words that the person is to read.
func TestAnActThatIsRefusedFailsAtOnce(t *testing.T) {
	b := newActBench(func(int) (contract.ActResult, error) {
		return contract.ActResult{}, temporal.NewNonRetryableApplicationError("gold is a tier of membership already", "Invalid", nil)
	})
	_, err := b.act(t)
	var failed *temporal.ApplicationError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "gold is a tier of membership already", failed.Message())
	require.Len(t, b.inputs, 1)
	require.Equal(t, []string{contract.OutcomeFailed}, b.outcomes)
	require.Empty(t, b.drains)
}

// A person waits for an act, so one whose database stays away fails after two minutes, not after an hour.
func TestAnActDoesNotTryForEver(t *testing.T) {
	b := newActBench(func(int) (contract.ActResult, error) {
		return contract.ActResult{}, temporal.NewApplicationError("the database went away", "ConnectionLost")
	})
	begun := b.Now()
	_, err := b.act(t)
	require.ErrorContains(t, err, "the database went away")
	require.LessOrEqual(t, b.Now().Sub(begun), actPersistence)
	require.Greater(t, len(b.inputs), 5)
	require.Equal(t, []string{contract.OutcomeFailed}, b.outcomes)
}

// What a change owes is drained by a workflow of its own, for which the act does not wait.
func TestAnActStartsTheDrainOfWhatItOwes(t *testing.T) {
	b := newActBench(func(int) (contract.ActResult, error) {
		return contract.ActResult{Detail: "committed", Change: &contract.ChangeRef{ID: "c1", Owed: 51}}, nil
	})
	got, err := b.act(t)
	require.NoError(t, err)
	require.Equal(t, 51, got.Change.Owed)
	require.Equal(t, []contract.RuleChangeDrainInput{{ChangeID: "c1"}}, b.drains)
	require.Equal(t, []string{contract.OutcomeDone}, b.outcomes)
}

// On a real server: the drain outlives its act, one that runs already is enough, an act's id is good for one act, and lists find acts
// by what they are about.
func TestActsAndTheirDrainsOnAServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, g := dial(t), newGate()
	change := uuid.NewString()
	serve(t, c, outside{
		act: func(context.Context, json.RawMessage) (contract.ActResult, error) {
			return contract.ActResult{Detail: "committed", Change: &contract.ChangeRef{ID: change, Owed: 2}}, nil
		},
		drain: func(ctx context.Context, request contract.DrainRequest) (contract.DrainTurn, error) {
			if err := g.pass(ctx); err != nil {
				return contract.DrainTurn{}, err
			}
			return contract.DrainTurn{Settled: 2}, nil
		},
	})
	starter, first := Starter{Client: c}, uuid.NewString()
	act := func(id string) {
		run, err := starter.StartAct(ctx, id, tierAdd)
		require.NoError(t, err)
		var result contract.ActResult
		require.NoError(t, run.Get(ctx, &result))
		require.Equal(t, 2, result.Change.Owed)
	}
	act(first)
	g.await(ctx, t)
	drain := contract.RuleChangeDrainWorkflowID(change)
	described, err := c.DescribeWorkflowExecution(ctx, drain, "")
	require.NoError(t, err)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, described.WorkflowExecutionInfo.Status, "the act is over")
	act(uuid.NewString())
	g.letGo <- struct{}{}
	var drained contract.RuleChangeDrainResult
	require.NoError(t, c.GetWorkflow(ctx, drain, "").Get(ctx, &drained))
	require.Equal(t, contract.RuleChangeDrainResult{Settled: 2}, drained)
	again, err := c.DescribeWorkflowExecution(ctx, drain, "")
	require.NoError(t, err)
	require.Equal(t, described.WorkflowExecutionInfo.Execution.RunId, again.WorkflowExecutionInfo.Execution.RunId, "the second act found it running")

	_, err = starter.StartAct(ctx, first, tierAdd)
	var used *serviceerror.WorkflowExecutionAlreadyStarted
	require.True(t, errors.As(err, &used), "%v", err)

	described, err = c.DescribeWorkflowExecution(ctx, contract.OperatorActWorkflowID(first), "")
	require.NoError(t, err)
	for key, want := range map[temporal.SearchAttributeKeyKeyword]string{keyObject: "gold", keyOrganization: "acme", keyOutcome: contract.OutcomeDone} {
		var got string
		payload := described.WorkflowExecutionInfo.SearchAttributes.IndexedFields[key.GetName()]
		require.NoError(t, converter.GetDefaultDataConverter().FromPayload(payload, &got), key.GetName())
		require.Equal(t, want, got)
	}
}
