package standin_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/webhook"

	"github.com/bursarhq/bursar/internal/stripeapi/standin"
)

const (
	secretNew = "whsec_new00000000000000000000000"
	secretOld = "whsec_old00000000000000000000000"
)

// receiver is a webhook endpoint that checks signatures with Stripe's own package.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	events []stripe.Event
	fail   int
	bad    []error
}

func receive(t *testing.T, secret string) *receiver {
	t.Helper()
	rc := &receiver{}
	rc.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		rc.mu.Lock()
		defer rc.mu.Unlock()
		if rc.fail > 0 {
			rc.fail--
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		e, err := webhook.ConstructEvent(body, r.Header.Get("Stripe-Signature"), secret)
		if err != nil {
			rc.bad = append(rc.bad, err)
		}
		rc.events = append(rc.events, e)
	}))
	t.Cleanup(rc.Close)
	return rc
}

func (rc *receiver) got(t *testing.T) []string {
	t.Helper()
	rc.mu.Lock()
	defer rc.mu.Unlock()
	require.Empty(t, rc.bad)
	var ids []string
	for _, e := range rc.events {
		ids = append(ids, e.ID)
	}
	return ids
}

func allIDs(r *rig) []string {
	var ids []string
	for _, e := range r.Events() {
		ids = append(ids, e.ID)
	}
	return ids
}

func TestWebhooksAreSignedInOrderAndRetried(t *testing.T) {
	rc := receive(t, secretOld)
	rc.fail = 3
	r := start(t, standin.Options{WebhookURL: rc.URL, WebhookSecrets: []string{secretNew, secretOld}, RetryDelay: time.Millisecond})
	p := r.plans(t)
	sub := r.subscribe(t, p.basic)
	require.NoError(t, r.SetStatus(sub.ID, "unpaid"))
	require.NoError(t, r.WaitDelivered(within(t, 10*time.Second)))
	require.Equal(t, allIDs(r), rc.got(t))
	require.Equal(t, 4, r.Attempts(r.Events()[0].ID))

	last := rc.events[len(rc.events)-1]
	require.Equal(t, stripe.APIVersion, last.APIVersion)
	require.EqualValues(t, 1, last.PendingWebhooks)
	require.Equal(t, sub.ID, last.GetObjectValue("id"))
	require.Equal(t, "unpaid", last.GetObjectValue("status"))
	require.Equal(t, "active", last.GetPreviousValue("status"))
	got, err := r.api.Events.Get(last.ID, nil)
	require.NoError(t, err)
	require.Zero(t, got.PendingWebhooks)

	n := len(rc.got(t))
	require.NoError(t, r.Redeliver(last.ID, 3))
	require.NoError(t, r.WaitDelivered(within(t, 10*time.Second)))
	require.Equal(t, []string{last.ID, last.ID, last.ID}, rc.got(t)[n:])
	require.Error(t, r.Redeliver("evt_gone", 1))
}

func TestDeliveriesPauseAndShuffle(t *testing.T) {
	rc := receive(t, secretNew)
	r := start(t, standin.Options{WebhookURL: rc.URL, WebhookSecrets: []string{secretNew}})
	r.PauseDeliveries()
	for range 30 {
		r.PutCustomer(standin.Customer{})
	}
	waiting, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, r.WaitDelivered(waiting), "30 webhooks")
	require.Empty(t, rc.got(t))
	r.DeliverShuffled(3)
	require.NoError(t, r.WaitDelivered(within(t, 10*time.Second)))
	require.NotEqual(t, allIDs(r), rc.got(t))
	require.ElementsMatch(t, allIDs(r), rc.got(t))

	// What happens while no address is set is never delivered; the new address and secrets count from then on.
	r.SetWebhookURL("")
	r.PutCustomer(standin.Customer{})
	other := receive(t, secretOld)
	r.SetWebhookURL(other.URL)
	r.SetWebhookSecrets(secretOld)
	c := r.PutCustomer(standin.Customer{Name: "x"})
	require.NoError(t, r.WaitDelivered(within(t, 10*time.Second)))
	require.Len(t, other.got(t), 1)
	require.Equal(t, c.ID, other.events[0].GetObjectValue("id"))
	require.Len(t, rc.got(t), 30)
}

