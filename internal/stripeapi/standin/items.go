package standin

import (
	"net/http"
	"slices"
	"time"
)

// maxItems is how many items Stripe allows in a subscription.
const maxItems = 20

// line is one element of the items parameter: a new item, or a change to the one that id names.
type line struct {
	id       string
	price    string
	quantity *int64
	deleted  bool
	form     *form
	metadata func(old map[string]string) map[string]string
}

// readLines reads the items parameter; the metadata of each is applied later to what its item has.
func readLines(f *form, name string) []line {
	var out []line
	for _, g := range f.list(name) {
		l := line{id: g.str("id"), price: g.str("price"), quantity: g.natural("quantity"), form: g, metadata: g.metadata}
		if d := g.boolean("deleted"); d != nil {
			l.deleted = *d
		}
		g.ignore("clear_usage", "metadata")
		out = append(out, l)
	}
	return out
}

// applyLines returns old changed as the lines say, checked as Stripe checks it.
func (s *Server) applyLines(old []Item, lines []line, now time.Time) ([]Item, *apiError) {
	items := slices.Clone(old)
	for _, l := range lines {
		if l.price != "" {
			p, ok := s.prices.get(l.price)
			switch {
			case !ok:
				return nil, missing(http.StatusBadRequest, "price", l.price, l.form.full("price"))
			case p.Inactive:
				return nil, invalid(l.form.full("price"), "The price specified is inactive. This field only accepts active prices.")
			case p.Interval == "":
				return nil, invalid(l.form.full("price"), "The price specified is set to `type=one_time` but this field only accepts prices with `type=recurring`.")
			}
		}
		if l.id == "" {
			if l.price == "" {
				return nil, &apiError{status: http.StatusBadRequest, Type: typeInvalidRequest, Code: "parameter_missing",
					Param: l.form.full("price"), Message: "Missing required param: " + l.form.full("price") + "."}
			}
			quantity := int64(1)
			if l.quantity != nil {
				quantity = *l.quantity
			}
			items = append(items, Item{ID: s.ids.item(), Price: l.price, Quantity: quantity, Metadata: l.metadata(nil), Created: now})
			continue
		}
		i := slices.IndexFunc(items, func(it Item) bool { return it.ID == l.id })
		if i < 0 {
			return nil, missing(http.StatusBadRequest, "subscription_item", l.id, l.form.full("id"))
		}
		if l.deleted {
			items = slices.Delete(items, i, i+1)
			continue
		}
		if l.price != "" {
			items[i].Price = l.price
		}
		if l.quantity != nil {
			items[i].Quantity = *l.quantity
		}
		items[i].Metadata = l.metadata(items[i].Metadata)
	}
	return items, s.checkItems(items)
}

func (s *Server) checkItems(items []Item) *apiError {
	if len(items) == 0 {
		return invalid("items", "A subscription must have at least one active item.")
	}
	if len(items) > maxItems {
		return invalid("items", "A subscription can have at most %d items.", maxItems)
	}
	first := s.prices.byID[items[0].Price]
	seen := map[string]bool{}
	for _, it := range items {
		p := s.prices.byID[it.Price]
		switch {
		case seen[it.Price]:
			return invalid("items", "Cannot add multiple subscription items with the same price: %s", it.Price)
		case !sameInterval(p, first):
			return invalid("items", "Currently, all prices on a subscription must have the same `recurring.interval` and `recurring.interval_count`.")
		case p.Currency != first.Currency:
			return invalid("items", "All prices on a subscription must have the same currency.")
		}
		seen[it.Price] = true
	}
	return nil
}

func sameInterval(a, b *Price) bool {
	return a.Interval == b.Interval && a.IntervalCount == b.IntervalCount
}

func listItems(s *Server, r *request) (object, *apiError) {
	id, w := r.form.need("subscription"), r.window()
	expand := r.expansions("data.price.product")
	if e := r.form.finish(); e != nil {
		return nil, e
	}
	sub, ok := s.subscriptions.get(id)
	if !ok {
		return nil, missing(http.StatusNotFound, "subscription", id, "subscription")
	}
	byID := make(map[string]*Item, len(sub.Items))
	ids := make([]string, 0, len(sub.Items))
	for i := range sub.Items {
		byID[sub.Items[i].ID] = &sub.Items[i]
		ids = append(ids, sub.Items[i].ID)
	}
	return page(ids, w, "subscription_item", "/v1/subscription_items", func(id string) object {
		o := s.renderItem(sub, byID[id])
		s.expandPrice(o["price"].(object), expand["data.price.product"])
		return o
	})
}

func getItem(s *Server, r *request) (object, *apiError) {
	id := r.PathValue("id")
	expand := r.expansions("price.product")
	if e := r.form.finish(); e != nil {
		return nil, e
	}
	for _, sub := range s.subscriptions.byID {
		for i := range sub.Items {
			if sub.Items[i].ID == id {
				o := s.renderItem(sub, &sub.Items[i])
				s.expandPrice(o["price"].(object), expand["price.product"])
				return o, nil
			}
		}
	}
	return nil, missing(http.StatusNotFound, "subscription_item", id, "item")
}
