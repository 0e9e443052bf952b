package activities

import (
	"context"
	"errors"
	"fmt"

	"github.com/stripe/stripe-go/v79"
	"go.temporal.io/sdk/activity"

	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/lockpath"
	"github.com/bursarhq/bursar/internal/stripeapi"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows/contract"
)

// StripeReader reads objects of Stripe by id. Each call is bounded, and errors are those of package stripeapi.
type StripeReader interface {
	// Subscription returns a subscription with all its items.
	Subscription(ctx context.Context, id string) (*stripe.Subscription, error)
	// CheckoutSession returns a checkout session.
	CheckoutSession(ctx context.Context, id string) (*stripe.CheckoutSession, error)
}

// Subscriptions are the activities about one Stripe subscription.
type Subscriptions struct {
	// DB opens the transactions. These activities wait for Stripe, so many may run at once: give them a handle made with
	// lockorder.DB.Limited, so that they cannot use up the pool.
	DB     *lockorder.DB
	Stripe StripeReader
	// Livemode says which objects are ours: live ones, or those of the test mode.
	Livemode bool
}

// maxReads is how often one try reads Stripe when others keep committing meanwhile.
const maxReads = 3

// actReconcile is the name under which positions and the ledger keep what a reconcile did.
const actReconcile = "subscription-reconcile"

// ReconcileSubscription reads the subscription from Stripe and makes positions, entitlements and the mirror follow it, or
// parks it where they cannot. Read and apply are one activity, with no transaction open during the read: the mirror's version is noted
// before the read and compared under the subscription's key. Where it moved, another reconcile committed since, what
// was read may be the older state, and Stripe is read again, at most three times; then the try fails with
// SubscriptionMoving, which is retryable.
//
// Running it twice is safe: it takes nothing from its input but the id. A second run reads Stripe anew and converges to
// what it finds; where that stands already, it writes no position, no entitlement and no ledger line, and only raises the
// version. Event ids are kept once. A run whose COMMIT was lost either stands, and the next run finds it so, or does not,
// and the next run does it.
func (s *Subscriptions) ReconcileSubscription(ctx context.Context, request contract.ReconcileRequest) (contract.ReconcileResult, error) {
	defer keepAlive(ctx)()
	result, err := s.reconcile(ctx, request)
	return result, translate(ctx, err)
}

func (s *Subscriptions) reconcile(ctx context.Context, request contract.ReconcileRequest) (contract.ReconcileResult, error) {
	id := request.SubscriptionID
	if err := billing.CheckSubscriptionID(id); err != nil {
		return contract.ReconcileResult{}, err
	}
	for reads := 1; ; reads++ {
		noted, err := reading(ctx, func(ctx context.Context) (int64, error) { return billing.Version(ctx, s.DB.Reader(), id) })
		if err != nil {
			return contract.ReconcileResult{}, err
		}
		read, err := s.read(ctx, id)
		if err != nil {
			return contract.ReconcileResult{}, err
		}
		var result contract.ReconcileResult
		var standing int64 // read under the key, in the flight that opens
		spec := lockpath.SubscriptionReconcile.Spec(lockorder.SubscriptionKey(id))
		spec.Handed = func(h *lockorder.Handed) { billing.HandVersion(h, id, &standing) }
		err = s.DB.Run(ctx, spec, func(ctx context.Context, tx *lockorder.Tx) error {
			if standing != noted {
				return fmt.Errorf("subscription %s was read at version %d and stands at %d: %w", id, noted, standing, errMoved)
			}
			result, err = apply(ctx, tx, request, read)
			return err
		})
		if errors.Is(err, errMoved) && reads < maxReads {
			continue
		}
		if err != nil {
			return contract.ReconcileResult{}, err
		}
		result.Reads = reads
		return result, nil
	}
}

// read is one read of Stripe: what was seen, or why what Stripe answered cannot be applied. One of them is nil.
type read struct {
	seen *billing.Seen
	park *billing.Work
}

// read retrieves the subscription. An error is worth another try.
func (s *Subscriptions) read(ctx context.Context, id string) (read, error) {
	park := func(reason billing.Reason, detail string) (read, error) {
		return read{park: &billing.Work{Kind: billing.ParkedSubscription, ObjectID: id, SubscriptionID: id, Reason: reason, Detail: detail}}, nil
	}
	sub, err := s.Stripe.Subscription(ctx, id)
	switch {
	case stripeapi.IsNotFound(err):
		return park(billing.ReasonNotFound, fmt.Sprintf(
			"Stripe knows no subscription %s for this key; nothing was changed. If it is of another account or mode, its events should not come here; if the key was wrong, mend it and run: bursar parked retry %s", id, id))
	case err != nil:
		return read{}, err
	case sub.Livemode != s.Livemode:
		return park(billing.ReasonLivemodeMismatch, fmt.Sprintf(
			"Subscription %s is of Stripe's %s mode, and this Bursar serves %s mode; nothing was changed. Check which webhooks and which key come here, then run: bursar parked retry %s",
			id, mode(sub.Livemode), mode(s.Livemode), id))
	}
	seen, err := billing.See(sub)
	if err != nil {
		return park(billing.ReasonFailed, err.Error())
	}
	return read{seen: &seen}, nil
}