func TestEventList(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := start(t, standin.Options{Clock: func() time.Time { return at }})
	p := r.plans(t)
	r.Advance(10 * time.Second)
	sub := r.subscribe(t, p.basic)
	r.Advance(10 * time.Second)
	require.NoError(t, r.SetStatus(sub.ID, "unpaid"))
	list := func(params *stripe.EventListParams) []string {
		params.Limit = stripe.Int64(2)
		it := r.api.Events.List(params)
		var out []string
		for it.Next() {
			out = append(out, string(it.Event().Type))
		}
		require.NoError(t, it.Err())
		return out
	}
	all := r.types()
	slices.Reverse(all)
	require.Equal(t, all, list(&stripe.EventListParams{}))
	require.Equal(t, []string{"customer.subscription.updated"},
		list(&stripe.EventListParams{CreatedRange: &stripe.RangeQueryParams{GreaterThan: at.Unix() + 10}}))
	require.Equal(t, []string{"customer.subscription.updated", "customer.subscription.created", "customer.created"},
		list(&stripe.EventListParams{CreatedRange: &stripe.RangeQueryParams{GreaterThanOrEqual: at.Unix() + 10}}))
	require.Equal(t, []string{"customer.subscription.created", "customer.created"},
		list(&stripe.EventListParams{Created: stripe.Int64(at.Unix() + 10)}))
	require.Len(t, list(&stripe.EventListParams{CreatedRange: &stripe.RangeQueryParams{LesserThan: at.Unix() + 10}}), 5)
	require.Len(t, list(&stripe.EventListParams{CreatedRange: &stripe.RangeQueryParams{LesserThanOrEqual: at.Unix() + 10}}), 7)
	require.Equal(t, []string{"product.created"}, list(&stripe.EventListParams{Type: stripe.String("product.created")}))
	require.Len(t, list(&stripe.EventListParams{Type: stripe.String("customer.*")}), 3)
	require.Equal(t, []string{"customer.subscription.updated", "product.created"},
		list(&stripe.EventListParams{Types: stripe.StringSlice([]string{"product.created", "customer.subscription.updated"})}))
	it := r.api.Events.List(&stripe.EventListParams{Types: stripe.StringSlice(make([]string, 21))})
	require.False(t, it.Next())
	refused(t, it.Err(), 400, "")
}

func TestFreezeMakesOneSecond(t *testing.T) {
	clock := time.Now()
	r := start(t, standin.Options{Clock: func() time.Time { clock = clock.Add(1100 * time.Millisecond); return clock }})
	r.Freeze()
	for range 5 {
		r.PutCustomer(standin.Customer{})
	}
	for _, e := range r.Events() {
		require.Equal(t, r.Events()[0].Created, e.Created)
	}
	r.Thaw()
	r.PutCustomer(standin.Customer{})
	require.NotEqual(t, r.Events()[0].Created, r.Events()[5].Created)
}

func TestHangAndStalledRead(t *testing.T) {
	r := start(t, standin.Options{})
	p := r.plans(t)
	sub := r.subscribe(t, p.basic)

	released := make(chan struct{})
	r.HangUntil(released)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	params := &stripe.SubscriptionParams{}
	params.Context = ctx
	_, err := r.api.Subscriptions.Get(sub.ID, params)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	close(released)
	mustGet(t, r, sub.ID)
	r.Hang(30 * time.Millisecond)
	began := time.Now()
	mustGet(t, r, sub.ID)
	require.GreaterOrEqual(t, time.Since(began), 30*time.Millisecond)
	r.Hang(0)

	// A reader that stalls after its answer was built gets the old state, while others go on.
	stalled, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.OnRead(func(id string) {
		first := false
		once.Do(func() { first = true })
		if first {
			close(stalled)
			<-release
		}
	})
	got := make(chan *stripe.Subscription, 1)
	go func() {
		s, _ := r.api.Subscriptions.Get(sub.ID, nil)
		got <- s
	}()
	<-stalled
	require.NoError(t, r.SetStatus(sub.ID, "unpaid"))
	require.Equal(t, "unpaid", string(mustGet(t, r, sub.ID).Status))
	close(release)
	require.Equal(t, "active", string((<-got).Status))
	require.Equal(t, 5, r.Reads(sub.ID))
}

func TestCloseLetsEverybodyGo(t *testing.T) {
	s := standin.New(standin.Options{WebhookURL: "http://127.0.0.1:1/nobody", WebhookSecrets: []string{secretNew}})
	url, err := s.Start(t.Context())
	require.NoError(t, err)
	s.PutCustomer(standin.Customer{})
	s.Hang(time.Hour)
	done := make(chan error, 1)
	go func() {
		_, err := stripeClient(url, testKey).Customers.Get("cus_x", nil)
		done <- err
	}()
	s.Close()
	s.Close()
	require.Error(t, <-done)
}
