package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/bursarhq/bursar/internal/devstack"
	"github.com/bursarhq/bursar/internal/stripeapi/standin"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/worker"
)

// temporalStarted tells whether any test needed Temporal.
var temporalStarted atomic.Bool

// temporalServer is one real Temporal server for the tests of this package that act.
var temporalServer = sync.OnceValues(func() (*devstack.Temporal, error) {
	temporalStarted.Store(true)
	return devstack.StartTemporal(context.Background(), devstack.TemporalOptions{
		Progress: func(line string) { fmt.Fprintln(os.Stderr, line) },
	})
})

func stopTemporal() error {
	if !temporalStarted.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	server, err := temporalServer()
	if err != nil {
		return nil // the tests have told
	}
	return server.Stop(ctx)
}

// newHouse is newShell with a worker that does what the commands ask for.
func newHouse(t *testing.T) *shell {
	t.Helper()
	s := newShell(t)
	s.serve()
	return s
}

// serve runs a worker for the shell's database, on a Temporal namespace of its own.
func (s *shell) serve() {
	t := s.t
	t.Helper()
	server, err := temporalServer()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	t.Cleanup(cancel)
	namespace := "house-" + uuid.NewString()
	namespaces, err := client.NewNamespaceClient(client.Options{HostPort: server.Address()})
	require.NoError(t, err)
	require.NoError(t, namespaces.Register(ctx, &workflowservice.RegisterNamespaceRequest{
		Namespace: namespace, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	}))
	namespaces.Close()
	s.env["TEMPORAL_ADDRESS"], s.env["TEMPORAL_NAMESPACE"] = server.Address(), namespace

	config, err := worker.LoadConfig(func(name string) string {
		if name == "STRIPE_API_KEY" {
			return "sk_test_house"
		}
		return s.env[name]
	})
	require.NoError(t, err)
	c, err := config.Temporal.Dial(ctx, newLogger(t.Output(), config.LogLevel))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := c.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: namespace})
		return err == nil
	}, 30*time.Second, 100*time.Millisecond, "the namespace comes into use")
	c.Close()

	stripe := standin.New(standin.Options{})
	url, err := stripe.Start(ctx)
	require.NoError(t, err)
	config.StripeURL = url
	running, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ready, ended := make(chan struct{}), make(chan error, 1)
	pool := s.database()
	go func() {
		ended <- worker.Run(running, config, worker.Options{DB: pool, Logger: newLogger(t.Output(), config.LogLevel), TelemetryIsSet: true, Ready: func() { close(ready) }})
	}()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
		stripe.Close()
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("the worker did not become ready")
	}
}

// database opens the shell's database as the product does.
func (s *shell) database() *lockorder.DB {
	s.t.Helper()
	db, err := lockorder.Open(s.t.Context(), s.env["DATABASE_URL"], watchedOptions())
	require.NoError(s.t, err)
	s.t.Cleanup(db.Close)
	return db
}

// eventually waits until a query answers true.
func (s *shell) eventually(sql, what string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		var holds bool
		return s.pool.QueryRow(s.t.Context(), sql).Scan(&holds) == nil && holds
	}, 30*time.Second, 50*time.Millisecond, what)
}