// apply makes the tables follow a read that is known to be the newest. The transaction holds the subscription's key.
func apply(ctx context.Context, tx *lockorder.Tx, request contract.ReconcileRequest, r read) (contract.ReconcileResult, error) {
	if r.park != nil {
		return parkAsRead(ctx, tx, request, *r.park)
	}
	a := &application{tx: tx, seen: *r.seen, act: entitlements.Act{Name: actReconcile, Workflow: workflowID(ctx)}}
	if err := a.prepare(ctx); err != nil {
		return contract.ReconcileResult{}, err
	}
	version, mirrored, err := billing.Record(ctx, tx, a.seen)
	if err != nil {
		return contract.ReconcileResult{}, err
	}
	if err := billing.RecordEvents(ctx, tx, a.seen.ID, version, events(request.Events)); err != nil {
		return contract.ReconcileResult{}, err
	}
	if err := a.converge(ctx); err != nil {
		return contract.ReconcileResult{}, err
	}
	result := a.result(version, mirrored)
	work := a.park()
	if work == nil {
		_, err := billing.Resolve(ctx, tx, a.parkedKey())
		return result, err
	}
	result.Outcome, result.ParkedReason, result.Detail = contract.OutcomeParked, string(work.Reason), work.Detail
	return result, billing.Park(ctx, tx, *work)
}

// parkAsRead parks what Stripe did not show as a subscription of ours. Whatever stands stays as it is, except the version.
func parkAsRead(ctx context.Context, tx *lockorder.Tx, request contract.ReconcileRequest, work billing.Work) (contract.ReconcileResult, error) {
	version, err := park(ctx, tx, work, request.Events)
	if err != nil {
		return contract.ReconcileResult{}, err
	}
	result := contract.ReconcileResult{Outcome: contract.OutcomeParked, Version: version, ParkedReason: string(work.Reason), Detail: work.Detail}
	known, _, err := billing.ReadSubscription(ctx, tx, work.SubscriptionID)
	if err != nil || known.Customer == "" {
		return result, err
	}
	organization, linked, err := billing.Organization(ctx, tx, known.Customer)
	if err != nil || !linked {
		return result, err
	}
	org, err := entitlements.FindOrganization(ctx, tx, organization.String())
	result.Organization = org.Slug
	return result, err
}

// park raises the subscription's version and parks it. The transaction holds the subscription's key and no row yet.
func park(ctx context.Context, tx *lockorder.Tx, work billing.Work, causes []contract.ReconcileSignal) (version int64, err error) {
	if _, err := tx.LockExisting(ctx, billing.ParkedKey{Kind: work.Kind, ObjectID: work.ObjectID}.Lock()); err != nil {
		return 0, err
	}
	if version, err = billing.RaiseVersion(ctx, tx, work.SubscriptionID); err != nil {
		return 0, err
	}
	if err := billing.RecordEvents(ctx, tx, work.SubscriptionID, version, events(causes)); err != nil {
		return 0, err
	}
	return version, billing.Park(ctx, tx, work)
}

// ParkSubscription parks a subscription whose reconcile failed for good, or a checkout whose customer could not be linked for
// good, with the failure's text as the reason that an operator reads. For a subscription it raises the version, so that
// no older read is applied after it.
//
// Running it twice is safe: the second run finds the row, counts one more attempt and raises the version once more,
// which makes a concurrent reader read again and nothing else.
func (s *Subscriptions) ParkSubscription(ctx context.Context, request contract.ParkRequest) error {
	return translate(ctx, s.parkFailed(ctx, request))
}

func (s *Subscriptions) parkFailed(ctx context.Context, request contract.ParkRequest) error {
	if err := billing.CheckSubscriptionID(request.SubscriptionID); err != nil {
		return err
	}
	work := billing.Work{
		Kind: billing.ParkedSubscription, ObjectID: request.SubscriptionID, SubscriptionID: request.SubscriptionID,
		Reason: billing.ReasonFailed, Detail: storable(request.Reason),
	}
	key := lockorder.SubscriptionKey(request.SubscriptionID)
	if request.CheckoutSession == "" {
		return s.DB.Run(ctx, lockpath.SubscriptionPark.Spec(key), func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := park(ctx, tx, work, request.Events)
			return err
		})
	}
	work.Kind, work.ObjectID = billing.ParkedCheckout, request.CheckoutSession
	return s.DB.Run(ctx, lockpath.CheckoutPark.Spec(key), func(ctx context.Context, tx *lockorder.Tx) error {
		if _, err := tx.LockExisting(ctx, billing.ParkedKey{Kind: work.Kind, ObjectID: work.ObjectID}.Lock()); err != nil {
			return err
		}
		return billing.Park(ctx, tx, work)
	})
}

func events(signals []contract.ReconcileSignal) []billing.Event {
	out := make([]billing.Event, 0, len(signals))
	for _, s := range signals {
		out = append(out, billing.Event{ID: s.EventID, Type: s.EventType})
	}
	return out
}

// workflowID returns the id of the workflow whose activity runs, empty where none does.
func workflowID(ctx context.Context) string {
	if !activity.IsActivity(ctx) {
		return ""
	}
	return activity.GetInfo(ctx).WorkflowExecution.ID
}
