package worker

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79/webhook"
	"go.opentelemetry.io/otel"

	"github.com/bursarhq/bursar/ingress"
	"github.com/bursarhq/bursar/internal/telemetry"
	"github.com/bursarhq/bursar/internal/telemetry/lockmetrics"
	"github.com/bursarhq/bursar/internal/telemetry/otlptest"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows/contract"
)

// One webhook is one trace: ingress, signal, workflow, activity, call to Stripe, transaction, statement, each under
// the one before it, exported over OTLP/HTTP; and no statement's argument is in it. The wait for a lock that it met is
// measured, and names that trace; and nothing measured names the subscription, the customer or a secret.
func TestAWebhookIsOneTrace(t *testing.T) {
	receiver := otlptest.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	tracers, meters := otel.GetTracerProvider(), otel.GetMeterProvider()
	t.Cleanup(func() { otel.SetTracerProvider(tracers); otel.SetMeterProvider(meters) })
	shutdown, err := telemetry.Setup(t.Context(), "bursar-test")
	require.NoError(t, err)

	r := newRig(t, "traces")
	r.start(Options{TelemetryIsSet: true})
	r.organization("acme")
	customer := r.customer()
	r.link(customer, "acme")
	sub := r.subscribe(customer)
	release := r.hold(lockorder.SubscriptionKey(sub))

	const secret = "whsec_0123456789abcdef0123456789"
	server, err := ingress.New(ingress.Config{Secrets: []string{secret}, Starter: r.starter, Logger: quiet(),
		Ready: Ready(r.temporal, r.config.Temporal.Namespace)})
	require.NoError(t, err)
	door := httptest.NewServer(server)
	t.Cleanup(door.Close)
	signed := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{
		Payload: fmt.Appendf(nil, `{"id":"evt_1Trace","object":"event","type":"customer.subscription.updated","data":{"object":{"id":%q,"object":"subscription"}}}`, sub),
		Secret:  secret, Timestamp: time.Now(),
	})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, door.URL+"/webhooks/stripe", strings.NewReader(string(signed.Payload)))
	require.NoError(t, err)
	request.Header.Set("Stripe-Signature", signed.Header)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	r.awaitWaiter()
	release()

	require.Equal(t, contract.OutcomeApplied, r.outcome(sub).Outcome)
	r.stop()
	require.NoError(t, r.awaitEnd(15*time.Second))
	require.NoError(t, shutdown(t.Context()))

	spans := receiver.Spans()
	byID := map[string]otlptest.Span{}
	for _, s := range spans {
		byID[s.ID] = s
	}
	// Each statement of the reconcile's transaction hangs below all of these.
	above := []string{
		"tx subscription-reconcile",
		"RunActivity:" + contract.ActivityReconcileSubscription,
		"StartActivity:" + contract.ActivityReconcileSubscription,
		"RunWorkflow:" + contract.SubscriptionReconcile,
		"SignalWithStartWorkflow:" + contract.SubscriptionReconcile,
		"/webhooks/stripe",
	}
	statements := 0
	for _, s := range spans {
		path := ancestors(byID, s)
		if s.Scope != "github.com/exaring/otelpgx" || !contains(path, above[0]) {
			continue
		}
		statements++
		for _, want := range above {
			require.True(t, contains(path, want), "%s hangs below %v, among which is no %s", s.Name, path, want)
		}
		for key, value := range s.Attributes {
			// A statement that waits says in a comment what for; that is no argument.
			require.NotContains(t, waitComment.ReplaceAllString(value, ""), sub, "attribute %s of %s", key, s.Name)
		}
	}
	require.NotZero(t, statements, "spans: %v", names(spans))

	calls := 0
	for _, s := range spans {
		if strings.HasPrefix(s.Name, "stripe GET") {
			calls++
			require.True(t, contains(ancestors(byID, s), above[1]), "the call to Stripe hangs below its activity")
		}
	}
	require.Equal(t, 1, calls)

	var webhookTrace string
	for _, s := range spans {
		if contains([]string{s.Name}, "/webhooks/stripe") {
			webhookTrace = s.Trace
		}
	}
	waited := false
	for _, p := range receiver.Points() {
		if p.Metric != lockmetrics.Wait || p.Attributes[string(lockmetrics.Class)] != lockorder.Subscription.Name {
			continue
		}
		waited = true
		require.Equal(t, "subscription-reconcile", p.Attributes[string(lockmetrics.Path)])
		require.EqualValues(t, 1, p.Count)
		require.Len(t, p.Exemplars, 1)
		require.Equal(t, webhookTrace, p.Exemplars[0].Trace)
	}
	require.True(t, waited, "the wait was measured: %s", receiver.MetricsText())
	text := receiver.MetricsText()
	for _, part := range []string{lockmetrics.LaneSize, "temporal_activity_execution_latency", "db.client.operation.duration", "bursar.webhooks",
		"http.client.request.duration", "http.server.request.duration"} {
		require.Contains(t, text, part)
	}
	for what, private := range map[string]string{"the subscription": sub, "the customer": customer, "the organisation": "acme", "a signing secret": secret,
		"Stripe's key": r.config.StripeKey.Reveal(), "the database's URL": r.database.Name()} {
		require.NotContains(t, text, private, "%s stands in what was measured", what)
	}
}

// hold holds a key in a transaction of the test's own until release is called.
func (r *rig) hold(key lockorder.Lock) (release func()) {
	r.t.Helper()
	held, end, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- r.db.Run(r.t.Context(), lockorder.Spec{Path: "test-holder", Kind: lockorder.Plain, Keys: []lockorder.Lock{key}}, func(context.Context, *lockorder.Tx) error {
			close(held)
			<-end
			return nil
		})
	}()
	select {
	case <-held:
	case err := <-done:
		r.t.Fatalf("the key was not got: %v", err)
	}
	return func() { close(end); require.NoError(r.t, <-done) }
}

// awaitWaiter returns once a session of the database waits for an advisory lock.
func (r *rig) awaitWaiter() {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		var waits bool
		err := r.db.Reader().QueryRow(r.t.Context(), `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
			WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted)`).Scan(&waits)
		return err == nil && waits
	}, 15*time.Second, 10*time.Millisecond, "nothing waits for the key")
}

// waitComment is the comment of a statement that waits for a lock.
var waitComment = regexp.MustCompile(`^/\* lockorder: .* \*/`)

// ancestors are the names of the spans above s, the nearest first.
func ancestors(byID map[string]otlptest.Span, s otlptest.Span) (names []string) {
	for s.Parent != "" {
		parent, ok := byID[s.Parent]
		if !ok || parent.Trace != s.Trace {
			return append(names, "(lost)")
		}
		names = append(names, parent.Name)
		s = parent
	}
	return names
}

func contains(path []string, part string) bool {
	for _, name := range path {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

func names(spans []otlptest.Span) (all []string) {
	for _, s := range spans {
		all = append(all, s.Scope+" "+s.Name)
	}
	return all
}
