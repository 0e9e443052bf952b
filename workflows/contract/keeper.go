package contract

// Keeper is the workflow that keeps another running. A schedule starts it: what a schedule starts gets an id of its own each
// time, and what it keeps has one fixed id, so that one of it runs at a time.
const Keeper = "Keeper"

// KeeperWorkflowID is the id of the keeper of a workflow; the schedule appends a time to it.
func KeeperWorkflowID(kept string) string { return "keeper/" + kept }

// ActivityKeep is the activity of Keeper.
const ActivityKeep = "Keep"

// SignalLookAgain tells a kept workflow that there may be something new. One that runs looks once more before it ends.
const SignalLookAgain = "look-again"

// KeeperInput starts Keeper.
type KeeperInput struct {
	// Workflow is the type of the workflow that is kept, ID its one id. It takes one input, and begins with an empty one.
	Workflow string `json:"workflow"`
	ID       string `json:"id"`
	// Summary is one line for the Temporal UI.
	Summary string `json:"summary"`
}
