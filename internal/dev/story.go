package dev

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v79"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/bursarhq/bursar/internal/stripeapi"
	"github.com/bursarhq/bursar/internal/stripeapi/standin"
	"github.com/bursarhq/bursar/workflows/contract"
)

// Names of the story's member and of the prices that the demonstration catalogue maps.
const (
	member       = "ada"
	memberName   = "Ada's Wiki Co-op"
	memberType   = "co-op"
	silverPrice  = "price_silver_monthly"
	goldPrice    = "price_gold_monthly"
	storagePrice = "price_storage_monthly"
)

// story is a member's way from the checkout to the cancellation, told through the real Stripe client.
type story struct {
	console  *console
	stripe   *stripeapi.Client
	standin  *standin.Server
	temporal client.Client
	uiURL    string
	show     func(ctx context.Context, organization string) error

	subscription string
	member, pack string // ids of the subscription's two items
}

// stock puts the shop's products and prices into the stand-in.
func stock(s *standin.Server) error {
	for _, p := range []struct {
		product, name, price string
		amount               int64
	}{
		{"prod_silver", "Silver membership", silverPrice, 900},
		{"prod_gold", "Gold membership", goldPrice, 2900},
		{"prod_storage", "Storage pack, 50 GB", storagePrice, 400},
	} {
		s.PutProduct(standin.Product{ID: p.product, Name: p.name})
		if _, err := s.PutPrice(standin.Price{ID: p.price, Product: p.product, Currency: "eur", UnitAmount: p.amount, Interval: "month"}); err != nil {
			return err
		}
	}
	return nil
}

type chapter struct {
	title, text string
	act         func(ctx context.Context) error
}

func (s *story) chapters() []chapter {
	return []chapter{
		{"Checkout", "Ada buys Silver and two storage packs. The checkout's client_reference_id links her Stripe customer to the organisation; nobody types an id.", s.checkout},
		{"Upgrade", "She moves up the ladder to Gold. Silver gives way; the storage packs, which are on no ladder, stay.", s.upgrade},
		{"A burst of webhooks", "Four packs, then three, while Stripe sends everything so far again and again, in any order. What counts is what Stripe says when it is read.", s.burst},
		{"Suspension", "Payment fails for good: the subscription is unpaid. It confers nothing, and keeps its place on the ladder, so no floor comes in below it.", s.suspend},
		{"Recovery", "She pays. The same positions confer again, exactly as before.", s.recover},
		{"Cancellation", "She leaves. What she paid for ends, and the ladder's floor is restored.", s.cancel},
	}
}

// play tells every chapter and shows after each what the member is entitled to.
func (s *story) play(ctx context.Context) error {
	fmt.Fprintf(s.console, "\n%s\n%s\n\n", s.console.bold("A new member"), "The organisation exists and has paid for nothing: it holds the floor of the ladder.")
	if err := s.show(ctx, member); err != nil {
		return err
	}
	for i, c := range s.chapters() {
		fmt.Fprintf(s.console, "\n%s\n%s\n", s.console.bold(fmt.Sprintf("%d. %s", i+1, c.title)), c.text)
		before := s.delivered()
		started := time.Now()
		if err := c.act(ctx); err != nil {
			return fmt.Errorf("chapter %d, %s: %w", i+1, c.title, err)
		}
		if err := s.accepted(ctx); err != nil {
			return fmt.Errorf("chapter %d, %s: %w", i+1, c.title, err)
		}
		result, err := s.settled(ctx)
		if err != nil {
			return fmt.Errorf("chapter %d, %s: %w", i+1, c.title, err)
		}
		fmt.Fprintf(s.console, "%s\n\n", s.console.faint(fmt.Sprintf("%s → %s, %.1f s · %s",
			count(s.delivered()-before, "webhook"), count(result.Reconciles, "reconcile"), time.Since(started).Seconds(), s.workflowURL())))
		if err := s.show(ctx, member); err != nil {
			return err
		}
	}
	return nil
}

// accepted waits until the ingress has taken every webhook.
func (s *story) accepted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := s.standin.WaitDelivered(ctx)
	if err == nil {
		return nil
	}
	var waiting []string
	for _, e := range s.standin.Events() {
		if !e.Delivered {
			waiting = append(waiting, fmt.Sprintf("%s %s (%s)", e.Type, e.ID, count(s.standin.Attempts(e.ID), "attempt")))
		}
	}
	return fmt.Errorf("the ingress has not taken %s: %w", strings.Join(waiting, ", "), err)
}

