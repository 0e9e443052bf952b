package workflows

import (
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/bursarhq/bursar/workflows/contract"
)

// served is the one list of workflows: the name on the wire and the function behind it.
var served = []struct {
	name string
	fn   any
}{
	{contract.SubscriptionReconcile, SubscriptionReconcile},
	{contract.ParkedRetry, ParkedRetry},
	{contract.OperatorAct, OperatorAct},
	{contract.RuleChangeDrain, RuleChangeDrain},
	{contract.DrainStart, DrainStart},
	{contract.Keeper, Keeper},
	{contract.GrantExpiry, GrantExpiry},
}

// Register makes a worker or a replayer serve every workflow. Workers of contract.QueueDB call it.
func Register(registry worker.WorkflowRegistry) {
	for _, w := range served {
		registry.RegisterWorkflowWithOptions(w.fn, workflow.RegisterOptions{Name: w.name})
	}
}

// Names returns the names of all workflows, in the order of registration.
func Names() []string {
	names := make([]string, 0, len(served))
	for _, w := range served {
		names = append(names, w.name)
	}
	return names
}
