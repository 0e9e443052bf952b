package lockpath

import "github.com/bursarhq/bursar/lockorder"

// OrganizationCreate is activities.Operator.CreateOrganization.
var OrganizationCreate = path(Path{
	Name: "organization-create", Area: Organizations, Kind: lockorder.Materializing,
	Rows: []Step{
		{Class: lockorder.OrganizationType, Of: "of the organisation's type, under which the default is read: a new default stands already, or finds the organisation among those to be settled"},
		{Class: lockorder.Pool, Of: "of the organisation's default pool, which this transaction makes"},
	},
	Does: "Makes an organisation with its default pool and confers the floor on it.",
	By:   []string{"bursar org create"},
})
