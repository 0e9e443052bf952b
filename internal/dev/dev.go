package dev

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/db"
	"github.com/bursarhq/bursar/ingress"
	"github.com/bursarhq/bursar/internal/catalog"
	"github.com/bursarhq/bursar/internal/devstack"
	"github.com/bursarhq/bursar/internal/lockview"
	"github.com/bursarhq/bursar/internal/stripeapi"
	"github.com/bursarhq/bursar/internal/stripeapi/standin"
	"github.com/bursarhq/bursar/internal/telemetry"
	"github.com/bursarhq/bursar/internal/telemetry/lockmetrics"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/worker"
	"github.com/bursarhq/bursar/workflows"
)

//go:embed catalog.yaml
var demonstration []byte

// webhookSecret signs webhooks between the parts of one machine; it protects nothing.
const webhookSecret = "whsec_only_for_this_machine"

// maxConns is the size of the pool.
const maxConns = 10

// Options say how Run is to be run. Out and Show are required.
type Options struct {
	// Out takes everything that is said.
	Out io.Writer
	// Show prints what an organisation is entitled to, as the command does.
	Show func(ctx context.Context, out io.Writer, db *lockorder.DB, organization string) error
	// Once ends after the story, or with a Stripe key after one look at its events, instead of staying up.
	Once bool
	// StripeKey makes it serve a real account in place of the stand-in. StripeURL is another address of Stripe's API.
	StripeKey, StripeURL string
	// Catalog is a catalogue file to apply, with its name. Empty means the demonstration's; with a Stripe key it means none, since
	// the demonstration's prices are not the account's.
	Catalog     []byte
	CatalogName string
}

// Run starts everything, plays, stays up until ctx ends unless told otherwise, and ends everything. It returns nil when it was interrupted
// while it stayed up, and an error when something could not be started or the story went wrong.
func Run(ctx context.Context, options Options) (err error) {
	s := &stack{options: options, console: newConsole(options.Out)}
	// What runs is ended from the outside in, also when ctx has ended: each part has its own bound.
	defer func() {
		interrupted := ctx.Err() != nil
		err = errors.Join(err, s.stop(interrupted))
	}()
	if err := s.start(ctx); err != nil {
		return s.interrupted(ctx, err)
	}
	if err := s.play(ctx); err != nil {
		return s.interrupted(ctx, err)
	}
	if options.Once {
		return nil
	}
	s.invite()
	select {
	case <-ctx.Done():
		return nil
	case <-s.failed:
		return s.background.Wait()
	case <-s.postgres.Done():
		return errors.New("PostgreSQL ended by itself")
	case <-s.temporal.Done():
		return errors.New("the Temporal server ended by itself")
	}
}

// stack is everything that runs, in the order in which it is started.
type stack struct {
	options Options
	console *console
	logger  *slog.Logger

	flush    func(context.Context) error
	postgres *devstack.Postgres
	temporal *devstack.Temporal
	standin  *standin.Server
	db       *lockorder.DB
	stripe   *stripeapi.Client
	client   client.Client
	poller   *poller

	background *errgroup.Group // worker, ingress, poller
	cancel     context.CancelFunc
	failed     <-chan struct{} // closed when one of them failed
	ingressURL string
	standinURL string
}

// interrupted says in place of whatever a cut-off step said that somebody interrupted it.
func (s *stack) interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

