package workflows

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/bursarhq/bursar/workflows/contract"
)

func expiry(id string) contract.KeeperInput {
	return contract.KeeperInput{Workflow: contract.GrantExpiry, ID: id, Summary: "Expire and begin the grants that are due"}
}

func playKeeper(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	serve(t, c, outside{
		keep: func(ctx context.Context, in contract.KeeperInput) error { return Starter{Client: c}.Keep(ctx, in) },
		sweep: func(context.Context, contract.GrantCursor) (contract.GrantSweep, error) {
			return contract.GrantSweep{}, nil
		},
	})
	id := contract.KeeperWorkflowID("record")
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: contract.QueueDB}, contract.Keeper, expiry("record-kept"))
	require.NoError(t, err)
	require.NoError(t, run.Get(ctx, nil))
	awaitSweep(ctx, t, c, "record-kept")
	return id, ""
}

func awaitSweep(ctx context.Context, t *testing.T, c client.Client, id string) (swept contract.GrantSweep) {
	t.Helper()
	require.NoError(t, c.GetWorkflow(ctx, id, "").Get(ctx, &swept))
	return swept
}

// keepExpiry keeps a workflow of the id, as the keeper's activity does, and answers the run that is under way.
func keepExpiry(ctx context.Context, t *testing.T, c client.Client, id string) (run string) {
	t.Helper()
	require.NoError(t, Starter{Client: c}.Keep(ctx, expiry(id)))
	described, err := c.DescribeWorkflowExecution(ctx, id, "")
	require.NoError(t, err)
	return described.WorkflowExecutionInfo.Execution.RunId
}

func playExpiry(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	serve(t, c, outside{sweep: func(context.Context, contract.GrantCursor) (contract.GrantSweep, error) {
		return contract.GrantSweep{Expired: 3, Begun: 1, Failed: 1}, nil
	}})
	id := "record-expiry-plain"
	keepExpiry(ctx, t, c, id)
	require.Equal(t, contract.GrantSweep{Expired: 3, Begun: 1, Failed: 1}, awaitSweep(ctx, t, c, id))
	return id, ""
}

// playExpiryAgain keeps it twice more while a sweep is under way: it looks once more.
func playExpiryAgain(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	g := newGate()
	var sweeps atomic.Int32
	serve(t, c, outside{sweep: func(ctx context.Context, _ contract.GrantCursor) (contract.GrantSweep, error) {
		if sweeps.Add(1) > 1 {
			return contract.GrantSweep{Expired: 1}, nil
		}
		return contract.GrantSweep{Expired: 2}, g.pass(ctx)
	}})
	id := "record-expiry-again"
	run := keepExpiry(ctx, t, c, id)
	g.await(ctx, t)
	for range 2 {
		require.Equal(t, run, keepExpiry(ctx, t, c, id), "one runs at a time")
	}
	g.letGo <- struct{}{}
	require.Equal(t, contract.GrantSweep{Expired: 3}, awaitSweep(ctx, t, c, id))
	require.EqualValues(t, 2, sweeps.Load())
	return id, ""
}

// playExpiryGoesOn has one activity stop before it is through, and the next fail once.
func playExpiryGoesOn(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	at := contract.GrantCursor{At: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}
	var calls atomic.Int32
	serve(t, c, outside{sweep: func(_ context.Context, from contract.GrantCursor) (contract.GrantSweep, error) {
		switch calls.Add(1) {
		case 1:
			return contract.GrantSweep{Expired: 500, More: true, From: at}, nil
		case 2:
			return contract.GrantSweep{}, errors.New("the database went away")
		}
		if from != at {
			return contract.GrantSweep{}, errors.New("it goes on elsewhere")
		}
		return contract.GrantSweep{Expired: 20}, nil
	}})
	id := "record-expiry-goes-on"
	keepExpiry(ctx, t, c, id)
	require.Equal(t, contract.GrantSweep{Expired: 520}, awaitSweep(ctx, t, c, id))
	return id, ""
}

// playExpiryContinues has so many activities stop before they are through that the run continues as new.
func playExpiryContinues(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	at := contract.GrantCursor{At: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}
	g := newGate()
	var calls atomic.Int32
	serve(t, c, outside{sweep: func(ctx context.Context, _ contract.GrantCursor) (contract.GrantSweep, error) {
		if n := calls.Add(1); n == 1 {
			return contract.GrantSweep{Expired: 1, More: true, From: at}, g.pass(ctx)
		} else if n > suggestAt/2 {
			return contract.GrantSweep{Expired: 1}, nil
		}
		return contract.GrantSweep{Expired: 1, More: true, From: at}, nil
	}})
	id := "record-expiry-continues"
	first := keepExpiry(ctx, t, c, id)
	g.await(ctx, t)
	g.letGo <- struct{}{}
	require.Equal(t, contract.GrantSweep{Expired: suggestAt/2 + 1}, awaitSweep(ctx, t, c, id))
	return id, first
}
