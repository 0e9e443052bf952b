package lockpath

import "github.com/bursarhq/bursar/lockorder"

// RuleChangeCommit is activities.Operator.RuleChange.
var RuleChangeCommit = path(Path{
	Name: "rule-change-commit", Area: Rules, Kind: lockorder.RuleChange,
	Rows: []Step{
		{Class: lockorder.EntitlementSet},
		{Class: lockorder.SetRule, Of: "of each stored rule that changes", When: "where one is stored"},
		{Class: lockorder.Pool, Of: "of every pool that holds a product with the set", When: "where the change reaches one, and no more than the cap"},
		{Class: lockorder.ChangeObligation, Of: "of all that these pools are owed", When: "where an earlier change left one owed"},
	},
	Does: "Changes rules of one set, and settles every pool that holds a product with it, or leaves them owed where they are more than the cap.",
	By:   []string{"activity RuleChange"},
})

// RuleChangeDrain is activities.Drain.DrainChange, for each pool.
var RuleChangeDrain = path(Path{
	Name: "rule-change-drain", Area: Rules, Kind: lockorder.Materializing,
	Rows: []Step{
		{Class: lockorder.Pool},
		{Class: lockorder.ChangeObligation, Of: "of all that the pool is owed", When: "where nobody settled it meanwhile"},
	},
	Does: "Settles what one pool is owed.",
	By:   []string{"activity DrainChange"},
})

// RuleChangeFailure is activities.Drain.DrainChange, after a pool that could not be settled.
var RuleChangeFailure = path(Path{
	Name: "rule-change-failure", Area: Rules, Kind: lockorder.Materializing,
	Rows: []Step{{Class: lockorder.ChangeObligation}},
	Does: "Notes why a pool could not be settled, and parks what it is owed after the last try.",
	By:   []string{"activity DrainChange"},
})

// ObligationReopen is activities.Operator.ReopenObligations.
var ObligationReopen = path(Path{
	Name: "obligation-reopen", Area: Rules, Kind: lockorder.Plain,
	Rows: []Step{{Class: lockorder.ChangeObligation, Of: "of each that is parked, a page of them in one transaction"}},
	Does: "Lets what pools are owed, and is parked, be tried again.",
	By:   []string{"bursar parked retry"},
})
