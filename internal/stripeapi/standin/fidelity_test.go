package standin_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/bursarhq/bursar/internal/stripeapi/standin"
)

// raw makes a call without the client, to see what is on the wire.
func (r *rig) raw(t *testing.T, method, path string, form url.Values, header ...string) (*http.Response, map[string]any) {
	t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(t.Context(), method, r.url+path, body)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+testKey)
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	var got map[string]any
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&got))
	return resp, got
}

// Every field that the client knows of an object is on the wire, null or not, and no field is there that it does not
// know. Fields that Stripe sends only when asked for, or only sometimes, are listed.
func TestObjectsHaveExactlyStripesFields(t *testing.T) {
	r := start(t, standin.Options{})
	p := r.plans(t)
	sub := r.subscribe(t, p.basic)
	session, err := r.api.CheckoutSessions.New(&stripe.CheckoutSessionParams{
		Mode: stripe.String("subscription"), SuccessURL: stripe.String("https://example.org/ok"),
		LineItems: []*stripe.CheckoutSessionLineItemParams{{Price: stripe.String(p.basic), Quantity: stripe.Int64(1)}},
	})
	require.NoError(t, err)
	_, err = r.CompleteCheckout(session.ID)
	require.NoError(t, err)
	events := r.Events()

	for _, c := range []struct {
		path     string
		of       any
		optional []string
	}{
		{"/v1/customers/" + sub.Customer.ID, stripe.Customer{}, []string{"deleted", "cash_balance", "invoice_credit_balance", "sources", "subscriptions", "tax", "tax_ids"}},
		{"/v1/products/" + p.product, stripe.Product{}, []string{"deleted"}},
		{"/v1/prices/" + p.basic, stripe.Price{}, []string{"deleted", "currency_options", "tiers"}},
		{"/v1/subscriptions/" + sub.ID, stripe.Subscription{}, []string{"plan", "quantity"}},
		{"/v1/subscription_items/" + sub.Items.Data[0].ID, stripe.SubscriptionItem{}, []string{"deleted"}},
		{"/v1/checkout/sessions/" + session.ID, stripe.CheckoutSession{}, []string{"line_items", "return_url", "redirect_on_completion"}},
		{"/v1/events/" + events[0].ID, stripe.Event{}, []string{"account"}},
	} {
		t.Run(c.path[4:8], func(t *testing.T) {
			_, got := r.raw(t, "GET", c.path, nil)
			known := map[string]bool{}
			typ := reflect.TypeOf(c.of)
			for i := range typ.NumField() {
				name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
				if name != "" && name != "-" {
					known[name] = true
				}
			}
			require.NotEmpty(t, known)
			for name := range known {
				if !slices.Contains(c.optional, name) {
					require.Contains(t, got, name, "missing on the wire")
				}
			}
			for name := range got {
				require.True(t, known[name] || slices.Contains(c.optional, name), "Stripe's client does not know %q", name)
			}
		})
	}
}

func TestAuthorisationAndAddresses(t *testing.T) {
	r := start(t, standin.Options{Key: testKey})
	resp, got := r.raw(t, "GET", "/v1/customers", nil, "Authorization", "")
	require.Equal(t, 401, resp.StatusCode)
	require.Contains(t, got["error"].(map[string]any)["message"], "did not provide an API key")

	_, err := stripeClient(r.url, "sk_test_another0000000").Customers.Get("cus_x", nil)
	se := refused(t, err, 401, "")
	require.NotContains(t, se.Msg, "another")
	_, err = stripeClient(r.url, "pk_test_publishable").Customers.Get("cus_x", nil)
	refused(t, err, 401, "")

	req, err := http.NewRequestWithContext(t.Context(), "GET", r.url+"/v1/events", nil)
	require.NoError(t, err)
	req.SetBasicAuth(testKey, "")
	basic, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	basic.Body.Close()
	require.Equal(t, 200, basic.StatusCode)

	resp, got = r.raw(t, "GET", "/v1/nothing_here", nil)
	require.Equal(t, 404, resp.StatusCode)
	require.NotContains(t, got["error"], "code", "an unknown address is not a missing object")
	require.NotEmpty(t, resp.Header.Get("Request-Id"))
	resp, _ = r.raw(t, "GET", "/v1/customers", nil, "Stripe-Version", "2019-01-01")
	require.Equal(t, 400, resp.StatusCode)
}

