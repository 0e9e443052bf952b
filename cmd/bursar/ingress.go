package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/bursarhq/bursar/ingress"
	"github.com/bursarhq/bursar/internal/telemetry"
	"github.com/bursarhq/bursar/worker"
	"github.com/bursarhq/bursar/workflows"
)

func newIngressCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "ingress",
		Short: "Take Stripe's webhooks",
		Long: `Serves POST /webhooks/stripe, /healthz and /readyz until it is asked to stop (SIGTERM, Ctrl-C), then lets what is in flight
finish. A webhook is acknowledged only once Temporal has it; while Temporal is away the answer is 503, and Stripe sends
it again. It uses no database.

Environment:
  STRIPE_WEBHOOK_SECRETS        signing secrets of the endpoint, the current one first, separated by commas (required)
  BURSAR_INGRESS_ADDR           address to listen on (:8080)
  TEMPORAL_ADDRESS              host:port of Temporal (localhost:7233)
  TEMPORAL_NAMESPACE            its namespace (default)
  TEMPORAL_API_KEY              key of Temporal Cloud; turns TLS on
  TEMPORAL_TLS                  true for TLS without a key (false)
  BURSAR_SHUTDOWN_TIMEOUT       how long requests in flight may take to finish (20s)
  BURSAR_LOG_LEVEL              debug, info, warn or error (info)
  OTEL_EXPORTER_OTLP_ENDPOINT   where traces and metrics are sent, over HTTP (nowhere)`,
		Example: `  STRIPE_WEBHOOK_SECRETS=whsec_… bursar ingress`,
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := loadIngressConfig(a.getenv)
			if err != nil {
				return err
			}
			return runIngress(cmd.Context(), config, newLogger(a.err, config.LogLevel))
		},
	}
}

// newLogger is the log of a process that runs for long: one JSON object a line.
func newLogger(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
}

// ingressConfig is what the ingress reads from the environment.
type ingressConfig struct {
	Secrets         worker.Secret `env:"STRIPE_WEBHOOK_SECRETS"`
	Addr            string        `env:"BURSAR_INGRESS_ADDR" envDefault:":8080"`
	ShutdownTimeout time.Duration `env:"BURSAR_SHUTDOWN_TIMEOUT" envDefault:"20s"`
	LogLevel        slog.Level    `env:"BURSAR_LOG_LEVEL" envDefault:"info"`
	Temporal        worker.TemporalConfig
}

// loadIngressConfig reads and checks the configuration; all problems come back at once.
func loadIngressConfig(getenv func(string) string) (ingressConfig, error) {
	var c ingressConfig
	problems := worker.ParseEnv(&c, getenv, map[string]string{
		"BURSAR_SHUTDOWN_TIMEOUT": "a duration such as 20s",
		"BURSAR_LOG_LEVEL":        "one of debug, info, warn, error",
		"TEMPORAL_TLS":            "true or false",
	})
	var more []string
	if len(c.secrets()) == 0 {
		more = append(more, "STRIPE_WEBHOOK_SECRETS is not set: set it to the signing secret (whsec_…) of the endpoint, from the Stripe dashboard")
	}
	for i, secret := range c.secrets() {
		if !strings.HasPrefix(secret, "whsec_") || len(secret) < 16 || strings.ContainsAny(secret, " \t\r\n") {
			more = append(more, fmt.Sprintf("STRIPE_WEBHOOK_SECRETS: number %d is no signing secret: one begins with whsec_ and has at least 16 characters; copy it from the Stripe dashboard", i+1))
		}
	}
	if _, _, err := net.SplitHostPort(c.Addr); err != nil {
		more = append(more, fmt.Sprintf("BURSAR_INGRESS_ADDR is %q: set it to an address and a port, such as :8080", c.Addr))
	}
	if c.ShutdownTimeout < time.Second {
		more = append(more, fmt.Sprintf("BURSAR_SHUTDOWN_TIMEOUT is %s: set it to 1s or more", c.ShutdownTimeout))
	}
	problems = worker.AddProblems(problems, append(more, c.Temporal.Problems()...)...)
	if len(problems) > 0 {
		return c, &worker.ConfigError{Problems: problems}
	}
	return c, nil
}

func (c ingressConfig) secrets() (secrets []string) {
	for secret := range strings.SplitSeq(c.Secrets.Reveal(), ",") {
		if secret = strings.TrimSpace(secret); secret != "" {
			secrets = append(secrets, secret)
		}
	}
	return secrets
}

// runIngress serves webhooks until ctx ends.
func runIngress(ctx context.Context, config ingressConfig, logger *slog.Logger) error {
	shutdown, err := telemetry.Setup(ctx, "bursar-ingress")
	if err != nil {
		return err
	}
	defer func() {
		if err := shutdown(ctx); err != nil {
			logger.Warn("the last of the traces and metrics were not sent", "error", err)
		}
	}()
	// It may start before Temporal does: until Temporal answers, it is not ready and webhooks get 503.
	temporal, err := config.Temporal.DialLazily(logger)
	if err != nil {
		return err
	}
	defer temporal.Close()
	server, err := ingress.New(ingress.Config{
		Addr:            config.Addr,
		Secrets:         config.secrets(),
		ShutdownTimeout: config.ShutdownTimeout,
		Starter:         workflows.Starter{Client: temporal},
		Ready:           worker.Ready(temporal, config.Temporal.Namespace),
		Logger:          logger,
	})
	if err != nil {
		return err
	}
	attributes, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ensureAttributes(attributes, temporal, config.Temporal.Namespace, logger)
	}()
	defer func() { stop(); <-done }()
	return server.Run(ctx)
}

// ensureAttributes makes the search attributes without which Temporal refuses the signals, as soon as it can. A worker
// makes them too; whoever comes first does.
func ensureAttributes(ctx context.Context, c client.Client, namespace string, logger *slog.Logger) {
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		err := worker.EnsureSearchAttributes(ctx, c, namespace)
		if err == nil || ctx.Err() != nil {
			return
		}
		logger.Warn("search attributes are not ensured yet; without them Temporal refuses signals", "error", err, "next_try_in", pause.String())
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
