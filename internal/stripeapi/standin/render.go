package standin

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v79"
)

// object is a JSON object on its way out.
type object = map[string]any

// unix returns a time as Stripe writes it, nil for the zero time.
func unix(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.Unix()
}

// text returns nil for the empty string: Stripe writes null, not "".
func text(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func meta(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// mustJSON encodes a tree made of maps, texts and numbers, which cannot fail.
func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic("stripe stand-in: an object that is no JSON: " + err.Error())
	}
	return b
}

// previous returns the attributes of before that differ in after, as an event's previous_attributes, nil if none.
func previous(before, after object) object {
	var diff object
	for k, old := range before {
		if !reflect.DeepEqual(old, after[k]) {
			if diff == nil {
				diff = object{}
			}
			diff[k] = old
		}
	}
	return diff
}

func (c *Customer) render() object {
	return object{
		"id": c.ID, "object": "customer",
		"address": nil, "balance": 0, "created": c.Created.Unix(), "currency": nil, "default_source": nil,
		"delinquent": false, "description": text(c.Description), "discount": nil, "email": text(c.Email),
		"invoice_prefix": strings.ToUpper(c.ID[max(0, len(c.ID)-8):]),
		"invoice_settings": object{"custom_fields": nil, "default_payment_method": nil, "footer": nil,
			"rendering_options": nil},
		"livemode": c.Livemode, "metadata": meta(c.Metadata), "name": text(c.Name), "next_invoice_sequence": 1,
		"phone": nil, "preferred_locales": []string{}, "shipping": nil, "tax_exempt": "none", "test_clock": nil,
	}
}

func (p *Product) render() object {
	return object{
		"id": p.ID, "object": "product",
		"active": !p.Inactive, "created": p.Created.Unix(), "default_price": nil, "description": text(p.Description),
		"images": []string{}, "livemode": p.Livemode, "marketing_features": []any{}, "metadata": meta(p.Metadata),
		"name": p.Name, "package_dimensions": nil, "shippable": nil, "statement_descriptor": nil, "tax_code": nil,
		"type": "service", "unit_label": nil, "updated": p.Updated.Unix(), "url": nil,
	}
}

func (p *Price) render() object {
	o := object{
		"id": p.ID, "object": "price",
		"active": !p.Inactive, "billing_scheme": "per_unit", "created": p.Created.Unix(), "currency": p.Currency,
		"custom_unit_amount": nil, "livemode": p.Livemode, "lookup_key": text(p.LookupKey), "metadata": meta(p.Metadata),
		"nickname": text(p.Nickname), "product": p.Product, "recurring": nil, "tax_behavior": "unspecified",
		"tiers_mode": nil, "transform_quantity": nil, "type": "one_time", "unit_amount": p.UnitAmount,
		"unit_amount_decimal": strconv.FormatInt(p.UnitAmount, 10),
	}
	if p.Interval != "" {
		o["type"] = "recurring"
		o["recurring"] = object{"aggregate_usage": nil, "interval": p.Interval, "interval_count": p.IntervalCount,
			"meter": nil, "trial_period_days": nil, "usage_type": "licensed"}
	}
	return o
}

// renderPlan writes a price in the shape that older integrations read, which Stripe still sends with each item.
func (p *Price) renderPlan() object {
	return object{
		"id": p.ID, "object": "plan",
		"active": !p.Inactive, "aggregate_usage": nil, "amount": p.UnitAmount,
		"amount_decimal": strconv.FormatInt(p.UnitAmount, 10), "billing_scheme": "per_unit", "created": p.Created.Unix(),
		"currency": p.Currency, "interval": p.Interval, "interval_count": p.IntervalCount, "livemode": p.Livemode,
		"metadata": meta(p.Metadata), "meter": nil, "nickname": text(p.Nickname), "product": p.Product,
		"tiers_mode": nil, "transform_usage": nil, "trial_period_days": nil, "usage_type": "licensed",
	}
}

