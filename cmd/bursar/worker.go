package main

import (
	"github.com/spf13/cobra"

	"github.com/bursarhq/bursar/worker"
)

func newWorkerCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "worker",
		Short: "Run the workers that reconcile subscriptions",
		Long: `Runs the Temporal workers of both task queues until it is asked to stop (SIGTERM, Ctrl-C), then lets what runs finish.
Any number may run at once. It makes the search attributes and the schedules that it needs.

Environment:
  DATABASE_URL                  PostgreSQL 15 or later, migrated by 'bursar migrate' (required)
  STRIPE_API_KEY                secret or restricted key of the Stripe account (required)
  STRIPE_API_URL                another address of Stripe's API
  TEMPORAL_ADDRESS              host:port of Temporal (localhost:7233)
  TEMPORAL_NAMESPACE            its namespace (default)
  TEMPORAL_API_KEY              key of Temporal Cloud; turns TLS on
  TEMPORAL_TLS                  true for TLS without a key (false)
  BURSAR_DB_MAX_CONNS           database connections of this process (10)
  BURSAR_DB_RESERVE             how many of them activities that call Stripe may use at once (half)
  BURSAR_DB_POOLER              pgbouncer where DATABASE_URL goes through it, in transaction mode (none)
  BURSAR_IO_SLOTS               how many activities that call Stripe run at once (200)
  BURSAR_PARKED_RETRY_INTERVAL  how often parked work is looked through (30s)
  BURSAR_SHUTDOWN_TIMEOUT       how long running activities may take to finish (20s)
  BURSAR_LOG_LEVEL              debug, info, warn or error (info)
  OTEL_EXPORTER_OTLP_ENDPOINT   where traces and metrics are sent, over HTTP (nowhere)`,
		Example: `  DATABASE_URL=postgres://… STRIPE_API_KEY=sk_test_… bursar worker`,
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := worker.LoadConfig(a.getenv)
			if err != nil {
				return err
			}
			return worker.Run(cmd.Context(), config, worker.Options{Logger: newLogger(a.err, config.LogLevel)})
		},
	}
}
