package worker

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79/webhook"
	"go.opentelemetry.io/otel"

	"github.com/bursarhq/bursar/ingress"
	"github.com/bursarhq/bursar/internal/telemetry"
	"github.com/bursarhq/bursar/internal/telemetry/otlptest"
	"github.com/bursarhq/bursar/workflows/contract"
)

// One webhook is one trace: ingress, signal, workflow, activity, call to Stripe, transaction, statement, each under
// the one before it, exported over OTLP/HTTP; and no statement's argument is in it.
func TestAWebhookIsOneTrace(t *testing.T) {
	receiver := otlptest.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	before := otel.GetTracerProvider()
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	shutdown, err := telemetry.Setup(t.Context(), "bursar-test")
	require.NoError(t, err)

	r := newRig(t, "traces")
	r.start(Options{TelemetryIsSet: true})
	r.organization("acme")
	customer := r.customer()
	r.link(customer, "acme")
	sub := r.subscribe(customer)

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
			require.NotContains(t, value, sub, "attribute %s of %s", key, s.Name)
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
}

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
