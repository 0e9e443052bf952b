package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/bursarhq/bursar/workflows/contract"
)

const (
	// firstLinger is the pause before the next read when something arrived during the last one. It doubles up to
	// maxLinger for as long as that goes on.
	firstLinger = time.Second
	maxLinger   = 8 * time.Second
)

// Types of the errors that SubscriptionReconcile answers with.
const (
	// ErrTypeInvalidInput fails a run that was started with an input or an id that does not name a subscription.
	ErrTypeInvalidInput = "InvalidInput"
	// ErrTypeNotReconciledYet fails a reconcile-now update whose read did not succeed in time. The workflow goes on trying.
	ErrTypeNotReconciledYet = "NotReconciledYet"
)

// SubscriptionReconcile brings what is held for one Stripe subscription in line with what Stripe shows. Signals and
// updates say that something may have changed; it reads Stripe once for all of them, and completes when nothing
// is waiting. Its id is contract.SubscriptionWorkflowID.
//
// A first read begins at once. When signals arrived while it ran, the next one waits a second, doubling to eight
// while they keep coming, so that a burst costs a handful of reads; an update does not wait. The customer of a checkout that a
// signal names is linked before the read, which does not wait long for it. A failure that may pass is retried for ever, one
// that cannot is parked.
func SubscriptionReconcile(ctx workflow.Context, in contract.SubscriptionReconcileInput) (contract.SubscriptionReconcileResult, error) {
	r := &reconciler{
		id:         in.SubscriptionID,
		signals:    workflow.GetSignalChannel(ctx, contract.SignalReconcile),
		checkouts:  checkouts{done: map[string]bool{}},
		reconciles: in.Reconciles,
		linger:     in.Linger,
	}
	if err := checkSubscriptionRun(ctx, r.id); err != nil {
		return contract.SubscriptionReconcileResult{}, err
	}
	r.attributes.object = r.id
	r.pending.omitted = in.CarriedOmitted
	for _, signal := range in.Carried {
		r.add(signal)
	}
	// Updates that came with the start run before this returns.
	err := workflow.SetUpdateHandlerWithOptions(ctx, contract.UpdateReconcileNow, r.reconcileNow, workflow.UpdateHandlerOptions{
		Validator:   validateReconcileNow,
		Description: "Reads the subscription from Stripe and applies it now; answers with the outcome.",
	})
	if err != nil {
		return contract.SubscriptionReconcileResult{}, err
	}
	return r.run(ctx)
}

// checkSubscriptionRun refuses a run that would reconcile nothing, or beside the one workflow of its subscription.
func checkSubscriptionRun(ctx workflow.Context, subscriptionID string) error {
	if !validStripeID(subscriptionID, "sub_") {
		return temporal.NewNonRetryableApplicationError(
			fmt.Sprintf("subscription_id %q is not the id of a Stripe subscription: it begins with sub_ and goes on with letters, digits and _", subscriptionID),
			ErrTypeInvalidInput, nil)
	}
	if got, want := workflow.GetInfo(ctx).WorkflowExecution.ID, contract.SubscriptionWorkflowID(subscriptionID); got != want {
		return temporal.NewNonRetryableApplicationError(
			fmt.Sprintf("the workflow id is %q; start it as %q, so that there is one for the subscription", got, want),
			ErrTypeInvalidInput, nil)
	}
	return nil
}

// reconciler is the state of one run.
type reconciler struct {
	id      string
	signals workflow.ReceiveChannel

	pending   batch // what no read covers yet
	checkouts checkouts

	// Passes of this run are numbered from 1. A pass is begun when its read begins. asked is the last pass that an
	// update waits for.
	begun, finished, asked int

	reconciles int                      // passes of all runs
	last       contract.ReconcileResult // of the last pass that ended well
	failure    error                    // of the last pass, nil when it ended well; it goes on being retried
	fatal      error                    // the last pass could neither be applied nor parked: a bug
	linger     time.Duration
	attributes searchAttributes
}

func (r *reconciler) run(ctx workflow.Context) (contract.SubscriptionReconcileResult, error) {
	r.receive()
	if r.reconciles == 0 && !r.wanted() {
		// Started by hand, without a signal: the start is the reason to look.
		r.add(contract.ReconcileSignal{EventType: "start"})
	}
	for {
		if !r.wanted() {
			if settled, err := r.settled(ctx); err != nil {
				return r.result(), err
			} else if settled && !r.wanted() {
				r.describe(ctx, "")
				return r.result(), r.fatal
			}
			continue
		}
		if err := r.pause(ctx); err != nil {
			return r.result(), err
		}
		if err := r.pass(ctx); err != nil {
			return r.result(), err
		}
		r.receive()
		r.linger = r.nextLinger()

		if r.backlog() && (r.failure != nil || workflow.GetInfo(ctx).GetContinueAsNewSuggested()) {
			if settled, err := r.settled(ctx); err != nil {
				return r.result(), err
			} else if settled {
				return r.result(), workflow.NewContinueAsNewError(ctx, SubscriptionReconcile, r.next())
			}
		}
	}
}