func (s *Server) renderItem(sub *Subscription, it *Item) object {
	price := s.prices.byID[it.Price]
	return object{
		"id": it.ID, "object": "subscription_item",
		"billing_thresholds": nil, "created": it.Created.Unix(), "discounts": []any{}, "metadata": meta(it.Metadata),
		"plan": price.renderPlan(), "price": price.render(), "quantity": it.Quantity, "subscription": sub.ID,
		"tax_rates": []any{},
	}
}

func (s *Server) renderSubscription(sub *Subscription) object {
	items := make([]any, 0, len(sub.Items))
	for i := range sub.Items {
		if i == s.opts.EmbeddedItems {
			break
		}
		items = append(items, s.renderItem(sub, &sub.Items[i]))
	}
	first := s.prices.byID[sub.Items[0].Price]
	o := object{
		"id": sub.ID, "object": "subscription",
		"application": nil, "application_fee_percent": nil,
		"automatic_tax":        object{"enabled": false, "liability": nil},
		"billing_cycle_anchor": sub.BillingCycleAnchor.Unix(), "billing_cycle_anchor_config": nil,
		"billing_thresholds": nil, "cancel_at": unix(sub.CancelAt), "cancel_at_period_end": sub.CancelAtPeriodEnd,
		"canceled_at": unix(sub.CanceledAt),
		"cancellation_details": object{"comment": text(sub.CancelComment), "feedback": text(sub.CancelFeedback),
			"reason": text(sub.CancelReason)},
		"collection_method": sub.CollectionMethod, "created": sub.Created.Unix(), "currency": first.Currency,
		"current_period_end": sub.CurrentPeriodEnd.Unix(), "current_period_start": sub.CurrentPeriodStart.Unix(),
		"customer": sub.Customer, "days_until_due": nil, "default_payment_method": nil, "default_source": nil,
		"default_tax_rates": []any{}, "description": text(sub.Description), "discount": nil, "discounts": []any{},
		"ended_at":         unix(sub.EndedAt),
		"invoice_settings": object{"account_tax_ids": nil, "issuer": object{"type": "self"}},
		"items": object{"object": "list", "data": items, "has_more": len(sub.Items) > len(items),
			"total_count": len(sub.Items), "url": "/v1/subscription_items?subscription=" + sub.ID},
		"latest_invoice": nil, "livemode": sub.Livemode, "metadata": meta(sub.Metadata),
		"next_pending_invoice_item_invoice": nil, "on_behalf_of": nil, "pause_collection": nil,
		"payment_settings": object{"payment_method_options": nil, "payment_method_types": nil,
			"save_default_payment_method": "off"},
		"pending_invoice_item_interval": nil, "pending_setup_intent": nil, "pending_update": nil,
		"plan": nil, "quantity": nil, "schedule": nil, "start_date": sub.StartDate.Unix(), "status": sub.Status,
		"test_clock": nil, "transfer_data": nil, "trial_end": unix(sub.TrialEnd),
		"trial_settings": object{"end_behavior": object{"missing_payment_method": "create_invoice"}},
		"trial_start":    unix(sub.TrialStart),
	}
	if sub.DaysUntilDue > 0 {
		o["days_until_due"] = sub.DaysUntilDue
	}
	if sub.PauseCollection != "" {
		o["pause_collection"] = object{"behavior": sub.PauseCollection, "resumes_at": unix(sub.PauseCollectionResumes)}
	}
	if len(sub.Items) == 1 {
		o["plan"], o["quantity"] = first.renderPlan(), sub.Items[0].Quantity
	}
	return o
}

func (e *event) render(hooked bool) object {
	data := object{"object": e.object}
	if e.previous != nil {
		data["previous_attributes"] = e.previous
	}
	pending := 0
	if hooked && !e.delivered {
		pending = 1
	}
	return object{
		"id": e.id, "object": "event",
		"api_version": stripe.APIVersion, "created": e.created.Unix(), "data": data, "livemode": e.livemode,
		"pending_webhooks": pending,
		"request":          object{"id": text(e.requestID), "idempotency_key": text(e.idempotencyKey)},
		"type":             e.kind,
	}
}

// idOf returns the id of an encoded object.
func idOf(raw json.RawMessage) string {
	var o struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return ""
	}
	return o.ID
}
