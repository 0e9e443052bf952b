package contract

import "encoding/json"

// OperatorAct is the workflow of one act of a person: it runs one activity, then what follows from it.
const OperatorAct = "OperatorAct"

// OperatorActWorkflowID is the id of the workflow of one act; the act's id is a UUID of its own.
func OperatorActWorkflowID(act string) string { return "act/" + act }

// OperatorActInput starts OperatorAct.
type OperatorActInput struct {
	// Act is the name of the activity that does it.
	Act string `json:"act"`
	// Input is that activity's input. It names the ids of the rows that the act makes, so that a repeat makes no others.
	Input json.RawMessage `json:"input"`
	// Organization is the slug of the organisation it is about, empty for none or several.
	Organization string `json:"organization,omitempty"`
	// Object is the id or slug of what it is about: a grant, a set, a ladder.
	Object string `json:"object,omitempty"`
	// Summary is one line for the Temporal UI.
	Summary string `json:"summary"`
}

// ActResult is what the activity of every act answers.
type ActResult struct {
	// Detail is one sentence for a person: what was done, or that it stood already.
	Detail string `json:"detail"`
	// Data is the outcome for a program, its form the act's own.
	Data json.RawMessage `json:"data,omitempty"`
	// Change is set where the act committed a change of what products give.
	Change *ChangeRef `json:"change,omitempty"`
}

// ChangeRef names a committed change.
type ChangeRef struct {
	// ID is the change's UUID.
	ID string `json:"id"`
	// Owed is how many pools it left to be settled: RuleChangeDrain settles them.
	Owed int `json:"owed"`
}

// Outcomes of an act, as AttrOutcome shows them beside OutcomeRetrying and OutcomeFailed.
const (
	OutcomeDone = "done"
)

// RuleChangeDrain is the workflow that settles what a change owes.
const RuleChangeDrain = "RuleChangeDrain"

// RuleChangeDrainWorkflowID is the id of the one workflow that drains a change.
func RuleChangeDrainWorkflowID(change string) string { return "rule-change/" + change }

// RuleChangeDrainInput starts RuleChangeDrain. The counts are set by continue-as-new only.
type RuleChangeDrainInput struct {
	ChangeID string `json:"change_id"`
	// Settled and Failed count what earlier runs did.
	Settled int `json:"settled,omitempty"`
	Failed  int `json:"failed,omitempty"`
	// Pass counts the passes over what was left open, for the pause between two; After is where this one goes on.
	Pass  int    `json:"pass,omitempty"`
	After string `json:"after,omitempty"`
}