// settled waits until every update is answered and takes what has arrived meanwhile. It answers false when an update
// wants another read first. After true nothing has been waited for: what is returned next is decided on all that arrived.
func (r *reconciler) settled(ctx workflow.Context) (bool, error) {
	err := workflow.Await(ctx, func() bool { return r.asked > r.begun || workflow.AllHandlersFinished(ctx) })
	r.receive()
	return r.asked <= r.begun, err
}

// receive takes every signal that has arrived.
func (r *reconciler) receive() {
	for {
		var signal contract.ReconcileSignal
		if !r.signals.ReceiveAsync(&signal) {
			return
		}
		r.add(signal)
	}
}

// add notes one reason to read, and the checkout to link before it.
func (r *reconciler) add(signal contract.ReconcileSignal) {
	r.pending.add(signal)
	r.checkouts.add(signal)
}

// backlog tells whether something waits that outlives the run, wanted whether anything waits at all.
func (r *reconciler) backlog() bool { return !r.pending.empty() || len(r.checkouts.waiting) > 0 }
func (r *reconciler) wanted() bool  { return r.backlog() || r.asked > r.begun }

// readWanted tells whether something waits for a read, and not for a link alone.
func (r *reconciler) readWanted() bool { return !r.pending.empty() || r.asked > r.begun }

func (r *reconciler) nextLinger() time.Duration {
	switch {
	case r.failure != nil:
		return max(maxLinger, askedPause(r.failure))
	case r.pending.empty():
		return 0
	case r.linger == 0:
		return firstLinger
	}
	return min(2*r.linger, maxLinger)
}

// pause lets a burst gather. An update ends it. Where only checkouts wait, it lasts until they are tried again, and a signal ends
// it too.
func (r *reconciler) pause(ctx workflow.Context) error {
	wait, reason := r.linger, "Let a burst of events gather"
	ended := func() bool { return r.asked > r.begun }
	if r.pending.empty() {
		wait, reason = r.checkouts.next.Sub(workflow.Now(ctx)), "Wait before the next try of a link"
		ended = func() bool { return r.readWanted() || r.signals.Len() > 0 }
	}
	if wait <= 0 || ended() {
		return nil
	}
	r.describe(ctx, fmt.Sprintf("%s: %s.", reason, wait.Round(time.Second)))
	timerCtx, cancel := workflow.WithCancel(ctx)
	defer cancel() // a timer left behind would wake the run for nothing
	timer := workflow.NewTimerWithOptions(timerCtx, wait, workflow.TimerOptions{Summary: reason})
	return workflow.Await(ctx, func() bool { return timer.IsReady() || ended() })
}

// pass links what is to be linked, reads Stripe once and applies what it shows. Where nothing but a link was to be tried, and it did not
// succeed, there is nothing new to read. It returns an error only when the workflow has been cancelled; what else went
// wrong is in the state.
func (r *reconciler) pass(ctx workflow.Context) error {
	r.receive()
	linked, err := r.link(ctx)
	if err != nil {
		return err
	}
	r.receive() // the read that begins now covers these too
	if !linked && !r.readWanted() {
		r.describe(ctx, "")
		return nil
	}
	r.failure, r.fatal = nil, nil
	covered := r.pending.take()
	r.begun++
	r.reconciles++
	r.describe(ctx, "Reading the subscription from Stripe.")

	result, err := reconcileSubscription(ctx, contract.ReconcileRequest{
		SubscriptionID: r.id, Events: covered.signals, EventsOmitted: covered.omitted,
	})
	if err != nil && permanent(err) {
		result, err = r.park(ctx, covered, err)
	}
	switch {
	case temporal.IsCanceledError(err):
		return err
	case err != nil && permanent(err):
		r.fatal = err
	case err != nil:
		// Not applied: everything that it should have covered waits on, before what came meanwhile.
		r.failure = err
		covered.addAll(r.pending)
		r.pending = covered
		if r.pending.empty() {
			r.pending.add(contract.ReconcileSignal{EventType: "retry"})
		}
	default:
		r.last = result
	}
	r.finished = r.begun
	r.attributes.update(ctx, r.outcome(), r.last.Organization)
	r.describe(ctx, "")
	return nil
}

