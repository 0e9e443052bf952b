package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/bursarhq/bursar/workflows/contract"
)

const (
	// firstDrainPause and longestDrainPause bound the pause between two passes over what a change owes: it doubles.
	firstDrainPause   = 2 * time.Second
	longestDrainPause = time.Minute
)

// RuleChangeDrain settles every pool that a change owes, a pass after another, with growing pauses, until none is open: each is
// settled then, or parked with the reason. One drain of a change runs at a time. It keeps counts only, so a change of any
// size needs no more history than a small one; a run that is lost or fails loses nothing, since what is open is asked of the tables.
func RuleChangeDrain(ctx workflow.Context, in contract.RuleChangeDrainInput) (contract.RuleChangeDrainResult, error) {
	for {
		turn, err := drainChange(ctx, contract.DrainRequest{ChangeID: in.ChangeID, After: in.After, Pass: in.Pass})
		if err != nil {
			setOutcome(ctx, contract.OutcomeFailed)
			return contract.RuleChangeDrainResult{}, err
		}
		in.Settled, in.Failed, in.After = in.Settled+turn.Settled, in.Failed+turn.Failed, turn.After
		workflow.SetCurrentDetails(ctx, drainDetails(in, turn))
		if turn.Open == 0 {
			outcome := contract.OutcomeDone
			if turn.Parked > 0 {
				outcome = contract.OutcomeParked
			}
			setOutcome(ctx, outcome)
			return contract.RuleChangeDrainResult{Settled: in.Settled, Failed: in.Failed, Parked: turn.Parked}, nil
		}
		if turn.After == "" {
			if in.Pass == 0 {
				setOutcome(ctx, contract.OutcomeRetrying)
			}
			if err := workflow.Sleep(ctx, drainPause(in.Pass)); err != nil {
				return contract.RuleChangeDrainResult{}, err
			}
			in.Pass++
		}
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() {
			return contract.RuleChangeDrainResult{}, workflow.NewContinueAsNewError(ctx, contract.RuleChangeDrain, in)
		}
	}
}

// drainPause is the pause after a pass.
func drainPause(pass int) time.Duration {
	if pass > 10 {
		return longestDrainPause
	}
	return min(firstDrainPause<<pass, longestDrainPause)
}

// drainDetails tells how far the drain is.
func drainDetails(in contract.RuleChangeDrainInput, turn contract.DrainTurn) string {
	details := fmt.Sprintf("Settled: %d; open: %d; parked: %d; failed tries: %d.", in.Settled, turn.Open, turn.Parked, in.Failed)
	if turn.Busy > 0 {
		details += fmt.Sprintf(" %d pools were held by others, and are tried again.", turn.Busy)
	}
	return details
}

// DrainStart starts the drain of every change that owes pools and has none running. The schedule contract.ScheduleDrainStart starts
// it. Which changes owe is asked of the tables each time, so a run that is missed or fails loses nothing.
func DrainStart(ctx workflow.Context) (contract.DrainStartResult, error) {
	workflow.SetCurrentDetails(ctx, "Looking for changes that owe pools.")
	result, err := startDrains(ctx)
	if err != nil {
		return result, err
	}
	workflow.SetCurrentDetails(ctx, fmt.Sprintf("Changes that owe pools: %d; each has a drain.", result.Owing))
	return result, nil
}
