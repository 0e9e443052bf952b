package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/bursarhq/bursar/workflows/contract"
)

// Keeper sees to it that one run of a workflow is under way, or is about to look again: it signals the workflow of the
// fixed id, starting it where none runs. A schedule starts it, again and again, so one that fails loses nothing.
func Keeper(ctx workflow.Context, in contract.KeeperInput) error {
	workflow.SetCurrentDetails(ctx, "Keeps "+in.ID+" running.")
	return keep(ctx, in)
}

// lookAgain tells whether a signal has come since it was last asked, and forgets it.
func lookAgain(ctx workflow.Context) (again bool) {
	signals := workflow.GetSignalChannel(ctx, contract.SignalLookAgain)
	for signals.ReceiveAsync(nil) {
		again = true
	}
	return again
}
