package activities

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/stripe/stripe-go/v79"

	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/lockpath"
	"github.com/bursarhq/bursar/internal/stripeapi"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows/contract"
)

// LinkFromCheckout links the customer of a completed checkout to the organisation that the checkout names in its
// client_reference_id, by slug or id. A checkout that names none, or is not completed, is no error: there is nothing to do. What
// cannot be done is parked as a checkout: the organisation does not exist, the customer is linked to another one or has an id that
// none can have, or Stripe does not show the session as one of ours. The subscription itself is not touched.
//
// Running it twice is safe: the session is read anew, a link that stands stays as it is, and the parked row is written
// over or resolved.
func (s *Subscriptions) LinkFromCheckout(ctx context.Context, request contract.LinkRequest) (contract.LinkResult, error) {
	defer keepAlive(ctx)()
	result, err := s.linkFromCheckout(ctx, request)
	return result, translate(ctx, err)
}

func (s *Subscriptions) linkFromCheckout(ctx context.Context, request contract.LinkRequest) (contract.LinkResult, error) {
	if err := billing.CheckSubscriptionID(request.SubscriptionID); err != nil {
		return contract.LinkResult{}, err
	}
	if request.CheckoutSession == "" {
		return contract.LinkResult{}, fmt.Errorf("%w: no checkout session is named", billing.ErrInvalid)
	}
	l := &linking{request: request}
	session, err := s.Stripe.CheckoutSession(ctx, request.CheckoutSession)
	switch {
	case stripeapi.IsNotFound(err):
		l.park(billing.ReasonNotFound, "Stripe knows no checkout session %s for this key; nothing was linked. Check which webhooks come here, then run: bursar parked retry %[1]s", request.CheckoutSession)
	case err != nil:
		return contract.LinkResult{}, err
	case session.Livemode != s.Livemode:
		l.park(billing.ReasonLivemodeMismatch, "Checkout session %s is of Stripe's %s mode, and this Bursar serves %s mode; nothing was linked", request.CheckoutSession, mode(session.Livemode), mode(s.Livemode))
	case session.Status != stripe.CheckoutSessionStatusComplete:
		l.result.NothingToDo = session.Status == stripe.CheckoutSessionStatusExpired // one that is open may be completed yet
		l.result.Detail = fmt.Sprintf("Checkout session %s is %s, not complete; there is nothing to link", session.ID, session.Status)
	default:
		if err := l.see(ctx, s.DB, session); err != nil {
			return contract.LinkResult{}, err
		}
	}
	// The subscription's key covers the parked row where there is none to lock yet.
	err = s.DB.Run(ctx, lockpath.CustomerLinkCheckout.Spec(lockorder.SubscriptionKey(request.SubscriptionID)), l.run)
	return l.result, err
}

// linking is one checkout being linked.
type linking struct {
	request   contract.LinkRequest
	customer  string // empty when there is nothing to link
	reference string // the organisation as the checkout names it, as it is stored; empty when none can have that name
	org       entitlements.Organization
	unknown   error // why there is no such organisation
	work      *billing.Work
	result    contract.LinkResult
}

// see takes from a completed session who is to be linked to what. Whoever makes a payment link writes the reference, so it may be
// anything.
func (l *linking) see(ctx context.Context, db *lockorder.DB, session *stripe.CheckoutSession) error {
	if session.ClientReferenceID == "" || session.Customer == nil || session.Customer.ID == "" {
		l.result.NothingToDo = true
		l.result.Detail = fmt.Sprintf("Checkout session %s does not name both a customer and an organisation; there is nothing to link", session.ID)
		return nil
	}
	if err := billing.CheckCustomerID(session.Customer.ID); err != nil {
		l.park(billing.ReasonFailed, "Checkout session %s: %v; nothing was linked. See the session at Stripe, then run: bursar parked retry %[1]s", l.request.CheckoutSession, err)
		return nil
	}
	l.customer = session.Customer.ID
	if id, err := uuid.Parse(session.ClientReferenceID); err == nil && len(session.ClientReferenceID) == len(id.String()) {
		l.reference = id.String()
	} else if entitlements.ValidSlug(session.ClientReferenceID) {
		l.reference = session.ClientReferenceID
	} else {
		l.unknown = fmt.Errorf("%.200q is neither the slug nor the id of an organisation, and none can have it", session.ClientReferenceID)
		return nil
	}
	// An organisation is never renamed or removed, so it can be looked up ahead of the transaction.
	org, err := reading(ctx, func(ctx context.Context) (entitlements.Organization, error) {
		return entitlements.FindOrganization(ctx, db.Reader(), l.reference)
	})
	if errors.Is(err, entitlements.ErrNotFound) {
		l.unknown = err
		return nil
	}
	l.org = org
	return err
}

func (l *linking) park(reason billing.Reason, format string, args ...any) {
	l.work = &billing.Work{
		Kind: billing.ParkedCheckout, ObjectID: l.request.CheckoutSession, SubscriptionID: l.request.SubscriptionID,
		Reason: reason, Detail: storable(fmt.Sprintf(format, args...)),
	}
	l.result = contract.LinkResult{ParkedReason: string(reason), Detail: l.work.Detail}
}

func (l *linking) run(ctx context.Context, tx *lockorder.Tx) error {
	if l.customer != "" {
		if err := l.link(ctx, tx); err != nil {
			return err
		}
	}
	key := billing.ParkedKey{Kind: billing.ParkedCheckout, ObjectID: l.request.CheckoutSession}
	if _, err := tx.LockExisting(ctx, key.Lock()); err != nil {
		return err
	}
	if l.work != nil {
		return billing.Park(ctx, tx, *l.work)
	}
	_, err := billing.Resolve(ctx, tx, key)
	return err
}

// link links the customer, or finds out why it cannot be.
func (l *linking) link(ctx context.Context, tx *lockorder.Tx) error {
	if l.unknown != nil {
		return l.withoutOrganization(ctx, tx)
	}
	_, err := billing.LinkCustomer(ctx, tx, l.customer, l.org.ID, billing.ByCheckout)
	var elsewhere *billing.ErrLinkedElsewhere
	switch {
	case errors.As(err, &elsewhere):
		l.park(billing.ReasonConflictingLink, "Checkout session %s names organisation %s, but its customer %s is linked to %s, and a link never moves", l.request.CheckoutSession, l.org.Slug, l.customer, elsewhere.Slug)
		return nil
	case err != nil:
		return err
	}
	l.result = contract.LinkResult{Linked: true, Organization: l.org.Slug, Detail: fmt.Sprintf("Customer %s pays for %s", l.customer, l.org.Slug)}
	return nil
}

// withoutOrganization deals with a checkout that names an organisation which does not exist. Once somebody has linked the customer
// by hand the question is answered, and what the checkout says does not matter any more.
func (l *linking) withoutOrganization(ctx context.Context, tx *lockorder.Tx) error {
	_, linked, err := billing.Organization(ctx, tx, l.customer)
	if err != nil {
		return err
	}
	if linked {
		l.result.NothingToDo = true
		l.result.Detail = storable(fmt.Sprintf("Checkout session %s: %v; its customer %s is linked already", l.request.CheckoutSession, l.unknown, l.customer))
		return nil
	}
	way := ""
	if l.reference != "" {
		way = "; or make the organisation: then it is tried again"
	}
	l.park(billing.ReasonUnknownOrganization, "Checkout session %s: %v. Link its customer: bursar customer link %s ORGANISATION%s", l.request.CheckoutSession, l.unknown, l.customer, way)
	l.work.WaitingCustomer, l.work.WaitingOrganization = l.customer, l.reference
	return nil
}
