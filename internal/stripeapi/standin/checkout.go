package standin

import (
	"net/http"
	"time"
)

func createSession(s *Server, r *request) (object, *apiError) {
	c := checkoutSession{
		status: "open", mode: r.form.oneOf("mode", "subscription", "payment"), customer: r.form.str("customer"),
		customerEmail: r.form.str("customer_email"), clientReference: r.form.str("client_reference_id"),
		successURL: r.form.str("success_url"), cancelURL: r.form.str("cancel_url"), metadata: r.form.metadata(nil),
		created: r.now, expires: r.now.Add(24 * time.Hour),
	}
	r.form.need("mode")
	r.form.need("success_url")
	if data := r.form.sub("subscription_data"); data != nil {
		c.subscriptionMeta, c.description, c.trialEnd = data.metadata(nil), data.str("description"), data.moment("trial_end")
		if days := data.natural("trial_period_days"); days != nil {
			c.trialDays = *days
		}
		data.ignore("proration_behavior", "trial_settings")
	}
	var lines []line
	for _, g := range r.form.list("line_items") {
		lines = append(lines, line{price: g.need("price"), quantity: g.natural("quantity"), form: g, metadata: noMetadata})
	}
	if promo := r.form.boolean("allow_promotion_codes"); promo != nil {
		c.allowPromotion = *promo
	}
	c.paymentCollection = r.form.oneOf("payment_method_collection", "always", "if_required")
	if c.paymentCollection == "" && c.mode == "subscription" {
		c.paymentCollection = "always"
	}
	r.form.ignore("billing_address_collection", "payment_method_types", "customer_update", "locale")
	expand := r.expansions(sessionExpansions...)
	if e := r.form.finish(); e != nil {
		return nil, e
	}
	if _, ok := s.customers.get(c.customer); c.customer != "" && !ok {
		return nil, missing(http.StatusBadRequest, "customer", c.customer, "customer")
	}
	if c.customer != "" && c.customerEmail != "" {
		return nil, invalid("customer_email", "You may only specify one of these parameters: customer, customer_email.")
	}
	if e := s.sessionLines(&c, lines, r.now); e != nil {
		return nil, e
	}
	c.id = s.ids.checkout()
	s.sessions.put(c.id, &c)
	return s.expandSession(&c, expand), nil
}

func noMetadata(map[string]string) map[string]string { return nil }

// sessionLines checks and keeps the line items: recurring prices for a subscription, one-time prices for a payment.
func (s *Server) sessionLines(c *checkoutSession, lines []line, now time.Time) *apiError {
	if len(lines) == 0 {
		return &apiError{status: http.StatusBadRequest, Type: typeInvalidRequest, Code: "parameter_missing",
			Param: "line_items", Message: "Missing required param: line_items."}
	}
	if c.mode == "subscription" {
		items, e := s.applyLines(nil, lines, now)
		c.lines = items
		return e
	}
	for _, l := range lines {
		p, ok := s.prices.get(l.price)
		if !ok {
			return missing(http.StatusBadRequest, "price", l.price, l.form.full("price"))
		}
		if p.Interval != "" {
			return invalid(l.form.full("price"), "You specified `payment` mode but passed a recurring price. Either switch to `subscription` mode or use only one-time prices.")
		}
		quantity := int64(1)
		if l.quantity != nil {
			quantity = *l.quantity
		}
		c.lines = append(c.lines, Item{ID: s.ids.next("li_", 24), Price: l.price, Quantity: quantity})
	}
	return nil
}

var sessionExpansions = []string{"customer", "subscription", "line_items"}

func getSession(s *Server, r *request) (object, *apiError) {
	c, ok := s.sessions.get(r.PathValue("id"))
	if !ok {
		return nil, missing(http.StatusNotFound, "checkout.session", r.PathValue("id"), "session")
	}
	expand := r.expansions(sessionExpansions...)
	if e := r.form.finish(); e != nil {
		return nil, e
	}
	return s.expandSession(c, expand), nil
}

func listSessions(s *Server, r *request) (object, *apiError) {
	customer, sub, status := r.form.str("customer"), r.form.str("subscription"), r.form.oneOf("status", "open", "complete", "expired")
	w, created := r.window(), r.createdRange()
	if e := r.form.finish(); e != nil {
		return nil, e
	}
	ids := s.sessions.newestFirst(func(c *checkoutSession) bool {
		return (customer == "" || customer == c.customer) && (sub == "" || sub == c.subscription) &&
			(status == "" || status == c.status) && created.holds(c.created)
	})
	return page(ids, w, "checkout.session", "/v1/checkout/sessions", func(id string) object {
		return s.renderSession(s.sessions.byID[id])
	})
}

func expireSession(s *Server, r *request) (object, *apiError) {
	c, ok := s.sessions.get(r.PathValue("id"))
	if !ok {
		return nil, missing(http.StatusNotFound, "checkout.session", r.PathValue("id"), "session")
	}
	if e := r.form.finish(); e != nil {
		return nil, e
	}
	if c.status != "open" {
		return nil, invalid("", "Only Checkout Sessions with a status in [\"open\"] can be expired. This Checkout Session has a status of %s.", c.status)
	}
	c.status = "expired"
	s.emit("checkout.session.expired", s.renderSession(c), nil, false, r)
	return s.renderSession(c), nil
}

