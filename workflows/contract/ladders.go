package contract

import "github.com/google/uuid"

// Activities that change ladders, defaults and organisations; each is an act.
const (
	ActTierAdd            = "TierAdd"
	ActTierRemove         = "TierRemove"
	ActTierReorder        = "TierReorder"
	ActDefaultChange      = "DefaultChange"
	ActOrganizationCreate = "OrganizationCreate"
)

// TierAdd is the input of ActTierAdd.
type TierAdd struct {
	// Change is the id of the change that is made.
	Change  uuid.UUID `json:"change"`
	Product string    `json:"product"`
	Ladder  string    `json:"ladder"`
	// Rank is the new tier's place, 0 for the floor; nil is the top.
	Rank *int `json:"rank,omitempty"`
}

// TierRemove is the input of ActTierRemove.
type TierRemove struct {
	Change  uuid.UUID `json:"change"`
	Product string    `json:"product"`
	// Disposition is "migrate", "end", or "" to refuse a product that is held.
	Disposition string `json:"disposition,omitempty"`
	// To is the tier that holders are migrated to, "" for the ladder's floor.
	To string `json:"to,omitempty"`
}

// TierReorder is the input of ActTierReorder.
type TierReorder struct {
	Change uuid.UUID `json:"change"`
	Ladder string    `json:"ladder"`
	// Products are all the ladder's tiers, the floor first.
	Products []string `json:"products"`
}

// DefaultChange is the input of ActDefaultChange.
type DefaultChange struct {
	Change uuid.UUID `json:"change"`
	Type   string    `json:"type"`
	// Product is the new default, "" for none.
	Product string `json:"product"`
	// Incumbents is "migrate" or "grandfather".
	Incumbents string `json:"incumbents"`
}

// OrganizationCreate is the input of ActOrganizationCreate.
type OrganizationCreate struct {
	ID   uuid.UUID `json:"id"`
	Pool uuid.UUID `json:"pool"`
	Slug string    `json:"slug"`
	// Name is what people call it. It may be a person's, so it is no search attribute.
	Name string `json:"name"`
	Type string `json:"type"`
}
