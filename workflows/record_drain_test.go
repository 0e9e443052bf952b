package workflows

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/bursarhq/bursar/workflows/contract"
)

// onward is a pool that a turn ended with.
const onward = "0196f1b4-0000-7000-8000-000000000001"

// playDrain drains a change by turns that answer what the test says, and checks the result.
func playDrain(ctx context.Context, t *testing.T, c client.Client, change string, want contract.RuleChangeDrainResult, answer func(n int) (contract.DrainTurn, error)) (string, string) {
	t.Helper()
	var n atomic.Int32
	serve(t, c, outside{drain: func(context.Context, contract.DrainRequest) (contract.DrainTurn, error) { return answer(int(n.Add(1))) }})
	require.NoError(t, Starter{Client: c}.StartDrain(ctx, change))
	require.Equal(t, want, awaitDrain(ctx, t, c, change))
	return contract.RuleChangeDrainWorkflowID(change), ""
}

func playDrainPlain(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	return playDrain(ctx, t, c, "record-drain-plain", contract.RuleChangeDrainResult{Settled: 51}, func(int) (contract.DrainTurn, error) {
		return contract.DrainTurn{Settled: 51}, nil
	})
}

// playDrainGoesOn has a turn end before its pass is through, and the next fail once.
func playDrainGoesOn(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	return playDrain(ctx, t, c, "record-drain-goes-on", contract.RuleChangeDrainResult{Settled: 9000}, func(n int) (contract.DrainTurn, error) {
		switch n {
		case 1:
			return contract.DrainTurn{Settled: 5000, Open: 4000, After: onward}, nil
		case 2:
			return contract.DrainTurn{}, errors.New("the database went away")
		}
		return contract.DrainTurn{Settled: 4000}, nil
	})
}

// playDrainParks has a pool fail, and be parked by the next pass, and somebody hold another.
func playDrainParks(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	return playDrain(ctx, t, c, "record-drain-parks", contract.RuleChangeDrainResult{Settled: 51, Failed: 2, Parked: 1}, func(n int) (contract.DrainTurn, error) {
		if n == 1 {
			return contract.DrainTurn{Settled: 50, Failed: 1, Busy: 1, Open: 2}, nil
		}
		return contract.DrainTurn{Settled: 1, Failed: 1, Parked: 1}, nil
	})
}

// playDrainContinues has more turns than one run may keep.
func playDrainContinues(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	const change = "record-drain-continues"
	var n atomic.Int32
	serve(t, c, outside{drain: func(context.Context, contract.DrainRequest) (contract.DrainTurn, error) {
		if left := suggestAt - int(n.Add(1)); left > 0 {
			return contract.DrainTurn{Settled: 10, Open: 10 * left, After: onward}, nil
		}
		return contract.DrainTurn{Settled: 10}, nil
	}})
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: contract.RuleChangeDrainWorkflowID(change), TaskQueue: contract.QueueDB},
		contract.RuleChangeDrain, contract.RuleChangeDrainInput{ChangeID: change})
	require.NoError(t, err)
	first := run.GetRunID() // asked before it is awaited: then it is that of the last
	require.Equal(t, 10*suggestAt, awaitDrain(ctx, t, c, change).Settled)
	return contract.RuleChangeDrainWorkflowID(change), first
}

func playDrainStart(ctx context.Context, t *testing.T, c client.Client) (string, string) {
	const id = "drain-start-record"
	serve(t, c, outside{drains: func(context.Context) (contract.DrainStartResult, error) {
		return contract.DrainStartResult{Owing: 2}, nil
	}})
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: contract.QueueDB}, contract.DrainStart)
	require.NoError(t, err)
	var got contract.DrainStartResult
	require.NoError(t, run.Get(ctx, &got))
	require.Equal(t, 2, got.Owing)
	return id, ""
}
