package worker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/db"
	"github.com/bursarhq/bursar/internal/lockview"
	"github.com/bursarhq/bursar/internal/stripeapi"
	"github.com/bursarhq/bursar/internal/telemetry"
	"github.com/bursarhq/bursar/internal/telemetry/lockmetrics"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows/contract"
)

// pollers is how many polls of one kind are open at a time for each queue. The SDK's default of two stalls long before the server
// does.
const pollers = 8

// Options replace parts that Run would make itself, for a process that has them already. The zero value is
// that of a process of its own.
type Options struct {
	// DB is used instead of Config.DatabaseURL, and not closed. Its pool should have Config.DBMaxConns connections.
	DB *lockorder.DB
	// Temporal is used instead of a client made from Config.Temporal, and not closed. Config.Temporal.Namespace names its
	// namespace.
	Temporal client.Client
	// Stripe is used instead of a client made from Config.StripeKey, with Livemode saying which objects are ours.
	Stripe   activities.StripeReader
	Livemode bool
	// Logger is used instead of one that writes to standard error.
	Logger *slog.Logger
	// Ready is called once, when the workers poll and the schedules stand.
	Ready func()
	// TelemetryIsSet says that the process has set its traces and metrics up.
	TelemetryIsSet bool
}

// Run serves both task queues until ctx ends, then drains and returns nil. Any error it returns means that it could not
// start, or could not go on, and says what to do.
func Run(ctx context.Context, config Config, options Options) (err error) {
	logger := options.Logger
	if logger == nil {
		logger = slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: config.LogLevel}))
	}
	defer func() {
		if err != nil && ctx.Err() != nil {
			logger.Warn("the worker was asked to stop before it was ready", "error", err)
			err = nil
		}
	}()
	if !options.TelemetryIsSet {
		shutdown, err := telemetry.Setup(ctx, "bursar-worker")
		if err != nil {
			return err
		}
		defer func() {
			if err := shutdown(ctx); err != nil {
				logger.Warn("the last of the traces and metrics were not sent", "error", err)
			}
		}()
	}

	pool := options.DB
	if pool == nil {
		if pool, err = openDB(ctx, config); err != nil {
			return err
		}
		defer closeDB(pool, logger)
	}
	if err := db.Check(ctx, pool.Reader()); err != nil {
		return err
	}
	temporal := options.Temporal
	if temporal == nil {
		if temporal, err = config.Temporal.Dial(ctx, logger); err != nil {
			return err
		}
		defer temporal.Close()
	}
	if err := EnsureSearchAttributes(ctx, temporal, config.Temporal.Namespace); err != nil {
		return err
	}
	d := dependencies{db: pool, reserved: pool.Limited(config.reserve()), stripe: options.Stripe, livemode: options.Livemode, temporal: temporal}
	if d.stripe == nil {
		c := config.stripe()
		c.Logger = logger
		stripe := stripeapi.New(c)
		defer stripe.Close()
		d.stripe, d.livemode = stripe, stripe.Livemode()
	}
	return serve(ctx, config, d, options.Ready, logger)
}

// serve starts the workers, ensures the schedules and waits for the end.
func serve(ctx context.Context, config Config, d dependencies, ready func(), logger *slog.Logger) error {
	fatal := make(chan error, 2)
	var workers []worker.Worker
	defer func() { stop(workers, logger) }()
	for queue, what := range register(d) {
		options := workerOptions(config, queue)
		options.OnFatalError = func(err error) {
			fatal <- fmt.Errorf("the worker of queue %q cannot go on: %w", queue, err)
		}
		w := worker.New(d.temporal, queue, options)
		what.on(w)
		if err := w.Start(); err != nil {
			return fmt.Errorf("the worker of queue %q cannot start: %w", queue, err)
		}
		workers = append(workers, w)
	}
	// After the workers, so that what a schedule starts finds one.
	if err := ensureSchedules(ctx, d.temporal, schedules(config), logger); err != nil {
		return err
	}
	logger.Info("worker ready", "queues", []string{contract.QueueDB, contract.QueueIO}, "namespace", config.Temporal.Namespace,
		"db_connections", config.DBMaxConns, "db_reserve", config.reserve(), "livemode", d.livemode, "version", telemetry.Version())
	if ready != nil {
		ready()
	}
	select {
	case err := <-fatal:
		return err
	case <-ctx.Done():
		logger.Info("worker stops: what runs may finish", "within", config.ShutdownTimeout.String())
		return nil
	}
}

func workerOptions(config Config, queue string) worker.Options {
	options := worker.Options{
		MaxConcurrentActivityTaskPollers: pollers,
		WorkerStopTimeout:                config.ShutdownTimeout,
	}
	switch queue {
	case contract.QueueDB:
		// An activity here holds one connection while it works; more slots than connections would only wait for them.
		options.MaxConcurrentActivityExecutionSize = int(config.DBMaxConns) - config.reserve()
		options.MaxConcurrentWorkflowTaskPollers = pollers
	case contract.QueueIO:
		options.MaxConcurrentActivityExecutionSize = config.IOSlots
		options.DisableWorkflowWorker = true
	}
	return options
}

// stop drains the workers side by side, so that they share one time-out.
func stop(workers []worker.Worker, logger *slog.Logger) {
	began := time.Now()
	var wait sync.WaitGroup
	for _, w := range workers {
		wait.Go(w.Stop)
	}
	wait.Wait()
	if len(workers) > 0 {
		logger.Info("worker stopped", "took", time.Since(began).Round(time.Millisecond).String())
	}
}

// lockOptions is what the options of the database begin with. The tests replace it before anything runs, to see the locks.
var lockOptions = db.LockOptions

func openDB(ctx context.Context, config Config) (*lockorder.DB, error) {
	options := lockOptions()
	options.MaxConns, options.Pooled, options.Configure = config.DBMaxConns, config.pooled(), telemetry.ConfigurePool
	options.Holder = lockview.Namer("worker")
	pool, err := lockmetrics.Open(ctx, config.DatabaseURL.Reveal(), options)
	if err != nil {
		return nil, fmt.Errorf("%w; check DATABASE_URL, and that the server runs", err)
	}
	return pool, nil
}

// closeTimeout bounds the wait for transactions of activities that outlived the drain.
const closeTimeout = 5 * time.Second

func closeDB(pool *lockorder.DB, logger *slog.Logger) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		pool.Close()
	}()
	select {
	case <-done:
	case <-time.After(closeTimeout):
		logger.Warn("database connections are still in use at the end: an activity did not stop in time")
	}
}
