// Package workflows holds Bursar's Temporal workflows: one file for each, and what they share.
//
// A workflow decides when something is done and what follows from its outcome; what is done is in package
// activities. Workflow code is replayed: it reads no clock, no random number and no map in map order, and calls nothing but
// activities. Names, ids and inputs are in package contract.
//
// # To add a workflow
//
// Add its file, its line in register.go, its names in contract, and record a history of it: a scenario in
// record_test.go, run by make record. The replay test fails for a workflow that has none. A history under
// testdata/replay stands for workflows that are running somewhere: a change that makes one fail needs
// workflow.GetVersion, not a new recording.
//
// # Invariants of SubscriptionReconcile
//
//   - There is one for a subscription, by its id, so two reconciles of one subscription never run side by side
//     unless somebody goes round it; the version check of the activity covers that case too.
//   - Every signal and every update is covered by a read of Stripe begun after it arrived. What is not covered yet
//     is carried by continue-as-new; a signal that races with the end of a run makes the server refuse that end.
//   - A link that cannot be made yet holds up a read by seconds only, and leads to another read once it is made.
//   - It never gives up on an outage. What cannot succeed is parked, where an operator sees it.
package workflows