// park records for an operator that the reconcile cannot succeed.
func (r *reconciler) park(ctx workflow.Context, covered batch, cause error) (contract.ReconcileResult, error) {
	reason := failureText(cause)
	workflow.GetLogger(ctx).Error("the subscription cannot be reconciled and is parked", "error", cause)
	err := parkSubscription(ctx, contract.ParkRequest{SubscriptionID: r.id, Reason: reason, Events: covered.signals})
	return contract.ReconcileResult{
		Outcome:      contract.OutcomeParked,
		Organization: r.last.Organization,
		ParkedReason: "failed",
		Detail:       "Parked, it failed for good: " + reason,
	}, err
}

// reconcileNow answers with the outcome of a read begun after the update arrived.
func (r *reconciler) reconcileNow(ctx workflow.Context, signal contract.ReconcileSignal) (contract.ReconcileResult, error) {
	r.add(signal)
	mine := r.begun + 1
	r.asked = max(r.asked, mine)
	if err := workflow.Await(ctx, func() bool { return r.finished >= mine }); err != nil {
		return contract.ReconcileResult{}, err
	}
	switch {
	case r.fatal != nil:
		return contract.ReconcileResult{}, r.fatal
	case r.failure != nil:
		return contract.ReconcileResult{}, temporal.NewApplicationError(
			"the subscription could not be read and applied yet, and goes on being tried: "+failureText(r.failure), ErrTypeNotReconciledYet)
	}
	return r.last, nil
}

func validateReconcileNow(_ workflow.Context, signal contract.ReconcileSignal) error {
	switch {
	case signal.CheckoutSession != "" && !validStripeID(signal.CheckoutSession, "cs_"):
		return fmt.Errorf("checkout_session %q is not the id of a Stripe checkout session", signal.CheckoutSession)
	case signal.EventID != "" && !validStripeID(signal.EventID, "evt_"):
		return fmt.Errorf("event_id %q is not the id of a Stripe event", signal.EventID)
	case len(signal.EventType) > maxStripeID:
		return fmt.Errorf("event_type is %d bytes long, more than %d", len(signal.EventType), maxStripeID)
	}
	return nil
}

// next is the input of the run that goes on where this one stops.
func (r *reconciler) next() contract.SubscriptionReconcileInput {
	carried := r.pending
	for i := range carried.signals {
		if !r.checkouts.waits(carried.signals[i].CheckoutSession) {
			carried.signals[i].CheckoutSession = "" // it has been linked, or parked
		}
	}
	for _, signal := range r.checkouts.waiting {
		if !carried.has(signal) {
			carried.signals = append(carried.signals, signal) // also above the bound: it is work, not memory
		}
	}
	return contract.SubscriptionReconcileInput{
		SubscriptionID: r.id,
		Carried:        carried.signals,
		CarriedOmitted: carried.omitted,
		Reconciles:     r.reconciles,
		Linger:         max(r.linger, min(r.checkouts.pause, maxLinger)),
	}
}

func (r *reconciler) result() contract.SubscriptionReconcileResult {
	return contract.SubscriptionReconcileResult{Reconciles: r.reconciles, Last: r.last}
}

func (r *reconciler) outcome() string {
	switch {
	case r.fatal != nil:
		return contract.OutcomeFailed
	case r.failure != nil:
		return contract.OutcomeRetrying
	}
	return r.last.Outcome
}

// describe writes the line that the Temporal UI shows for the run. It begins as the summary does, which a run that goes on from
// another one does not get.
func (r *reconciler) describe(ctx workflow.Context, doing string) {
	line := ""
	switch {
	case r.fatal != nil:
		line = "Failed, and could not be parked: " + failureText(r.fatal)
	case r.failure != nil:
		line = "Not applied yet, trying again: " + failureText(r.failure)
	case r.last.Detail != "":
		line = r.last.Detail
	case r.last.Outcome != "":
		line = r.last.Outcome
	}
	unlinked := ""
	if r.checkouts.failure != nil {
		unlinked = "The customer of a checkout is not linked yet, trying again: " + failureText(r.checkouts.failure)
	}
	workflow.SetCurrentDetails(ctx, joinSentences("Reconcile "+r.id+" with Stripe.", doing, line, unlinked, fmt.Sprintf("Reads of Stripe: %d; signals waiting: %d.", r.reconciles, r.pending.count())))
}

// permanent tells a failure that no retry mends from an outage that outlasted an activity's time. The server calls the end of
// that time not retryable too, when it comes in the middle of a try.
func permanent(err error) bool {
	if temporal.IsTimeoutError(err) || temporal.IsCanceledError(err) {
		return false
	}
	var activityErr *temporal.ActivityError
	var appErr *temporal.ApplicationError
	if errors.As(err, &appErr) && appErr.NonRetryable() {
		return true
	}
	return errors.As(err, &activityErr) && activityErr.RetryState() == retryStateNonRetryable
}
