package standin

import (
	"cmp"
	"net/http"
	"strings"
)

func createCustomer(s *Server, r *request) (object, *apiError) {
	c := Customer{Email: r.form.str("email"), Name: r.form.str("name"), Description: r.form.str("description"),
		Metadata: r.form.metadata(nil)}
	r.expansions()
	if e := r.form.finish(); e != nil {
		return nil, e
	}
	return s.putCustomer(c, r).render(), nil
}

// putCustomer stores c, filled up, with its event. r is the request that did it, or nil.
func (s *Server) putCustomer(c Customer, r *request) *Customer {
	c.ID = cmp.Or(c.ID, s.ids.customer())
	if c.Created.IsZero() {
		c.Created = s.now()
	}
	old, replaced := s.customers.get(c.ID)
	s.customers.put(c.ID, &c)
	if replaced {
		s.changed("customer.updated", old.render(), c.render(), c.Livemode, r)
	} else {
		s.emit("customer.created", c.render(), nil, c.Livemode, r)
	}
	return &c
}

func getCustomer(s *Server, r *request) (object, *apiError) {
	c, ok := s.customers.get(r.PathValue("id"))
	if !ok {
		return nil, missing(http.StatusNotFound, "customer", r.PathValue("id"), "id")
	}
	r.expansions()
	return c.render(), r.form.finish()
}

func updateCustomer(s *Server, r *request) (object, *apiError) {
	old, ok := s.customers.get(r.PathValue("id"))
	if !ok {
		return nil, missing(http.StatusNotFound, "customer", r.PathValue("id"), "id")
	}
	next := *old
	setText(r, "email", &next.Email)
	setText(r, "name", &next.Name)
	setText(r, "description", &next.Description)
	next.Metadata = r.form.metadata(old.Metadata)
	r.expansions()
	if e := r.form.finish(); e != nil {
		return nil, e
	}
	return s.putCustomer(next, r).render(), nil
}

func listCustomers(s *Server, r *request) (object, *apiError) {
	email, w, created := r.form.str("email"), r.window(), r.createdRange()
	if e := r.form.finish(); e != nil {
		return nil, e
	}
	ids := s.customers.newestFirst(func(c *Customer) bool {
		return (email == "" || c.Email == email) && created.holds(c.Created)
	})
	return page(ids, w, "customer", "/v1/customers", func(id string) object { return s.customers.byID[id].render() })
}

func createProduct(s *Server, r *request) (object, *apiError) {
	p := Product{ID: r.form.str("id"), Name: r.form.need("name"), Description: r.form.str("description"),
		Metadata: r.form.metadata(nil)}
	if active := r.form.boolean("active"); active != nil {
		p.Inactive = !*active
	}
	r.expansions()
	if e := r.form.finish(); e != nil {
		return nil, e
	}
	if _, ok := s.products.get(p.ID); ok {
		return nil, &apiError{status: http.StatusBadRequest, Type: typeInvalidRequest, Code: "resource_already_exists",
			Param: "id", Message: "Product already exists."}
	}
	return s.putProduct(p, r).render(), nil
}

func (s *Server) putProduct(p Product, r *request) *Product {
	p.ID = cmp.Or(p.ID, s.ids.product())
	if p.Created.IsZero() {
		p.Created = s.now()
	}
	p.Updated = s.now()
	old, replaced := s.products.get(p.ID)
	s.products.put(p.ID, &p)
	if replaced {
		s.changed("product.updated", old.render(), p.render(), p.Livemode, r)
	} else {
		s.emit("product.created", p.render(), nil, p.Livemode, r)
	}
	return &p
}

func getProduct(s *Server, r *request) (object, *apiError) {
	p, ok := s.products.get(r.PathValue("id"))
	if !ok {
		return nil, missing(http.StatusNotFound, "product", r.PathValue("id"), "id")
	}
	r.expansions()
	return p.render(), r.form.finish()
}

func updateProduct(s *Server, r *request) (object, *apiError) {
	old, ok := s.products.get(r.PathValue("id"))
	if !ok {
		return nil, missing(http.StatusNotFound, "product", r.PathValue("id"), "id")
	}
	next := *old
	setText(r, "name", &next.Name)
	setText(r, "description", &next.Description)
	next.Metadata = r.form.metadata(old.Metadata)
	if active := r.form.boolean("active"); active != nil {
		next.Inactive = !*active
	}
	r.expansions()
	if e := r.form.finish(); e != nil {
		return nil, e
	}
	return s.putProduct(next, r).render(), nil
}

func listProducts(s *Server, r *request) (object, *apiError) {
	active, wanted, w, created := r.form.boolean("active"), r.form.strs("ids"), r.window(), r.createdRange()
	if e := r.form.finish(); e != nil {
		return nil, e
	}
	ids := s.products.newestFirst(func(p *Product) bool {
		return (active == nil || *active == !p.Inactive) && among(p.ID, wanted) && created.holds(p.Created)
	})
	return page(ids, w, "product", "/v1/products", func(id string) object { return s.products.byID[id].render() })
}

