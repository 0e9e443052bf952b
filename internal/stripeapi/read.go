package stripeapi

import (
	"context"
	"fmt"

	"github.com/stripe/stripe-go/v79"
)

// Subscription retrieves a subscription by id, with all its items: those that the first answer leaves out are paged
// through. The customer, prices and products are as Stripe gives them unexpanded (ids only, except the price of an item).
//
// When items changed between two pages, Stripe's list may repeat one or leave one out; the caller's version check and
// the event of that change lead to another read. The returned error is an *Error.
func (c *Client) Subscription(ctx context.Context, id string) (*stripe.Subscription, error) {
	if id == "" {
		return nil, &Error{Op: "retrieve subscription", Message: "the id is empty"}
	}
	sub, err := call(ctx, c, "retrieve subscription", id, func(ctx context.Context) (*stripe.Subscription, error) {
		params := &stripe.SubscriptionParams{}
		params.Context = ctx
		return c.api.Subscriptions.Get(id, params)
	})
	if err != nil {
		return nil, err
	}
	// The client decodes any JSON object; one that is not what was asked for must not pass as an empty subscription.
	if sub.ID != id || sub.Status == "" {
		return nil, &Error{Op: "retrieve subscription", ID: id, Message: fmt.Sprintf("the answer is not that subscription (object %q, id %q)", sub.Object, sub.ID)}
	}
	if sub.Items == nil {
		return nil, &Error{Op: "retrieve subscription", ID: id, Message: "the answer has no list of items"}
	}
	if sub.Items.HasMore {
		items, err := c.subscriptionItems(ctx, id)
		if err != nil {
			return nil, err
		}
		sub.Items.Data, sub.Items.HasMore = items, false
	}
	return sub, nil
}

// subscriptionItems lists all items of a subscription, from the start: the items embedded in the subscription may be
// ordered differently from the list.
func (c *Client) subscriptionItems(ctx context.Context, id string) ([]*stripe.SubscriptionItem, error) {
	var items []*stripe.SubscriptionItem
	after := ""
	for range maxPages {
		list, err := call(ctx, c, "list items of subscription", id, func(ctx context.Context) (*stripe.SubscriptionItemList, error) {
			params := &stripe.SubscriptionItemListParams{Subscription: stripe.String(id)}
			params.Context, params.Limit, params.Single = ctx, stripe.Int64(pageSize), true
			if after != "" {
				params.StartingAfter = stripe.String(after)
			}
			it := c.api.SubscriptionItems.List(params)
			return it.SubscriptionItemList(), it.Err()
		})
		if err != nil {
			return nil, err
		}
		items = append(items, list.Data...)
		if !list.HasMore {
			return items, nil
		}
		if len(list.Data) == 0 {
			return nil, &Error{Op: "list items of subscription", ID: id, Message: "an empty page that says there is more"}
		}
		after = list.Data[len(list.Data)-1].ID
	}
	return nil, &Error{Op: "list items of subscription", ID: id, Message: fmt.Sprintf("more than %d pages", maxPages)}
}

// CheckoutSession retrieves a checkout session by id. Of interest are ClientReferenceID, Customer, Subscription (ids
// only) and Livemode. The returned error is an *Error.
func (c *Client) CheckoutSession(ctx context.Context, id string) (*stripe.CheckoutSession, error) {
	if id == "" {
		return nil, &Error{Op: "retrieve checkout session", Message: "the id is empty"}
	}
	session, err := call(ctx, c, "retrieve checkout session", id, func(ctx context.Context) (*stripe.CheckoutSession, error) {
		params := &stripe.CheckoutSessionParams{}
		params.Context = ctx
		return c.api.CheckoutSessions.Get(id, params)
	})
	if err != nil {
		return nil, err
	}
	if session.ID != id {
		return nil, &Error{Op: "retrieve checkout session", ID: id, Message: fmt.Sprintf("the answer is not that session (object %q, id %q)", session.Object, session.ID)}
	}
	return session, nil
}
