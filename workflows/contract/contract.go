// Package contract holds what the outside and the inside of a workflow agree on: names, ids, task queues, inputs,
// signals, updates and results. It is a leaf: it imports nothing of this module, so that the ingress, the command
// line and the workflows can all use it.
//
// Everything here is a wire format. Running workflows and recorded histories carry these names and fields:
// renaming one is a change of format, to be made like one.
package contract

import "time"

// Task queues. A hung Stripe fills the slots of IO and leaves those of DB alone.
const (
	// QueueDB runs workflows and the activities that only use the database.
	QueueDB = "db"
	// QueueIO runs the activities that call other services.
	QueueIO = "io"
)

// Workflow type names.
const (
	SubscriptionReconcile = "SubscriptionReconcile"
	ParkedRetry           = "ParkedRetry"
)

// Names of the signal and the update of SubscriptionReconcile.
const (
	// SignalReconcile says that something about the subscription may have changed.
	SignalReconcile = "reconcile"
	// UpdateReconcileNow asks for a read of Stripe begun after the update arrived, and answers with its outcome.
	UpdateReconcileNow = "reconcile-now"
)

// Activity names.
const (
	ActivityReconcileSubscription = "ReconcileSubscription"
	ActivityParkSubscription      = "ParkSubscription"
	ActivityLinkFromCheckout      = "LinkFromCheckout"
	ActivityRetryParked           = "RetryParked"
)

// Schedule ids.
const (
	// ScheduleParkedRetry starts ParkedRetry.
	ScheduleParkedRetry = "parked-retry"
)

// Search attributes, all of type Keyword. They carry ids and codes only, never personal data.
const (
	// AttrOrganization is the organisation's slug.
	AttrOrganization = "BursarOrganization"
	// AttrObject is what the workflow is about: the Stripe id of an object, the slug of a ladder or a set, the id of a grant or a change.
	AttrObject = "BursarObject"
	// AttrOutcome is the outcome of the last reconcile, of the act or of the drain, or OutcomeRetrying or OutcomeFailed.
	AttrOutcome = "BursarOutcome"
)

// SearchAttributes lists every search attribute that the worker registers.
func SearchAttributes() []string { return []string{AttrOrganization, AttrObject, AttrOutcome} }

// SubscriptionWorkflowID is the id of the one workflow that reconciles a subscription.
func SubscriptionWorkflowID(subscriptionID string) string { return "subscription/" + subscriptionID }

// ParkedRetryWorkflowID is the id of the one workflow that retries parked work. The schedule appends a time to it.
const ParkedRetryWorkflowID = "parked-retry"

// ReconcileSignal is the payload of SignalReconcile: ids only, never content.
type ReconcileSignal struct {
	// EventID is the Stripe event, empty when no event caused the signal.
	EventID string `json:"event_id,omitempty"`
	// EventType is the event's type, or a word for another cause: "parked-retry", "operator".
	EventType string `json:"event_type,omitempty"`
	// CheckoutSession is the id of the checkout session that made the subscription, when the event names one.
	CheckoutSession string `json:"checkout_session,omitempty"`
}

// SubscriptionReconcileInput starts SubscriptionReconcile. The last fields are set by continue-as-new only.
type SubscriptionReconcileInput struct {
	SubscriptionID string `json:"subscription_id"`
	// Carried are signals received and not yet covered by a read.
	Carried []ReconcileSignal `json:"carried,omitempty"`
	// CarriedOmitted counts signals that were carried without being remembered one by one.
	CarriedOmitted int `json:"carried_omitted,omitempty"`
	// Reconciles counts the reconciles of all runs.
	Reconciles int `json:"reconciles,omitempty"`
	// Linger is the coalescing pause that the next burst begins with.
	Linger time.Duration `json:"linger,omitempty"`
}

