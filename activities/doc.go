// Package activities is what workflows do: it reads Stripe, composes the domain packages in lockorder transactions, and
// translates their errors for Temporal.
//
// # Shape
//
// Receivers are structs of dependencies, one file for each area: Subscriptions, Parked, Operator. Every exported
// method is an activity: it takes and returns values that can be stored in a history, opens one transaction at a time,
// and says in its comment why running it twice is safe.
//
// # Authority
//
// Stripe is called outside any transaction, always. What was read is applied only if nothing was committed since the read
// began; billing's version tells. The database's clock decides, never Go's.
//
// # Failure
//
// errors.go is the one table that turns a verdict of lockorder, an error of Stripe or an error of a domain into a Temporal
// error, retryable or not, with the pause before the next try. An error that is not in it is retryable. What trying again cannot
// help is parked by the workflow, with the error's text as the reason that an operator reads.
package activities