func createPrice(s *Server, r *request) (object, *apiError) {
	p := Price{Currency: strings.ToLower(r.form.need("currency")), Product: r.form.str("product"),
		Nickname: r.form.str("nickname"), LookupKey: r.form.str("lookup_key"), Metadata: r.form.metadata(nil)}
	if amount := r.form.natural("unit_amount"); amount != nil {
		p.UnitAmount = *amount
	} else {
		r.form.need("unit_amount")
	}
	if active := r.form.boolean("active"); active != nil {
		p.Inactive = !*active
	}
	r.form.oneOf("billing_scheme", "per_unit")
	r.form.oneOf("tax_behavior", "unspecified")
	if rec := r.form.sub("recurring"); rec != nil {
		p.Interval = rec.oneOf("interval", "day", "week", "month", "year")
		rec.need("interval")
		rec.oneOf("usage_type", "licensed")
		if n := rec.natural("interval_count"); n != nil {
			p.IntervalCount = *n
		}
	}
	var made *Product
	if data := r.form.sub("product_data"); data != nil {
		made = &Product{ID: data.str("id"), Name: data.need("name"), Metadata: data.metadata(nil)}
	}
	expand := r.expansions("product")
	if e := r.form.finish(); e != nil {
		return nil, e
	}
	switch {
	case made != nil && p.Product != "":
		return nil, invalid("product", "You may only specify one of these parameters: product, product_data.")
	case made != nil:
		p.Product = s.putProduct(*made, r).ID
	case p.Product == "":
		return nil, &apiError{status: http.StatusBadRequest, Type: typeInvalidRequest, Code: "parameter_missing",
			Param: "product", Message: "You must specify either `product` or `product_data` when creating a price."}
	}
	if _, ok := s.products.get(p.Product); !ok {
		return nil, missing(http.StatusBadRequest, "product", p.Product, "product")
	}
	return s.expandPrice(s.putPrice(p, r).render(), expand["product"]), nil
}

func (s *Server) putPrice(p Price, r *request) *Price {
	p.ID = cmp.Or(p.ID, s.ids.price())
	p.Currency = cmp.Or(p.Currency, "usd")
	if p.Interval != "" {
		p.IntervalCount = cmp.Or(p.IntervalCount, 1)
	}
	if p.Created.IsZero() {
		p.Created = s.now()
	}
	old, replaced := s.prices.get(p.ID)
	s.prices.put(p.ID, &p)
	if replaced {
		s.changed("price.updated", old.render(), p.render(), p.Livemode, r)
	} else {
		s.emit("price.created", p.render(), nil, p.Livemode, r)
	}
	return &p
}

func getPrice(s *Server, r *request) (object, *apiError) {
	p, ok := s.prices.get(r.PathValue("id"))
	if !ok {
		return nil, missing(http.StatusNotFound, "price", r.PathValue("id"), "price")
	}
	expand := r.expansions("product")
	return s.expandPrice(p.render(), expand["product"]), r.form.finish()
}

func updatePrice(s *Server, r *request) (object, *apiError) {
	old, ok := s.prices.get(r.PathValue("id"))
	if !ok {
		return nil, missing(http.StatusNotFound, "price", r.PathValue("id"), "price")
	}
	next := *old
	setText(r, "nickname", &next.Nickname)
	setText(r, "lookup_key", &next.LookupKey)
	next.Metadata = r.form.metadata(old.Metadata)
	if active := r.form.boolean("active"); active != nil {
		next.Inactive = !*active
	}
	expand := r.expansions("product")
	if e := r.form.finish(); e != nil {
		return nil, e
	}
	return s.expandPrice(s.putPrice(next, r).render(), expand["product"]), nil
}

func listPrices(s *Server, r *request) (object, *apiError) {
	active, product, keys := r.form.boolean("active"), r.form.str("product"), r.form.strs("lookup_keys")
	kind, w, created := r.form.oneOf("type", "one_time", "recurring"), r.window(), r.createdRange()
	expand := r.expansions("data.product")
	if e := r.form.finish(); e != nil {
		return nil, e
	}
	ids := s.prices.newestFirst(func(p *Price) bool {
		return (active == nil || *active == !p.Inactive) && (product == "" || product == p.Product) &&
			among(p.LookupKey, keys) && (kind == "" || (kind == "recurring") == (p.Interval != "")) && created.holds(p.Created)
	})
	return page(ids, w, "price", "/v1/prices", func(id string) object {
		return s.expandPrice(s.prices.byID[id].render(), expand["data.product"])
	})
}

// expandPrice replaces the product's id in a rendered price by the product.
func (s *Server) expandPrice(price object, expand bool) object {
	if expand {
		price["product"] = s.products.byID[price["product"].(string)].render()
	}
	return price
}

// setText replaces a text when the parameter was given; the empty string clears it.
func setText(r *request, name string, to *string) {
	if r.form.has(name) {
		*to = r.form.str(name)
	}
}

// among reports whether id is in wanted; an empty filter wants all.
func among(id string, wanted []string) bool {
	for _, w := range wanted {
		if w == id {
			return true
		}
	}
	return len(wanted) == 0
}
