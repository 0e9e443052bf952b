package workflows

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/bursarhq/bursar/workflows/contract"
)

// drainBench runs RuleChangeDrain with turns that answer what the test says, and keeps what each was asked, and when.
type drainBench struct {
	*testsuite.TestWorkflowEnvironment
	asked    []contract.DrainRequest
	at       []time.Time
	outcomes []string
}

func newDrainBench(answer func(n int) (contract.DrainTurn, error)) *drainBench {
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(quiet())
	b := &drainBench{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment()}
	Register(b)
	b.RegisterActivityWithOptions(func(_ context.Context, request contract.DrainRequest) (contract.DrainTurn, error) {
		b.asked, b.at = append(b.asked, request), append(b.at, b.Now())
		return answer(len(b.asked))
	}, activity.RegisterOptions{Name: contract.ActivityDrainChange})
	b.OnUpsertTypedSearchAttributes(mock.Anything).Return(nil).Run(func(args mock.Arguments) {
		outcome, _ := args.Get(0).(temporal.SearchAttributes).GetKeyword(keyOutcome)
		b.outcomes = append(b.outcomes, outcome)
	})
	return b
}

func (b *drainBench) drain(t *testing.T, in contract.RuleChangeDrainInput) (result contract.RuleChangeDrainResult) {
	t.Helper()
	b.ExecuteWorkflow(contract.RuleChangeDrain, in)
	require.True(t, b.IsWorkflowCompleted())
	require.NoError(t, b.GetWorkflowError())
	require.NoError(t, b.GetWorkflowResult(&result))
	return result
}

// A pass goes on where its last turn stopped, and the counts add up; no pause is between two turns of one pass.
func TestADrainGoesOnWhereItStopped(t *testing.T) {
	b := newDrainBench(func(n int) (contract.DrainTurn, error) {
		return []contract.DrainTurn{{Settled: 500, Open: 520, After: "p500"}, {Settled: 500, Open: 20, After: "p999"}, {Settled: 20}}[n-1], nil
	})
	require.Equal(t, contract.RuleChangeDrainResult{Settled: 1020}, b.drain(t, contract.RuleChangeDrainInput{ChangeID: "c1"}))
	require.Equal(t, []contract.DrainRequest{{ChangeID: "c1"}, {ChangeID: "c1", After: "p500"}, {ChangeID: "c1", After: "p999"}}, b.asked)
	require.Less(t, b.at[2].Sub(b.at[0]), firstDrainPause)
	require.Equal(t, []string{contract.OutcomeDone}, b.outcomes)
}

// What is left open is passed over again, with pauses that double up to a minute, until it is settled or parked.
func TestADrainPassesAgainOverWhatIsOpen(t *testing.T) {
	const passes = 9
	b := newDrainBench(func(n int) (contract.DrainTurn, error) {
		if n < passes {
			return contract.DrainTurn{Busy: 1, Open: 1}, nil
		}
		return contract.DrainTurn{Failed: 1, Parked: 1}, nil
	})
	require.Equal(t, contract.RuleChangeDrainResult{Failed: 1, Parked: 1}, b.drain(t, contract.RuleChangeDrainInput{ChangeID: "c1"}))
	require.Len(t, b.asked, passes)
	var pauses []time.Duration
	for i, request := range b.asked {
		require.Equal(t, contract.DrainRequest{ChangeID: "c1", Pass: i}, request)
		if i > 0 {
			pauses = append(pauses, b.at[i].Sub(b.at[i-1]).Round(time.Second))
		}
	}
	require.Equal(t, []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute, time.Minute}, pauses)
	require.Equal(t, []string{contract.OutcomeRetrying, contract.OutcomeParked}, b.outcomes)
}

// A failure that may pass is tried again from the same place, and is no pass.
func TestADrainOutlastsAnOutage(t *testing.T) {
	b := newDrainBench(func(n int) (contract.DrainTurn, error) {
		if n < 4 {
			return contract.DrainTurn{}, temporal.NewApplicationError("the database went away", "ConnectionLost")
		}
		return contract.DrainTurn{Settled: 51}, nil
	})
	require.Equal(t, 51, b.drain(t, contract.RuleChangeDrainInput{ChangeID: "c1", After: "p7"}).Settled)
	require.Len(t, b.asked, 4)
	for _, request := range b.asked {
		require.Equal(t, contract.DrainRequest{ChangeID: "c1", After: "p7"}, request)
	}
	require.Zero(t, drainOptions("").ScheduleToCloseTimeout, "however long it lasts")
}

// A long drain continues as new with its counts, its pass and where it stands; so its history stays short.
func TestADrainContinuesAsNew(t *testing.T) {
	b := newDrainBench(func(int) (contract.DrainTurn, error) {
		return contract.DrainTurn{Settled: 500, Failed: 1, Open: 9, After: "p500"}, nil
	})
	b.SetContinueAsNewSuggested(true)
	b.ExecuteWorkflow(contract.RuleChangeDrain, contract.RuleChangeDrainInput{ChangeID: "c1", Settled: 7, Failed: 2, Pass: 3, After: "p7"})
	var continued *workflow.ContinueAsNewError
	require.True(t, errors.As(b.GetWorkflowError(), &continued))
	var in contract.RuleChangeDrainInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(continued.Input, &in))
	require.Equal(t, contract.RuleChangeDrainInput{ChangeID: "c1", Settled: 507, Failed: 3, Pass: 3, After: "p500"}, in)
	require.Equal(t, []contract.DrainRequest{{ChangeID: "c1", Pass: 3, After: "p7"}}, b.asked)
}

// A failure that cannot pass ends the drain, and lists find it by that; what it left open is asked of the tables by the next.
func TestADrainThatFailsSaysSo(t *testing.T) {
	b := newDrainBench(func(int) (contract.DrainTurn, error) {
		return contract.DrainTurn{}, temporal.NewNonRetryableApplicationError("no such change", "NotFound", nil)
	})
	b.ExecuteWorkflow(contract.RuleChangeDrain, contract.RuleChangeDrainInput{ChangeID: "c1"})
	require.ErrorContains(t, b.GetWorkflowError(), "no such change")
	require.Equal(t, []string{contract.OutcomeFailed}, b.outcomes)
}