func (s *stack) start(ctx context.Context) error {
	// What can be refused is refused before anything starts.
	if len(s.options.Catalog) > 0 {
		if _, err := catalog.Parse(s.options.CatalogName, s.options.Catalog); err != nil {
			return err
		}
	}
	if s.options.StripeKey != "" {
		if err := (stripeapi.Config{Key: s.options.StripeKey, BaseURL: s.options.StripeURL}).Validate(); err != nil {
			return err
		}
	}
	fmt.Fprintf(s.console, "%s\n", s.console.bold("Bursar, with everything around it"))
	s.logger = slog.New(slog.NewTextHandler(s.console, &slog.HandlerOptions{Level: slog.LevelError}))
	for _, step := range []struct {
		name string
		fn   func(ctx context.Context, progress func(string)) (string, error)
	}{
		{"PostgreSQL", s.startPostgres},
		{"Temporal and its UI", s.startTemporal},
		{"Database schema", s.migrate},
		{"Stripe", s.startStripe},
		{"Worker and ingress", s.startProcesses},
		{"Catalogue", s.applyCatalog},
	} {
		if err := s.console.step(step.name, func(progress func(string)) (string, error) { return step.fn(ctx, progress) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *stack) startPostgres(ctx context.Context, progress func(string)) (string, error) {
	// What it holds is gone when it stops: nothing has to survive a crash of the machine.
	settings := map[string]string{"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "log_lock_waits": "on"}
	var err error
	if s.postgres, err = devstack.StartPostgres(ctx, devstack.PostgresOptions{Settings: settings, Progress: progress}); err != nil {
		return "", err
	}
	if err := s.postgres.CreateDatabase(ctx, "bursar"); err != nil {
		return "", err
	}
	return s.postgres.URL("bursar"), nil
}

func (s *stack) startTemporal(ctx context.Context, progress func(string)) (string, error) {
	var err error
	if s.temporal, err = devstack.StartTemporal(ctx, devstack.TemporalOptions{UI: true, Progress: progress}); err != nil {
		return "", err
	}
	return s.temporal.UIURL(), nil
}

func (s *stack) migrate(ctx context.Context, _ func(string)) (string, error) {
	applied, err := db.Migrate(ctx, s.postgres.URL("bursar"))
	if err != nil {
		return "", err
	}
	options := db.LockOptions()
	options.MaxConns, options.Configure = maxConns, telemetry.ConfigurePool
	options.Holder = lockview.Namer(lockview.Command("dev"))
	s.db, err = lockmetrics.Open(ctx, s.postgres.URL("bursar"), options)
	return count(len(applied), "migration"), err
}

func (s *stack) startStripe(ctx context.Context, _ func(string)) (string, error) {
	config := stripeapi.Config{Key: s.options.StripeKey, BaseURL: s.options.StripeURL, Logger: s.logger}
	said := "your account in test mode, polled for events"
	if s.options.StripeKey == "" {
		s.standin = standin.New(standin.Options{WebhookSecrets: []string{webhookSecret}, Seed: 1})
		url, err := s.standin.Start(context.WithoutCancel(ctx)) // ended by Close
		if err != nil {
			return "", err
		}
		s.standinURL = url
		config.Key, config.BaseURL, said = "sk_test_standin", url, "a stand-in at "+url
		if err := stock(s.standin); err != nil {
			return "", err
		}
	}
	if err := config.Validate(); err != nil {
		return "", err
	}
	s.stripe = stripeapi.New(config)
	if s.stripe.Livemode() {
		said = s.console.bold("your LIVE account") + ", read and polled for events; nothing is written to it"
	}
	return said, nil
}

// startProcesses runs what in production are `bursar worker` and `bursar ingress`.
func (s *stack) startProcesses(ctx context.Context, _ func(string)) (string, error) {
	var err error
	if s.flush, err = telemetry.Setup(ctx, "bursar-dev"); err != nil {
		return "", err
	}
	config, err := worker.LoadConfig(func(name string) string {
		return map[string]string{
			"DATABASE_URL": s.postgres.URL("bursar"), "BURSAR_DB_MAX_CONNS": fmt.Sprint(maxConns), "STRIPE_API_KEY": "sk_test_given_below",
			"TEMPORAL_ADDRESS": s.temporal.Address(), "TEMPORAL_NAMESPACE": s.temporal.Namespace(),
			"BURSAR_PARKED_RETRY_INTERVAL": "15s", "BURSAR_SHUTDOWN_TIMEOUT": "10s",
		}[name]
	})
	if err != nil {
		return "", err
	}
	if s.client, err = config.Temporal.Dial(ctx, s.logger); err != nil {
		return "", err
	}
	server, err := ingress.New(ingress.Config{
		Secrets: []string{webhookSecret}, Starter: workflows.Starter{Client: s.client}, Logger: s.logger,
		Ready: worker.Ready(s.client, config.Temporal.Namespace),
	})
	if err != nil {
		return "", err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s.ingressURL = "http://" + listener.Addr().String() + "/webhooks/stripe"

	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	group, running := errgroup.WithContext(running)
	s.background, s.failed = group, running.Done()
	ready := make(chan struct{})
	group.Go(func() error { return server.Serve(running, listener) })
	group.Go(func() error {
		return worker.Run(running, config, worker.Options{
			DB: s.db, Temporal: s.client, Stripe: s.stripe, Livemode: s.stripe.Livemode(), Logger: s.logger, TelemetryIsSet: true,
			Ready: func() { close(ready) },
		})
	})
	select {
	case <-ready:
	case <-s.failed:
		return "", group.Wait()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if s.standin != nil {
		s.standin.SetWebhookURL(s.ingressURL)
	} else {
		s.poller = &poller{stripe: s.stripe, ingress: s.ingressURL, secret: webhookSecret, console: s.console, cursor: stripeapi.CursorAt(time.Now().Add(-pollBack))}
	}
	return s.ingressURL, nil
}

func (s *stack) applyCatalog(ctx context.Context, _ func(string)) (string, error) {
	name, data := s.options.CatalogName, s.options.Catalog
	switch {
	case len(data) > 0:
	case s.standin == nil:
		return "none yet: bursar catalog apply FILE, with your own prices", nil
	default:
		name, data = "the demonstration catalogue", demonstration
	}
	file, err := catalog.Parse(name, data)
	if err != nil {
		return "", err
	}
	preview, err := catalog.Plan(ctx, s.db, file)
	if err != nil {
		return "", err
	}
	if preview, err = catalog.Apply(ctx, s.db, file, preview); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s from %s", count(len(preview.Changes), "change"), name), nil
}

// play tells the story, or hands over what a real account has.
func (s *stack) play(ctx context.Context) error {
	if s.standin == nil {
		n, err := s.poller.once(ctx)
		switch {
		case err != nil && s.options.Once:
			return err
		case err != nil:
			fmt.Fprintf(s.console, "\n  ! polling Stripe: %v; trying again\n", err)
		}
		fmt.Fprintf(s.console, "\nHanded over %s of the last day. What cannot be mapped yet is parked: bursar parked\n", count(n, "event"))
		if !s.options.Once {
			running, cancel := context.WithCancel(context.WithoutCancel(ctx))
			stop := s.cancel
			s.cancel = func() { cancel(); stop() }
			s.background.Go(func() error { s.poller.run(running); return nil })
		}
		return nil
	}
	if len(s.options.Catalog) > 0 {
		fmt.Fprintf(s.console, "\nThe story is left out: its prices are those of the demonstration catalogue.\n")
		return nil
	}
	operator := activities.Operator{DB: s.db}
	if _, err := operator.CreateOrganization(ctx, activities.NewOrganizationRequest{Slug: member, Name: memberName, Type: memberType}); err != nil {
		return err
	}
	tale := &story{
		console: s.console, stripe: s.stripe, standin: s.standin, temporal: s.client, uiURL: s.temporal.UIURL(),
		show: func(ctx context.Context, organization string) error {
			return s.options.Show(ctx, s.options.Out, s.db, organization) // itself, so that it can tell a terminal
		},
	}
	return tale.play(ctx)
}

// reconcilesOnly leaves what schedules start out of the list of workflows.
const reconcilesOnly = "/namespaces/default/workflows?query=WorkflowType%3D%22SubscriptionReconcile%22"

// invite says what can be done while everything stays up.
func (s *stack) invite() {
	stripeLine := ""
	if s.standin != nil {
		stripeLine = fmt.Sprintf("  Stripe       STRIPE_API_URL=%s with any key that begins with sk_test_\n", s.standinURL)
	}
	look := "entitlements " + member
	if s.standin == nil || len(s.options.Catalog) > 0 {
		look = "org create SLUG --name NAME --type TYPE"
	}
	fmt.Fprintf(s.console, "\n%s\n  Temporal UI  %s\n  Webhooks     %s, signed with %s\n%s\nIn another terminal:\n  export DATABASE_URL='%s' TEMPORAL_ADDRESS=%s\n  go run ./cmd/bursar %s\n  go run ./cmd/bursar --help\n\nCtrl-C stops everything and leaves nothing behind.\n",
		s.console.bold("It stays up."), s.temporal.UIURL()+reconcilesOnly, s.ingressURL, webhookSecret, stripeLine, s.postgres.URL("bursar"), s.temporal.Address(), look)
}

// stop ends everything, whatever was started.
func (s *stack) stop(interrupted bool) error {
	if interrupted {
		fmt.Fprintln(s.console, "\nStopping …")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	keep := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("stopping %s: %w", what, err))
		}
	}
	if s.cancel != nil {
		s.cancel()
		if err := s.background.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			keep("the worker and the ingress", err)
		}
	}
	if s.standin != nil {
		s.standin.Close()
	}
	if s.stripe != nil {
		s.stripe.Close()
	}
	if s.client != nil {
		s.client.Close()
	}
	if s.db != nil {
		s.db.Close()
	}
	if s.flush != nil {
		keep("the traces", s.flush(ctx))
	}
	if s.temporal != nil {
		keep("Temporal", s.temporal.Stop(ctx))
	}
	if s.postgres != nil {
		keep("PostgreSQL", s.postgres.Stop(ctx))
	}
	if interrupted && len(errs) == 0 {
		fmt.Fprintln(s.console, strings.TrimSpace("Stopped; nothing is left behind."))
	}
	return errors.Join(errs...)
}