// settled waits until the subscription's workflow has nothing left to do, and returns what it did.
func (s *story) settled(ctx context.Context) (contract.SubscriptionReconcileResult, error) {
	var result contract.SubscriptionReconcileResult
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := s.temporal.GetWorkflow(ctx, contract.SubscriptionWorkflowID(s.subscription), "").Get(ctx, &result)
	var notFound *serviceerror.NotFound
	switch {
	case errors.As(err, &notFound):
		return result, fmt.Errorf("no workflow was started for %s", s.subscription)
	case err != nil:
		return result, fmt.Errorf("the reconcile of %s: %w", s.subscription, err)
	case result.Last.Outcome == contract.OutcomeParked:
		return result, fmt.Errorf("the reconcile of %s parked it: %s", s.subscription, result.Last.Detail)
	}
	return result, nil
}

func (s *story) delivered() int {
	n := 0
	for _, e := range s.standin.Events() {
		n += s.standin.Attempts(e.ID)
	}
	return n
}

func (s *story) workflowURL() string {
	return s.uiURL + "/namespaces/default/workflows/" + url.PathEscape(contract.SubscriptionWorkflowID(s.subscription))
}

func (s *story) checkout(ctx context.Context) error {
	api := s.stripe.API()
	customer, err := api.Customers.New(&stripe.CustomerParams{Params: stripe.Params{Context: ctx}, Name: stripe.String(memberName), Email: stripe.String("ada@example.org")})
	if err != nil {
		return s.stripe.Translate(ctx, "create customer", "", err)
	}
	session, err := api.CheckoutSessions.New(&stripe.CheckoutSessionParams{
		Params:            stripe.Params{Context: ctx},
		Mode:              stripe.String(string(stripe.CheckoutSessionModeSubscription)),
		Customer:          stripe.String(customer.ID),
		ClientReferenceID: stripe.String(member),
		SuccessURL:        stripe.String("http://localhost/thanks"),
		LineItems: []*stripe.CheckoutSessionLineItemParams{
			{Price: stripe.String(silverPrice), Quantity: stripe.Int64(1)},
			{Price: stripe.String(storagePrice), Quantity: stripe.Int64(2)},
		},
	})
	if err != nil {
		return s.stripe.Translate(ctx, "create checkout session", "", err)
	}
	if s.subscription, err = s.standin.CompleteCheckout(session.ID); err != nil {
		return err
	}
	sub, err := s.stripe.Subscription(ctx, s.subscription)
	if err != nil {
		return err
	}
	for _, item := range sub.Items.Data {
		if item.Price.ID == storagePrice {
			s.pack = item.ID
		} else {
			s.member = item.ID
		}
	}
	return nil
}

// change updates one item of the subscription.
func (s *story) change(ctx context.Context, item *stripe.SubscriptionItemsParams) error {
	_, err := s.stripe.API().Subscriptions.Update(s.subscription, &stripe.SubscriptionParams{
		Params: stripe.Params{Context: ctx}, Items: []*stripe.SubscriptionItemsParams{item},
	})
	return s.stripe.Translate(ctx, "update subscription", s.subscription, err)
}

func (s *story) upgrade(ctx context.Context) error {
	return s.change(ctx, &stripe.SubscriptionItemsParams{ID: stripe.String(s.member), Price: stripe.String(goldPrice)})
}

func (s *story) burst(ctx context.Context) error {
	s.standin.PauseDeliveries()
	for _, packs := range []int64{4, 3} {
		if err := s.change(ctx, &stripe.SubscriptionItemsParams{ID: stripe.String(s.pack), Quantity: stripe.Int64(packs)}); err != nil {
			return err
		}
	}
	for _, e := range s.standin.Events() {
		if e.Object == s.subscription {
			if err := s.standin.Redeliver(e.ID, 20); err != nil {
				return err
			}
		}
	}
	s.standin.DeliverShuffled(1)
	return nil
}

func (s *story) suspend(context.Context) error { return s.standin.SetStatus(s.subscription, "unpaid") }
func (s *story) recover(context.Context) error { return s.standin.SetStatus(s.subscription, "active") }

func (s *story) cancel(ctx context.Context) error {
	_, err := s.stripe.API().Subscriptions.Cancel(s.subscription, &stripe.SubscriptionCancelParams{Params: stripe.Params{Context: ctx}})
	return s.stripe.Translate(ctx, "cancel subscription", s.subscription, err)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
