package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/bursarhq/bursar/workflows/contract"
)

// ParkedRetry signals the workflow of every subscription whose parked work is due: what it waited for has appeared, or an
// operator asked. The schedule contract.ScheduleParkedRetry starts it, one at a time. Which work is due is asked of the
// tables each time, so a run that is missed or fails loses nothing: the next one finds the same and more.
func ParkedRetry(ctx workflow.Context) (contract.ParkedRetryResult, error) {
	workflow.SetCurrentDetails(ctx, "Looking for parked work that is due.")
	result, err := retryParked(ctx)
	if err != nil {
		return result, err
	}
	workflow.SetCurrentDetails(ctx, fmt.Sprintf("Due: %d; signalled: %d.", result.Due, result.Signalled))
	return result, nil
}
