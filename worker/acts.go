package worker

import (
	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/workflows/contract"
)

// acts is the one list of what an operator can do through OperatorAct: each is one activity of the DB queue.
func acts(operator *activities.Operator) map[string]any {
	return map[string]any{
		contract.ActTierAdd:            operator.TierAdd,
		contract.ActTierRemove:         operator.TierRemove,
		contract.ActTierReorder:        operator.TierReorder,
		contract.ActDefaultChange:      operator.DefaultChange,
		contract.ActOrganizationCreate: operator.OrganizationCreate,
		contract.ActRuleChange:         operator.RuleChange,
		contract.ActGrantIssue:         operator.GrantIssue,
		contract.ActGrantExtend:        operator.GrantExtend,
		contract.ActGrantManage:        operator.GrantManage,
		contract.ActGrantRevoke:        operator.GrantRevoke,
		contract.ActGrantResume:        operator.GrantResume,
		contract.ActUsageSpend:         operator.UsageSpend,
		contract.ActUsageRelease:       operator.UsageRelease,
		contract.ActUsageRaise:         operator.UsageRaise,
		contract.ActUsageBound:         operator.UsageBound,
	}
}
