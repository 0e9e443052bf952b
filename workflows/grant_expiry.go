package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/bursarhq/bursar/workflows/contract"
)

// GrantExpiry goes through the grants that are due: it expires those whose end has come and settles the pools of those that
// have begun. Reads deny at the very instant without it. Keeper signals it every minute and starts it where it does not run; a
// signal that comes while it runs makes it look again, so what became due meanwhile is not missed. What is due is asked of the
// tables each time, so a run that is missed or fails loses nothing. Only counts enter its history.
func GrantExpiry(ctx workflow.Context, in contract.GrantExpiryInput) (contract.GrantSweep, error) {
	swept := in.Swept
	for {
		if !swept.More {
			lookAgain(ctx) // what was signalled so far is covered by the sweep that begins now
			swept.From = contract.GrantCursor{}
		}
		part, err := sweepGrants(ctx, swept.From)
		if err != nil {
			return swept, err
		}
		swept = swept.Add(part)
		workflow.SetCurrentDetails(ctx, fmt.Sprintf("Expired: %d; begun: %d; failed: %d; busy: %d.", swept.Expired, swept.Begun, swept.Failed, swept.Deferred))
		switch {
		case workflow.GetInfo(ctx).GetContinueAsNewSuggested():
			if again := lookAgain(ctx); !swept.More && !again {
				return swept, nil
			}
			return swept, workflow.NewContinueAsNewError(ctx, contract.GrantExpiry, contract.GrantExpiryInput{Swept: swept})
		case !swept.More && !lookAgain(ctx):
			return swept, nil
		}
	}
}
