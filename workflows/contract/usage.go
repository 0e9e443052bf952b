package contract

import "github.com/google/uuid"

// Activities that change what is used of allowances; each is an act.
const (
	ActUsageSpend   = "UsageSpend"
	ActUsageRelease = "UsageRelease"
	ActUsageRaise   = "UsageRaise"
	ActUsageBound   = "UsageBound"
)

// UsageSpend is the input of ActUsageSpend.
type UsageSpend struct {
	Pool uuid.UUID `json:"pool"`
	Key  string    `json:"key"`
	// ID is the spend's: a repeat of it gets the first answer.
	ID string `json:"id"`
	N  int64  `json:"n"`
}

// UsageRelease is the input of ActUsageRelease.
type UsageRelease struct {
	Pool uuid.UUID `json:"pool"`
	Key  string    `json:"key"`
	// ID is the spend's.
	ID string `json:"id"`
	// Keep is how much of it stays spent.
	Keep int64 `json:"keep,omitempty"`
}

// UsageAdjust is the input of ActUsageRaise and ActUsageBound.
type UsageAdjust struct {
	Pool uuid.UUID `json:"pool"`
	Key  string    `json:"key"`
	// To is what the counter becomes at least, or at most.
	To int64 `json:"to"`
}
