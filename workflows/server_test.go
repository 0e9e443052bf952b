package workflows

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/bursarhq/bursar/internal/devstack"
	"github.com/bursarhq/bursar/workflows/contract"
)

// suggestAt is the length of a history at which the test server suggests continue-as-new. A plain run stays below it.
const suggestAt = 40

// server is one real Temporal server for the tests of this package, started by the first that needs it.
var server struct {
	once     sync.Once
	temporal *devstack.Temporal
	err      error
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if server.temporal != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := server.temporal.Stop(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the Temporal server:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// dial returns a client of the real server.
func dial(t *testing.T) client.Client {
	t.Helper()
	server.once.Do(func() {
		attributes := map[string]string{}
		for _, name := range contract.SearchAttributes() {
			attributes[name] = "Keyword"
		}
		server.temporal, server.err = devstack.StartTemporal(context.Background(), devstack.TemporalOptions{
			SearchAttributes: attributes,
			DynamicConfig: map[string]string{
				"limit.historyCount.suggestContinueAsNew": fmt.Sprint(suggestAt),
				"history.maxInFlightUpdates":              "100",
			},
			Progress: func(line string) { fmt.Fprintln(os.Stderr, line) },
		})
	})
	require.NoError(t, server.err)
	c, err := client.Dial(client.Options{
		HostPort:  server.temporal.Address(),
		Namespace: server.temporal.Namespace(),
		Logger:    quiet(),
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func quiet() log.Logger {
	return log.NewStructuredLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))
}

// outside plays the activities for workflows on the real server: it keeps no tables, and answers as the real ones do.
type outside struct {
	reconcile func(context.Context, contract.ReconcileRequest) (contract.ReconcileResult, error)
	link      func(context.Context, contract.LinkRequest) (contract.LinkResult, error)
	park      func(context.Context, contract.ParkRequest) error
	retry     func(context.Context) (contract.ParkedRetryResult, error)
	sweep     func(context.Context, contract.GrantCursor) (contract.GrantSweep, error)
	keep      func(context.Context, contract.KeeperInput) error
	act       func(context.Context, json.RawMessage) (contract.ActResult, error) // contract.ActTierAdd, for any act
	drain     func(context.Context, contract.DrainRequest) (contract.DrainTurn, error)
	drains    func(context.Context) (contract.DrainStartResult, error)
}

// serve runs workers for both queues until the test ends.
func serve(t *testing.T, c client.Client, o outside) {
	t.Helper()
	options := worker.Options{MaxConcurrentWorkflowTaskPollers: 8, MaxConcurrentActivityTaskPollers: 8, WorkerStopTimeout: 5 * time.Second}
	db := worker.New(c, contract.QueueDB, options)
	Register(db)
	options.DisableWorkflowWorker = true
	ioWorker := worker.New(c, contract.QueueIO, options)
	name := func(n string) activity.RegisterOptions { return activity.RegisterOptions{Name: n} }
	if o.reconcile != nil {
		ioWorker.RegisterActivityWithOptions(o.reconcile, name(contract.ActivityReconcileSubscription))
	}
	if o.link != nil {
		ioWorker.RegisterActivityWithOptions(o.link, name(contract.ActivityLinkFromCheckout))
	}
	if o.retry != nil {
		ioWorker.RegisterActivityWithOptions(o.retry, name(contract.ActivityRetryParked))
	}
	if o.sweep != nil {
		db.RegisterActivityWithOptions(o.sweep, name(contract.ActivitySweepGrants))
	}
	if o.keep != nil {
		db.RegisterActivityWithOptions(o.keep, name(contract.ActivityKeep))
	}
	if o.act != nil {
		db.RegisterActivityWithOptions(o.act, name(contract.ActTierAdd))
	}
	if o.drain != nil {
		db.RegisterActivityWithOptions(o.drain, name(contract.ActivityDrainChange))
	}
	if o.drains != nil {
		ioWorker.RegisterActivityWithOptions(o.drains, name(contract.ActivityStartDrains))
	}
	if o.park != nil {
		db.RegisterActivityWithOptions(o.park, name(contract.ActivityParkSubscription))
	}
	require.NoError(t, db.Start())
	t.Cleanup(db.Stop)
	require.NoError(t, ioWorker.Start())
	t.Cleanup(ioWorker.Stop)
}

// await waits until the run of a workflow id that is current when it looks, and those it continues as, have closed.
func await(ctx context.Context, t *testing.T, c client.Client, id string) contract.SubscriptionReconcileResult {
	t.Helper()
	var result contract.SubscriptionReconcileResult
	require.NoError(t, c.GetWorkflow(ctx, id, "").Get(ctx, &result))
	return result
}
