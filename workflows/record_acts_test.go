package workflows

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/bursarhq/bursar/workflows/contract"
)

// acts has an act answer what the test says, and a drain that is through at once.
func acts(answer contract.ActResult, err error) outside {
	return outside{
		act: func(context.Context, json.RawMessage) (contract.ActResult, error) { return answer, err },
		drain: func(context.Context, contract.DrainRequest) (contract.DrainTurn, error) {
			return contract.DrainTurn{Settled: 51}, nil
		},
	}
}

// playAct does one act to its end, whichever that is.
func playAct(ctx context.Context, t *testing.T, c client.Client) (string, error) {
	t.Helper()
	id := uuid.NewString()
	run, err := Starter{Client: c}.StartAct(ctx, id, tierAdd)
	require.NoError(t, err)
	return contract.OperatorActWorkflowID(id), run.Get(ctx, nil)
}

func awaitDrain(ctx context.Context, t *testing.T, c client.Client, change string) (drained contract.RuleChangeDrainResult) {
	t.Helper()
	require.NoError(t, c.GetWorkflow(ctx, contract.RuleChangeDrainWorkflowID(change), "").Get(ctx, &drained))
	return drained
}

func playActPlain(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	serve(t, c, acts(contract.ActResult{Detail: "gold becomes tier 1 of membership; no pool holds anything that it reaches", Change: &contract.ChangeRef{ID: "record-plain"}}, nil))
	id, err := playAct(ctx, t, c)
	require.NoError(t, err)
	return id, ""
}

func playActRefused(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	serve(t, c, acts(contract.ActResult{}, temporal.NewNonRetryableApplicationError("gold is a tier of membership already", "Invalid", nil)))
	id, err := playAct(ctx, t, c)
	require.ErrorContains(t, err, "a tier of membership already")
	return id, ""
}

func playActOwes(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	serve(t, c, acts(contract.ActResult{Detail: "gold becomes tier 1 of membership", Change: &contract.ChangeRef{ID: "record-owes", Owed: 51}}, nil))
	id, err := playAct(ctx, t, c)
	require.NoError(t, err)
	require.Equal(t, 51, awaitDrain(ctx, t, c, "record-owes").Settled)
	return id, ""
}

// playActDrainRuns has an act whose drain is under way when it would start it.
func playActDrainRuns(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	g := newGate()
	o := acts(contract.ActResult{Detail: "gold becomes tier 1 of membership", Change: &contract.ChangeRef{ID: "record-runs", Owed: 51}}, nil)
	o.drain = func(ctx context.Context, _ contract.DrainRequest) (contract.DrainTurn, error) {
		return contract.DrainTurn{Settled: 51}, g.pass(ctx)
	}
	serve(t, c, o)
	require.NoError(t, Starter{Client: c}.StartDrain(ctx, "record-runs"))
	g.await(ctx, t)
	id, err := playAct(ctx, t, c)
	require.NoError(t, err)
	g.letGo <- struct{}{}
	awaitDrain(ctx, t, c, "record-runs")
	return id, ""
}
