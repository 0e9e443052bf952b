package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79/webhook"
)

// syncBuffer collects what a running command writes.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// served runs one command directly, with an environment of its own, and returns its error.
func served(ctx context.Context, environ map[string]string, command string) (stderr string, err error) {
	var out, log syncBuffer
	a := newApp(strings.NewReader(""), &out, &log)
	a.getenv = func(name string) string { return environ[name] }
	commands := map[string]func() error{
		"worker":  func() error { c := newWorkerCommand(a); c.SetContext(ctx); return c.RunE(c, nil) },
		"ingress": func() error { c := newIngressCommand(a); c.SetContext(ctx); return c.RunE(c, nil) },
		"migrate": func() error { c := newMigrateCommand(a); c.SetContext(ctx); return c.RunE(c, nil) },
	}
	err = commands[command]()
	return log.String(), err
}

func TestServersNameEveryProblemAtOnce(t *testing.T) {
	wrong := map[string]string{"TEMPORAL_ADDRESS": "nowhere", "BURSAR_SHUTDOWN_TIMEOUT": "soon", "BURSAR_LOG_LEVEL": "loud", "BURSAR_INGRESS_ADDR": "8080"}
	for command, names := range map[string][]string{
		"worker":  {"DATABASE_URL", "STRIPE_API_KEY", "TEMPORAL_ADDRESS", "BURSAR_SHUTDOWN_TIMEOUT", "BURSAR_LOG_LEVEL"},
		"ingress": {"STRIPE_WEBHOOK_SECRETS", "BURSAR_INGRESS_ADDR", "TEMPORAL_ADDRESS", "BURSAR_SHUTDOWN_TIMEOUT", "BURSAR_LOG_LEVEL"},
		"migrate": {"DATABASE_URL"},
	} {
		t.Run(command, func(t *testing.T) {
			_, err := served(t.Context(), wrong, command)
			require.Error(t, err)
			for _, name := range names {
				require.Equal(t, 1, strings.Count(err.Error(), name+" "), "%s in:\n%v", name, err)
			}
		})
	}
}

func TestABadSecretIsRefusedAndNotPrinted(t *testing.T) {
	const notOne = "sk_live_0123456789abcdef"
	_, err := served(t.Context(), map[string]string{"STRIPE_WEBHOOK_SECRETS": "whsec_0123456789abcdef," + notOne}, "ingress")
	require.ErrorContains(t, err, "number 2")
	require.NotContains(t, err.Error(), notOne)
}

// The ingress runs while Temporal is away: alive, not ready, and a webhook gets 503, so that Stripe sends it again. Asked to
// stop, it stops.
func TestTheIngressOutlivesTemporal(t *testing.T) {
	const secret = "whsec_0123456789abcdef0123456789"
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := listener.Addr().String()
	require.NoError(t, listener.Close())

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	type ending struct {
		stderr string
		err    error
	}
	ended := make(chan ending, 1)
	go func() {
		stderr, err := served(ctx, map[string]string{
			"STRIPE_WEBHOOK_SECRETS": secret + ", whsec_fedcba9876543210fedcba9876543210", "BURSAR_INGRESS_ADDR": addr,
			"TEMPORAL_ADDRESS": "127.0.0.1:1", "BURSAR_SHUTDOWN_TIMEOUT": "5s",
		}, "ingress")
		ended <- ending{stderr, err}
	}()
	status := func(path string) int {
		response, err := http.Get("http://" + addr + path)
		if err != nil {
			return 0
		}
		response.Body.Close()
		return response.StatusCode
	}
	require.Eventually(t, func() bool { return status("/healthz") == http.StatusOK }, 10*time.Second, 20*time.Millisecond)
	require.Equal(t, http.StatusServiceUnavailable, status("/readyz"))

	signed := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{
		Payload: []byte(`{"id":"evt_1","object":"event","type":"customer.subscription.updated","data":{"object":{"id":"sub_1","object":"subscription"}}}`),
		Secret:  secret, Timestamp: time.Now(),
	})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/webhooks/stripe", bytes.NewReader(signed.Payload))
	require.NoError(t, err)
	request.Header.Set("Stripe-Signature", signed.Header)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	response.Body.Close()
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
	require.NotEmpty(t, response.Header.Get("Retry-After"))

	stop()
	select {
	case end := <-ended:
		require.NoError(t, end.err)
		require.NotContains(t, end.stderr, secret)
		require.NotContains(t, end.stderr, signed.Header)
	case <-time.After(15 * time.Second):
		t.Fatal("the ingress does not stop")
	}
}
