package lockpath

import "github.com/bursarhq/bursar/lockorder"

// CatalogApply is catalog.Plan, which rolls back, and catalog.Apply, which commits.
var CatalogApply = path(Path{
	Name: "catalog-apply", Area: Catalogue, Kind: lockorder.RuleChange,
	Rows: []Step{
		{Class: lockorder.EntitlementSet, Of: "of each stored set that the file names", When: "where it names one"},
		{Class: lockorder.SetRule, Of: "of each rule of these sets", When: "where they have one"},
		{Class: lockorder.OrganizationType, Of: "of each stored type that the file names", When: "where it names one"},
		{Class: lockorder.Pool, Of: "of every pool that the change reaches", When: "where it reaches one, and no more than the cap"},
		{Class: lockorder.ChangeObligation, Of: "of all that these pools are owed", When: "where an earlier change left one owed"},
		{Class: lockorder.ResourceKey, Of: "of each stored resource key that the file alters", When: "where it alters one"},
	},
	Does: "Makes the catalogue and the mappings what a file says, moves positions whose price is mapped anew, and settles every pool reached, or leaves them owed where they are more than the cap.",
	By:   []string{"bursar catalog apply"},
})
