package activities

import (
	"context"
	"errors"
	"fmt"

	"github.com/stripe/stripe-go/v79"

	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/stripeapi"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows/contract"
)

// LinkFromCheckout links the customer of a completed checkout to the organisation that the checkout names in its
// client_reference_id, by slug or id. A checkout that names none, or is not completed, is no error: there is nothing to do. What
// cannot be done is parked as a checkout: the organisation does not exist, the customer is linked to another one, or Stripe does not
// show the session as one of ours. The subscription itself is not touched.
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
		l.result.Detail = fmt.Sprintf("Checkout session %s is %s, not complete; there is nothing to link", session.ID, session.Status)
	case session.ClientReferenceID == "" || session.Customer == nil || session.Customer.ID == "":
		l.result.Detail = fmt.Sprintf("Checkout session %s does not name both a customer and an organisation; there is nothing to link", session.ID)
	default:
		l.customer, l.reference = session.Customer.ID, session.ClientReferenceID
		// An organisation is never renamed or removed, so it can be looked up ahead of the transaction.
		l.org, err = entitlements.FindOrganization(ctx, s.DB.Reader(), l.reference)
		if err != nil && !errors.Is(err, entitlements.ErrNotFound) {
			return contract.LinkResult{}, err
		}
		l.unknown = err
	}
	err = s.DB.Run(ctx, lockorder.Spec{
		Path: "customer-link-checkout", Kind: lockorder.Plain,
		// The subscription's key covers the parked row where there is none to lock yet.
		Keys: []lockorder.Lock{lockorder.SubscriptionKey(request.SubscriptionID)},
	}, l.run)
	return l.result, err
}

// linking is one checkout being linked.
type linking struct {
	request   contract.LinkRequest
	customer  string // empty when there is nothing to link
	reference string // the organisation as the checkout names it
	org       entitlements.Organization
	unknown   error // why there is no such organisation
	work      *billing.Work
	result    contract.LinkResult
}

func (l *linking) park(reason billing.Reason, format string, args ...any) {
	l.work = &billing.Work{
		Kind: billing.ParkedCheckout, ObjectID: l.request.CheckoutSession, SubscriptionID: l.request.SubscriptionID,
		Reason: reason, Detail: storable(fmt.Sprintf(format, args...)),
	}
	l.result = contract.LinkResult{Detail: l.work.Detail}
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
		l.result.Detail = fmt.Sprintf("Checkout session %s names %q, which is no organisation; its customer %s is linked already", l.request.CheckoutSession, l.reference, l.customer)
		return nil
	}
	l.park(billing.ReasonUnknownOrganization, "Checkout session %s: %v. Link its customer: bursar customer link %s ORGANISATION; or make the organisation: then it is tried again", l.request.CheckoutSession, l.unknown, l.customer)
	l.work.WaitingCustomer, l.work.WaitingOrganization = l.customer, l.reference
	return nil
}
