package standin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Options configure a Server. The zero value gives a stand-in with the machine's clock, unpredictable ids and no
// webhooks.
type Options struct {
	// WebhookURL receives every event, signed. Empty means that nothing is delivered; SetWebhookURL sets it later.
	WebhookURL string
	// WebhookSecrets sign each delivery; with several, as while a secret is rotated, it carries one signature for each.
	WebhookSecrets []string
	// Clock is the time. Nil means time.Now. Advance moves what the objects see, not the time of a signature.
	Clock func() time.Time
	// Seed, when not zero, makes the ids the same in each run.
	Seed int64
	// Key, when set, is the only API key accepted; else any that looks like one is.
	Key string
	// EmbeddedItems is how many items a subscription shows before it says has_more. Zero means 10.
	EmbeddedItems int
	// RetryDelay is the pause after a delivery's first failure; it doubles up to a hundred times itself. Zero means 50 ms.
	RetryDelay time.Duration
	// DeliveryTimeout bounds one delivery. Zero means 10 s.
	DeliveryTimeout time.Duration
	// Logger receives a line for each failed delivery. Nil means none.
	Logger *slog.Logger
}

// Server is the stand-in: an http.Handler with controls. Make one with New.
type Server struct {
	opts Options
	mux  *http.ServeMux

	mu            sync.Mutex
	ids           *ids
	offset        time.Duration
	frozen        time.Time
	base          string // URL of this server once started, for the address of a checkout page
	customers     table[Customer]
	products      table[Product]
	prices        table[Price]
	subscriptions table[Subscription]
	sessions      table[checkoutSession]
	events        table[event]
	replies       map[string]*reply // by idempotency key
	reads         map[string]int
	fail          failing
	hang          time.Duration
	hangUntil     <-chan struct{}
	onRead        func(string)

	hooks   *deliverer
	life    context.Context // ends with Close
	end     context.CancelFunc
	running sync.WaitGroup
}

type failing struct {
	left       int
	status     int
	retryAfter time.Duration
}

// New returns a stand-in without objects. It starts nothing: use it as a handler, or call Start.
func New(opts Options) *Server {
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	opts.EmbeddedItems = cmp.Or(opts.EmbeddedItems, 10)
	opts.RetryDelay = cmp.Or(opts.RetryDelay, 50*time.Millisecond)
	opts.DeliveryTimeout = cmp.Or(opts.DeliveryTimeout, 10*time.Second)
	s := &Server{
		opts:    opts,
		ids:     newIDs(opts.Seed),
		replies: make(map[string]*reply),
		reads:   make(map[string]int),
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.hooks = newDeliverer(s, opts)
	s.mux = s.routes()
	return s
}

// Start listens on a free loopback port, begins to deliver webhooks, and returns the base URL to give to the client.
// Both end when ctx does or Close is called. Call it once.
func (s *Server) Start(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("stripe stand-in: cannot listen on a loopback port: %w", err)
	}
	base := "http://" + listener.Addr().String()
	s.mu.Lock()
	s.base = base
	s.mu.Unlock()

	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(s.opts.Logger.Handler(), slog.LevelDebug)}
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(s.life, cancel)
	s.running.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.opts.Logger.Error("stripe stand-in: serving ended", "error", err)
		}
	})
	s.running.Go(func() {
		<-ctx.Done()
		server.Close()
	})
	s.StartDeliveries(ctx)
	return base, nil
}

// StartDeliveries begins to deliver webhooks until ctx ends or Close is called. Start does it too; it is for those who
// serve the handler themselves.
func (s *Server) StartDeliveries(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(s.life, cancel)
	s.running.Go(func() {
		defer cancel()
		s.hooks.run(ctx)
	})
}

// Close ends what Start began, releases whoever hangs, and waits until nothing runs any more. What was not delivered is
// dropped. It may be called twice.
func (s *Server) Close() {
	s.end()
	s.running.Wait()
	s.hooks.client.CloseIdleConnections()
}

// now is the time that objects see, in whole seconds. The mutex must be held.
func (s *Server) now() time.Time {
	if !s.frozen.IsZero() {
		return s.frozen
	}
	return s.opts.Clock().Add(s.offset).UTC().Truncate(time.Second)
}