// completeSession is the member paying on the checkout page, which the API of Stripe itself has no call for.
func completeSession(s *Server, r *request) (object, *apiError) {
	if e := r.form.finish(); e != nil {
		return nil, e
	}
	c, e := s.complete(r.PathValue("id"), r)
	if e != nil {
		return nil, e
	}
	return s.renderSession(c), nil
}

// complete makes what the session is for: the customer if there is none yet, then the subscription.
func (s *Server) complete(id string, r *request) (*checkoutSession, *apiError) {
	c, ok := s.sessions.get(id)
	if !ok {
		return nil, missing(http.StatusNotFound, "checkout.session", id, "session")
	}
	if c.status != "open" {
		return nil, invalid("", "This Checkout Session has a status of %s; only an open one can be completed.", c.status)
	}
	now := s.now()
	if c.customer == "" && c.mode == "subscription" {
		c.customer = s.putCustomer(Customer{Email: c.customerEmail}, nil).ID
	}
	c.status, c.paid = "complete", true
	if c.mode == "subscription" {
		sub := Subscription{Customer: c.customer, Items: c.lines, Metadata: c.subscriptionMeta, Description: c.description}
		for i := range sub.Items {
			sub.Items[i].Created = now
		}
		trialEnd := c.trialEnd
		if trialEnd.IsZero() && c.trialDays > 0 {
			trialEnd = now.AddDate(0, 0, int(c.trialDays))
		}
		s.begin(&sub, now, trialEnd, false)
		s.subscriptions.put(sub.ID, &sub)
		c.subscription = sub.ID
		s.emit("customer.subscription.created", s.renderSubscription(&sub), nil, false, r)
	}
	s.emit("checkout.session.completed", s.renderSession(c), nil, false, r)
	return c, nil
}

func (s *Server) expandSession(c *checkoutSession, expand map[string]bool) object {
	o := s.renderSession(c)
	if customer, ok := s.customers.get(c.customer); ok && expand["customer"] {
		o["customer"] = customer.render()
	}
	if sub, ok := s.subscriptions.get(c.subscription); ok && expand["subscription"] {
		o["subscription"] = s.renderSubscription(sub)
	}
	if expand["line_items"] {
		data := make([]object, 0, len(c.lines))
		for _, l := range c.lines {
			p := s.prices.byID[l.Price]
			total := p.UnitAmount * l.Quantity
			data = append(data, object{"id": l.ID, "object": "item", "amount_discount": 0, "amount_subtotal": total,
				"amount_tax": 0, "amount_total": total, "currency": p.Currency,
				"description": s.products.byID[p.Product].Name, "price": p.render(), "quantity": l.Quantity})
		}
		o["line_items"] = object{"object": "list", "data": data, "has_more": false,
			"url": "/v1/checkout/sessions/" + c.id + "/line_items"}
	}
	return o
}

func (s *Server) renderSession(c *checkoutSession) object {
	var total int64
	for _, l := range c.lines {
		total += s.prices.byID[l.Price].UnitAmount * l.Quantity
	}
	paymentStatus, page := "unpaid", any(s.base+"/checkout/"+c.id)
	if c.paid {
		paymentStatus = "paid"
	}
	if c.status != "open" {
		page = nil
	}
	var details any
	if c.customerEmail != "" || c.status == "complete" {
		email := c.customerEmail
		if customer, ok := s.customers.get(c.customer); ok && email == "" {
			email = customer.Email
		}
		details = object{"address": nil, "email": text(email), "name": nil, "phone": nil, "tax_exempt": "none", "tax_ids": []any{}}
	}
	creation := any(nil)
	if c.mode == "payment" {
		creation = "if_required"
	}
	return object{
		"id": c.id, "object": "checkout.session",
		"after_expiration": nil, "allow_promotion_codes": c.allowPromotion, "amount_subtotal": total, "amount_total": total,
		"automatic_tax":              object{"enabled": false, "liability": nil, "status": nil},
		"billing_address_collection": nil, "cancel_url": text(c.cancelURL), "client_reference_id": text(c.clientReference),
		"client_secret": nil, "consent": nil, "consent_collection": nil, "created": c.created.Unix(),
		"currency": s.prices.byID[c.lines[0].Price].Currency, "currency_conversion": nil, "custom_fields": []any{},
		"custom_text": object{"after_submit": nil, "shipping_address": nil, "submit": nil, "terms_of_service_acceptance": nil},
		"customer":    text(c.customer), "customer_creation": creation, "customer_details": details,
		"customer_email": text(c.customerEmail), "expires_at": c.expires.Unix(), "invoice": nil, "invoice_creation": nil,
		"livemode": false, "locale": nil, "metadata": meta(c.metadata), "mode": c.mode, "payment_intent": nil,
		"payment_link": nil, "payment_method_collection": text(c.paymentCollection),
		"payment_method_configuration_details": nil, "payment_method_options": nil,
		"payment_method_types": []string{"card"}, "payment_status": paymentStatus,
		"phone_number_collection": object{"enabled": false}, "recovered_from": nil,
		"saved_payment_method_options": nil, "setup_intent": nil, "shipping_address_collection": nil,
		"shipping_cost": nil, "shipping_details": nil, "shipping_options": []any{}, "status": c.status, "submit_type": nil,
		"subscription": text(c.subscription), "success_url": c.successURL,
		"tax_id_collection": object{"enabled": false, "required": "never"},
		"total_details":     object{"amount_discount": 0, "amount_shipping": 0, "amount_tax": 0},
		"ui_mode":           "hosted", "url": page,
	}
}