// ReconcileRequest is the input of ActivityReconcileSubscription.
type ReconcileRequest struct {
	SubscriptionID string `json:"subscription_id"`
	// Events are the events this read covers, kept for explanation.
	Events []ReconcileSignal `json:"events,omitempty"`
	// EventsOmitted counts the events that it covers too and that a long burst left unnamed.
	EventsOmitted int `json:"events_omitted,omitempty"`
}

// Outcomes of a reconcile.
const (
	OutcomeApplied   = "applied"   // Stripe's state now stands in the tables, and something changed
	OutcomeUnchanged = "unchanged" // Stripe's state already stood in the tables
	OutcomeParked    = "parked"    // it cannot be applied as a whole; the reason is in stripe.parked_work
)

// Values of AttrOutcome beside the outcomes: what became of the last try when it had none.
const (
	OutcomeRetrying = "retrying" // it failed in a way that may pass, and goes on being tried
	OutcomeFailed   = "failed"   // it could neither be applied nor parked: the workflow has failed
)

// ReconcileResult is what a reconcile did, in ids, codes and counts.
type ReconcileResult struct {
	Outcome string `json:"outcome"`
	// Status is Stripe's status of the subscription, empty when Stripe did not show it.
	Status string `json:"status,omitempty"`
	// Organization is the slug of the organisation, empty when the customer is linked to none.
	Organization string `json:"organization,omitempty"`
	// Version is the mirror row's version after the reconcile.
	Version int64 `json:"version"`
	// Reads counts the retrieves made: over 1 when another reconcile committed meanwhile.
	Reads int `json:"reads"`
	// Conferred, Changed and Ended count positions; Entitlements counts entitlement rows that changed.
	Conferred    int `json:"conferred,omitempty"`
	Changed      int `json:"changed,omitempty"`
	Ended        int `json:"ended,omitempty"`
	Entitlements int `json:"entitlements,omitempty"`
	// ParkedReason is the reason's code when Outcome is OutcomeParked.
	ParkedReason string `json:"parked_reason,omitempty"`
	// Detail is one sentence for a person.
	Detail string `json:"detail,omitempty"`
}

// ParkRequest is the input of ActivityParkSubscription: a reconcile, or the link of a checkout, failed for good.
type ParkRequest struct {
	SubscriptionID string `json:"subscription_id"`
	// CheckoutSession is the checkout to park; empty parks the subscription.
	CheckoutSession string `json:"checkout_session,omitempty"`
	// Reason is the failure's text as it is shown to the operator.
	Reason string `json:"reason"`
	// Events are the events that the failed reconciles should have covered.
	Events []ReconcileSignal `json:"events,omitempty"`
}

// LinkRequest is the input of ActivityLinkFromCheckout.
type LinkRequest struct {
	SubscriptionID  string `json:"subscription_id"`
	CheckoutSession string `json:"checkout_session"`
}

// LinkResult says what LinkFromCheckout did.
type LinkResult struct {
	// Linked is true when the customer is now linked to the organisation that the checkout names.
	Linked bool `json:"linked"`
	// NothingToDo is true when the checkout leaves nothing to link, now or later. With neither it nor Linked, another try may
	// have another outcome.
	NothingToDo bool `json:"nothing_to_do,omitempty"`
	// Organization is the organisation's slug, empty when there is none.
	Organization string `json:"organization,omitempty"`
	// ParkedReason is the reason's code when the checkout was parked.
	ParkedReason string `json:"parked_reason,omitempty"`
	// Detail is one sentence for a person.
	Detail string `json:"detail,omitempty"`
}

// SubscriptionReconcileResult is the result of a closed SubscriptionReconcile.
type SubscriptionReconcileResult struct {
	Reconciles int             `json:"reconciles"`
	Last       ReconcileResult `json:"last"`
}

// ParkedRetryResult is the result of ParkedRetry.
type ParkedRetryResult struct {
	// Due is how many parked subscriptions were due for another try, Signalled how many were signalled.
	Due       int `json:"due"`
	Signalled int `json:"signalled"`
}