func TestUnknownParametersAreRefused(t *testing.T) {
	r := start(t, standin.Options{})
	p := r.plans(t)
	sub := r.subscribe(t, p.basic)
	for path, form := range map[string]url.Values{
		"/v1/customers":                    {"emial": {"x"}},
		"/v1/subscriptions/" + sub.ID:      {"items[0][id]": {sub.Items.Data[0].ID}, "items[0][qantity]": {"2"}},
		"/v1/prices":                       {"currency": {"usd"}, "unit_amount": {"1"}, "product": {p.product}, "recurring[interval]": {"month"}, "recurring[foo]": {"1"}},
		"/v1/checkout/sessions":            {"mode": {"subscription"}, "success_url": {"x"}, "foo": {"bar"}},
		"/v1/products/" + p.product:        {"foo[bar][]": {"1"}},
		"/v1/customers/" + sub.Customer.ID: {"metadata[a]": {"b"}, "nested[x]": {"1"}},
	} {
		resp, got := r.raw(t, "POST", path, form)
		require.Equal(t, 400, resp.StatusCode, path)
		require.Equal(t, "parameter_unknown", got["error"].(map[string]any)["code"], path)
	}
	require.EqualValues(t, 1, mustGet(t, r, sub.ID).Items.Data[0].Quantity, "a refused call must change nothing")
	_, err := r.api.Subscriptions.Get(sub.ID, &stripe.SubscriptionParams{Expand: stripe.StringSlice([]string{"nonsense"})})
	refused(t, err, 400, "")
	_, err = r.api.Subscriptions.Update(sub.ID, &stripe.SubscriptionParams{TrialEnd: stripe.Int64(12)})
	refused(t, err, 400, "")
	_, err = r.api.Customers.Get("cus_missing", nil)
	refused(t, err, 404, "resource_missing")
	_, err = r.api.Subscriptions.New(&stripe.SubscriptionParams{Customer: stripe.String("cus_missing"),
		Items: []*stripe.SubscriptionItemsParams{{Price: stripe.String(p.basic)}}})
	refused(t, err, 400, "resource_missing")
}

func TestIdempotencyReplaysTheFirstAnswer(t *testing.T) {
	r := start(t, standin.Options{})
	params := func(email string) *stripe.CustomerParams {
		c := &stripe.CustomerParams{Email: stripe.String(email)}
		c.SetIdempotencyKey("key-1")
		return c
	}
	first, err := r.api.Customers.New(params("a@example.org"))
	require.NoError(t, err)
	again, err := r.api.Customers.New(params("a@example.org"))
	require.NoError(t, err)
	require.Equal(t, first.ID, again.ID)
	require.Equal(t, "true", again.LastResponse.Header.Get("Idempotent-Replayed"))
	require.NotEqual(t, first.LastResponse.RequestID, again.LastResponse.RequestID)
	require.Equal(t, []string{"customer.created"}, r.types())

	_, err = r.api.Customers.New(params("b@example.org"))
	require.Equal(t, stripe.ErrorTypeIdempotency, refused(t, err, 400, "").Type)

	// A refusal before anything was done leaves the key free.
	bad := &stripe.CustomerParams{}
	bad.AddExtra("foo", "bar")
	bad.SetIdempotencyKey("key-2")
	_, err = r.api.Customers.New(bad)
	refused(t, err, 400, "parameter_unknown")
	good := &stripe.CustomerParams{}
	good.SetIdempotencyKey("key-2")
	_, err = r.api.Customers.New(good)
	require.NoError(t, err)
}

