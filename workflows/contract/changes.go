package contract

import (
	"encoding/json"

	"github.com/google/uuid"
)

// ActRuleChange is the activity that changes the rules of a set; it is an act.
const ActRuleChange = "RuleChange"

// Activities of drains.
const (
	ActivityDrainChange = "DrainChange"
	ActivityStartDrains = "StartDrains"
)

// DrainStart is the workflow that starts the drain of every change that owes pools. It catches what the workflow of a
// change did not: a change made where no worker was, and what was parked and is to be tried again.
const DrainStart = "DrainStart"

// DrainStartWorkflowID is the id of DrainStart. The schedule appends a time to it.
const DrainStartWorkflowID = "drain-start"

// ScheduleDrainStart starts DrainStart.
const ScheduleDrainStart = "drain-start"

// RuleChange is the input of ActRuleChange.
type RuleChange struct {
	// Change is the id of the change that is made.
	Change uuid.UUID `json:"change"`
	// Set is the set's slug.
	Set    string      `json:"set"`
	Deltas []RuleDelta `json:"deltas"`
}

// RuleDelta is one rule as it shall be.
type RuleDelta struct {
	Key string `json:"key"`
	// Value is a whole number, true, false, or null where the rule goes.
	Value json.RawMessage `json:"value"`
}

// DrainRequest is the input of ActivityDrainChange: one turn of a pass over the pools that a change owes.
type DrainRequest struct {
	ChangeID string `json:"change_id"`
	// After is the pool that the last turn of the pass ended with, "" for its first turn.
	After string `json:"after,omitempty"`
	// Pass counts the passes from 0. From the fifth on, a pool that is always busy counts as failed.
	Pass int `json:"pass,omitempty"`
}

// DrainTurn is what one turn did.
type DrainTurn struct {
	// After is the pool to go on from, "" where the pass is through.
	After string `json:"after,omitempty"`
	// Settled, Failed and Busy count the pools of this turn: those that owe nothing any more, those that could not be settled,
	// and those that somebody held.
	Settled int `json:"settled"`
	Failed  int `json:"failed,omitempty"`
	Busy    int `json:"busy,omitempty"`
	// Open and Parked are how many the change owes after the turn, and how many of what it owes are parked.
	Open   int `json:"open"`
	Parked int `json:"parked,omitempty"`
}

// RuleChangeDrainResult is the result of RuleChangeDrain.
type RuleChangeDrainResult struct {
	// Settled counts the pools that it found to owe nothing any more, Failed the tries that failed.
	Settled int `json:"settled"`
	Failed  int `json:"failed"`
	// Parked is how many pools are parked at its end.
	Parked int `json:"parked"`
}

// DrainStartResult is the result of DrainStart.
type DrainStartResult struct {
	// Owing is how many changes owe pools. Each has a drain now.
	Owing int `json:"owing"`
}
