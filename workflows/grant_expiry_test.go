package workflows

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/bursarhq/bursar/workflows/contract"
)

// expiryBench runs GrantExpiry with an activity that answers what the test says, and keeps from where each was told to go on.
type expiryBench struct {
	*testsuite.TestWorkflowEnvironment
	from []contract.GrantCursor
}

func newExpiryBench(answer func(n int) (contract.GrantSweep, error)) *expiryBench {
	suite := &testsuite.WorkflowTestSuite{}
	suite.SetLogger(quiet())
	b := &expiryBench{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment()}
	Register(b)
	b.RegisterActivityWithOptions(func(_ context.Context, from contract.GrantCursor) (contract.GrantSweep, error) {
		b.from = append(b.from, from)
		return answer(len(b.from))
	}, activity.RegisterOptions{Name: contract.ActivitySweepGrants})
	return b
}

func (b *expiryBench) result(t *testing.T) (swept contract.GrantSweep) {
	t.Helper()
	require.True(t, b.IsWorkflowCompleted())
	require.NoError(t, b.GetWorkflowError())
	require.NoError(t, b.GetWorkflowResult(&swept))
	return swept
}

// A sweep that takes longer than one activity may goes on where that stopped, and the counts add up.
func TestGrantExpiryGoesOnWhereTheActivityStopped(t *testing.T) {
	at := contract.GrantCursor{At: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}
	b := newExpiryBench(func(n int) (contract.GrantSweep, error) {
		if n == 1 {
			return contract.GrantSweep{Expired: 10, Failed: 1, More: true, From: at}, nil
		}
		return contract.GrantSweep{Expired: 2, Begun: 3, Deferred: 1}, nil
	})
	b.ExecuteWorkflow(contract.GrantExpiry, contract.GrantExpiryInput{})
	require.Equal(t, contract.GrantSweep{Expired: 12, Begun: 3, Failed: 1, Deferred: 1}, b.result(t))
	require.Equal(t, []contract.GrantCursor{{}, at}, b.from)
}

// A signal that comes while the grants are gone through leads to another look, however many come to one.
func TestGrantExpiryLooksAgainWhenSignalled(t *testing.T) {
	b := newExpiryBench(func(int) (contract.GrantSweep, error) { return contract.GrantSweep{Expired: 1}, nil })
	signalled := false
	b.SetOnActivityStartedListener(func(*activity.Info, context.Context, converter.EncodedValues) {
		if !signalled {
			signalled = true
			b.SignalWorkflow(contract.SignalLookAgain, nil)
			b.SignalWorkflow(contract.SignalLookAgain, nil)
		}
	})
	b.ExecuteWorkflow(contract.GrantExpiry, contract.GrantExpiryInput{})
	require.Equal(t, 2, b.result(t).Expired)
	require.Equal(t, []contract.GrantCursor{{}, {}}, b.from, "from the start")
}

// What it was started by is covered by the look that it begins with.
func TestGrantExpiryLooksOnceForTheSignalThatStartsIt(t *testing.T) {
	b := newExpiryBench(func(int) (contract.GrantSweep, error) { return contract.GrantSweep{}, nil })
	b.RegisterDelayedCallback(func() { b.SignalWorkflow(contract.SignalLookAgain, nil) }, 0)
	b.ExecuteWorkflow(contract.GrantExpiry, contract.GrantExpiryInput{})
	b.result(t)
	require.Len(t, b.from, 1)
}

// A long sweep continues as new with its counts and where it stands; so its history stays short.
func TestGrantExpiryContinuesAsNew(t *testing.T) {
	at := contract.GrantCursor{Beginning: true}
	b := newExpiryBench(func(int) (contract.GrantSweep, error) {
		return contract.GrantSweep{Expired: 5, More: true, From: at}, nil
	})
	b.SetContinueAsNewSuggested(true)
	b.ExecuteWorkflow(contract.GrantExpiry, contract.GrantExpiryInput{Swept: contract.GrantSweep{Expired: 7}})
	var continued *workflow.ContinueAsNewError
	require.True(t, errors.As(b.GetWorkflowError(), &continued))
	var in contract.GrantExpiryInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(continued.Input, &in))
	require.Equal(t, contract.GrantExpiryInput{Swept: contract.GrantSweep{Expired: 12, More: true, From: at}}, in)

	b = newExpiryBench(func(int) (contract.GrantSweep, error) { return contract.GrantSweep{Expired: 1}, nil })
	b.SetContinueAsNewSuggested(true)
	b.ExecuteWorkflow(contract.GrantExpiry, in)
	require.Equal(t, 13, b.result(t).Expired, "it ends where nothing is left")
	require.Equal(t, []contract.GrantCursor{at}, b.from)
}

func TestGrantExpiryOutlastsAnOutage(t *testing.T) {
	b := newExpiryBench(func(n int) (contract.GrantSweep, error) {
		if n < 4 {
			return contract.GrantSweep{}, temporal.NewApplicationError("the database went away", "ConnectionLost")
		}
		return contract.GrantSweep{Expired: 1}, nil
	})
	b.ExecuteWorkflow(contract.GrantExpiry, contract.GrantExpiryInput{})
	require.Equal(t, 1, b.result(t).Expired)
}
