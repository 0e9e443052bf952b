package workflows

import (
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/bursarhq/bursar/workflows/contract"
)

const (
	// linkPersistence bounds all tries that one pass makes of a link: the read of the subscription waits for them.
	linkPersistence = 20 * time.Second
	// maxLinkPause bounds the pause between passes that try a link in vain. It begins with firstLinger and doubles.
	maxLinkPause = time.Minute
	// maxAskedPause bounds a pause that a failure asks for.
	maxAskedPause = 3 * time.Minute
)

// checkouts are the checkout sessions of one run whose customers are to be linked. A read does not wait for a link that fails for
// a reason which may pass: it is tried again in later passes, and once it succeeds, the subscription is read again.
type checkouts struct {
	waiting []contract.ReconcileSignal // each session once, in the order of arrival
	done    map[string]bool            // sessions for which nothing is left to do, whatever signal comes

	failure error // of the last pass that tried, nil when it left nothing to try again
	pause   time.Duration
	next    time.Time // when they are tried again; zero is at once
}

// add notes the checkout that a signal names. One that was parked is tried again: an operator may have asked for it. What
// is no session's id cannot be linked; its signal leads to a read all the same.
func (c *checkouts) add(signal contract.ReconcileSignal) {
	session := signal.CheckoutSession
	if !validStripeID(session, "cs_") || c.done[session] {
		return
	}
	c.next = time.Time{}
	if !c.waits(session) {
		c.waiting = append(c.waiting, signal)
	}
}

func (c *checkouts) waits(session string) bool {
	return slices.ContainsFunc(c.waiting, func(s contract.ReconcileSignal) bool { return s.CheckoutSession == session })
}

func (c *checkouts) due(now time.Time) bool { return len(c.waiting) > 0 && !now.Before(c.next) }

// settle notes how a pass ended that tried some checkouts: again are those to be tried another time.
func (c *checkouts) settle(now time.Time, again []contract.ReconcileSignal, failure error) {
	// What is there now came during the tries.
	came := slices.DeleteFunc(c.waiting, func(s contract.ReconcileSignal) bool { return c.done[s.CheckoutSession] })
	c.waiting, c.failure = again, failure
	for _, signal := range came {
		if !c.waits(signal.CheckoutSession) {
			c.waiting = append(c.waiting, signal)
		}
	}
	if failure == nil {
		c.pause, c.next = 0, time.Time{}
		return
	}
	c.pause = min(max(2*c.pause, firstLinger), maxLinkPause)
	if len(came) == 0 {
		c.next = now.Add(max(c.pause, askedPause(failure)))
	}
}

// link links the customer of each checkout that is due. It tells whether one is linked now. What stands in the way for good is
// parked. It returns an error only when the workflow has been cancelled.
func (r *reconciler) link(ctx workflow.Context) (linked bool, err error) {
	if !r.checkouts.due(workflow.Now(ctx)) {
		return false, nil
	}
	tried := r.checkouts.waiting
	r.checkouts.waiting = nil // a signal that comes during the try asks for another one, unless this one succeeds
	r.describe(ctx, "Linking the customer of checkout "+tried[0].CheckoutSession+".")
	links := make([]workflow.Future, 0, len(tried))
	for _, signal := range tried { // side by side, so that they share the time
		links = append(links, linkFromCheckout(ctx, contract.LinkRequest{SubscriptionID: r.id, CheckoutSession: signal.CheckoutSession}))
	}
	var again []contract.ReconcileSignal
	var failure error
	for i, signal := range tried {
		session := signal.CheckoutSession
		var result contract.LinkResult
		err := links[i].Get(ctx, &result)
		if err != nil && permanent(err) {
			result, err = r.parkCheckout(ctx, session, err)
		}
		switch {
		case temporal.IsCanceledError(err):
			return linked, err
		case err != nil:
			workflow.GetLogger(ctx).Warn("the customer of a checkout could not be linked yet; it will be tried again", "checkout", session, "error", err)
			again, failure = append(again, signal), err
		case result.Linked:
			linked = true
			r.last.Organization = result.Organization
			r.checkouts.done[session] = true
		case result.NothingToDo:
			r.checkouts.done[session] = true
		}
	}
	r.checkouts.settle(workflow.Now(ctx), again, failure)
	return linked, nil
}

// parkCheckout records for an operator that the customer of a checkout cannot be linked.
func (r *reconciler) parkCheckout(ctx workflow.Context, session string, cause error) (contract.LinkResult, error) {
	reason := failureText(cause)
	workflow.GetLogger(ctx).Error("the customer of a checkout cannot be linked, and the checkout is parked", "checkout", session, "error", cause)
	err := parkCheckout(ctx, contract.ParkRequest{SubscriptionID: r.id, CheckoutSession: session, Reason: reason})
	return contract.LinkResult{ParkedReason: "failed", Detail: "Parked, it failed for good: " + reason}, err
}

// askedPause is how long the failure of an activity asks to wait before it is tried again, 0 when it does not say. Where
// that is longer than the time that the tries of an activity have, the server ends them and leaves the wait to the workflow.
func askedPause(failure error) time.Duration {
	var appErr *temporal.ApplicationError
	if errors.As(failure, &appErr) {
		return min(appErr.NextRetryDelay(), maxAskedPause)
	}
	return 0
}
