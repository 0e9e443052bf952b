package lockpath

import "github.com/bursarhq/bursar/lockorder"

// settles are the steps of a change that settles the pools it reaches.
func settles(before ...Step) []Step {
	return append(before,
		Step{Class: lockorder.Pool, Of: "of every pool that holds the product", When: "where the change reaches one, and no more than the cap"},
		Step{Class: lockorder.ChangeObligation, Of: "of all that these pools are owed", When: "where an earlier change left one owed"})
}

// TierAdd is activities.Operator.TierAdd.
var TierAdd = path(Path{
	Name: "tier-add", Area: Ladders, Kind: lockorder.RuleChange,
	Rows: settles(Step{Class: lockorder.OrganizationType, Of: "of every type, so that no default is saved meanwhile"}),
	Does: "Puts a product on a ladder, and settles every pool that holds it or whose default follows the floor, or leaves them owed where they are more than the cap.",
	By:   []string{"activity TierAdd", "bursar tier add"},
})

// TierRemove is activities.Operator.TierRemove for a product that may be held.
var TierRemove = path(Path{
	Name: "tier-remove", Area: Ladders, Kind: lockorder.RuleChange,
	Rows: settles(Step{Class: lockorder.OrganizationType, Of: "of every type, so that the product does not become a default meanwhile"}),
	Does: "Takes a product off its ladder, says what stands in its place, and settles every pool that holds it, or leaves them owed where they are more than the cap.",
	By:   []string{"activity TierRemove", "bursar tier remove"},
})

// TierDelete is activities.Operator.TierRemove for a product that nobody holds.
var TierDelete = path(Path{
	Name: "tier-delete", Area: Ladders, Kind: lockorder.RuleChange,
	Rows: []Step{{Class: lockorder.OrganizationType, Of: "of every type, so that the product does not become a default meanwhile"}},
	Does: "Takes a product that no pool holds off its ladder.",
	By:   []string{"activity TierRemove", "bursar tier delete"},
})

// TierReorder is activities.Operator.TierReorder.
var TierReorder = path(Path{
	Name: "tier-reorder", Area: Ladders, Kind: lockorder.RuleChange,
	Rows: []Step{
		{Class: lockorder.OrganizationType, Of: "of every type, so that no default is saved meanwhile"},
		{Class: lockorder.Pool, Of: "of every pool that holds two of the ladder's tiers", When: "where there is one, and no more than the cap"},
		{Class: lockorder.ChangeObligation, Of: "of all that these pools are owed", When: "where an earlier change left one owed"},
	},
	Does: "Puts the tiers of a ladder into another order, and settles every pool in which it decides or whose default follows the floor, or leaves them owed where they are more than the cap.",
	By:   []string{"activity TierReorder", "bursar tier reorder"},
})

// DefaultSave is activities.Operator.DefaultChange.
var DefaultSave = path(Path{
	Name: "default-save", Area: Ladders, Kind: lockorder.Plain,
	Rows: []Step{{Class: lockorder.OrganizationType}},
	Does: "Saves the default of an organisation type, and leaves the default pool of each of its organisations owed.",
	By:   []string{"activity DefaultChange", "bursar default change"},
})