func TestListsPageBothWays(t *testing.T) {
	r := start(t, standin.Options{})
	var ids []string
	for range 25 {
		ids = append(ids, r.PutCustomer(standin.Customer{}).ID)
	}
	newest := slices.Clone(ids)
	slices.Reverse(newest)

	params := &stripe.CustomerListParams{}
	params.Limit = stripe.Int64(7)
	it := r.api.Customers.List(params)
	var got []string
	for it.Next() {
		got = append(got, it.Customer().ID)
	}
	require.NoError(t, it.Err())
	require.Equal(t, newest, got)

	back := &stripe.CustomerListParams{}
	back.Limit, back.EndingBefore = stripe.Int64(7), stripe.String(ids[0])
	it, got = r.api.Customers.List(back), nil
	for it.Next() {
		got = append(got, it.Customer().ID)
	}
	require.NoError(t, it.Err())
	require.Equal(t, ids[1:], got, "the client walks backwards page by page, oldest first")

	lost := &stripe.CustomerListParams{}
	lost.StartingAfter = stripe.String("cus_gone")
	it = r.api.Customers.List(lost)
	require.False(t, it.Next())
	refused(t, it.Err(), 400, "resource_missing")
	_, over := r.raw(t, "GET", "/v1/customers?limit=101", nil)
	require.Contains(t, over, "error")
}

func TestCatalogueThroughTheClient(t *testing.T) {
	r := start(t, standin.Options{Seed: 7})
	product, err := r.api.Products.New(&stripe.ProductParams{Name: stripe.String("Gold"), Metadata: map[string]string{"tier": "gold"}})
	require.NoError(t, err)
	require.Regexp(t, `^prod_[0-9A-Za-z]{14}$`, product.ID)
	price, err := r.api.Prices.New(&stripe.PriceParams{Product: &product.ID, Currency: stripe.String("EUR"),
		UnitAmount: stripe.Int64(990), LookupKey: stripe.String("gold"),
		Recurring: &stripe.PriceRecurringParams{Interval: stripe.String("month"), IntervalCount: stripe.Int64(3)}})
	require.NoError(t, err)
	require.Regexp(t, `^price_[0-9A-Za-z]{24}$`, price.ID)
	require.Equal(t, stripe.Currency("eur"), price.Currency)
	require.EqualValues(t, 3, price.Recurring.IntervalCount)
	require.Equal(t, product.ID, price.Product.ID)
	require.False(t, price.Livemode)

	full, err := r.api.Prices.Get(price.ID, &stripe.PriceParams{Expand: stripe.StringSlice([]string{"product"})})
	require.NoError(t, err)
	require.Equal(t, "Gold", full.Product.Name)
	_, err = r.api.Prices.Update(price.ID, &stripe.PriceParams{Active: stripe.Bool(false), Metadata: map[string]string{"a": "b"}})
	require.NoError(t, err)
	list := &stripe.PriceListParams{LookupKeys: stripe.StringSlice([]string{"gold"}), Active: stripe.Bool(false)}
	it := r.api.Prices.List(list)
	require.True(t, it.Next())
	require.Equal(t, price.ID, it.Price().ID)
	require.False(t, it.Next())

	renamed, err := r.api.Products.Update(product.ID, &stripe.ProductParams{Name: stripe.String("Gold+"), Metadata: map[string]string{"tier": "", "x": "y"}})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"x": "y"}, renamed.Metadata)
	require.Equal(t, []string{"product.created", "price.created", "price.updated", "product.updated"}, r.types())
	_, err = r.api.Products.Update(product.ID, &stripe.ProductParams{Name: stripe.String("Gold+")})
	require.NoError(t, err)
	require.Len(t, r.Events(), 4, "an update that changes nothing is no event")

	same := standin.New(standin.Options{Seed: 7}).PutProduct(standin.Product{Name: "Gold"})
	other := standin.New(standin.Options{}).PutProduct(standin.Product{Name: "Gold"})
	require.NotEqual(t, same.ID, other.ID)
	require.Equal(t, same.ID, standin.New(standin.Options{Seed: 7}).PutProduct(standin.Product{}).ID)
}

func TestFailNextSpeaksStripesErrors(t *testing.T) {
	r := start(t, standin.Options{})
	c := r.PutCustomer(standin.Customer{})
	r.FailNextRetryAfter(1, 429, 3*time.Second)
	_, err := r.api.Customers.Get(c.ID, nil)
	se := refused(t, err, 429, "rate_limit")
	require.Equal(t, "3", se.LastResponse.Header.Get("Retry-After"))
	r.FailNext(2, 503)
	for range 2 {
		_, err = r.api.Customers.Get(c.ID, nil)
		require.Equal(t, stripe.ErrorTypeAPI, refused(t, err, 503, "").Type)
	}
	_, err = r.api.Customers.Get(c.ID, nil)
	require.NoError(t, err)
}
