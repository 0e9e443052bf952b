package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/metric"
)

const scope = "github.com/bursarhq/bursar/ingress"

// Server receives webhooks. It is an http.Handler; Run serves it with time-outs and a drain.
type Server struct {
	cfg      Config
	mux      *http.ServeMux
	counter  metric.Int64Counter
	draining atomic.Bool
}

// New returns a server, or what is wrong with the configuration. It listens to nothing yet.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("ingress: %w", err)
	}
	cfg = cfg.withDefaults()
	counter, err := cfg.MeterProvider.Meter(scope).Int64Counter("bursar.webhooks",
		metric.WithDescription("Webhooks received from Stripe, by event type and outcome."), metric.WithUnit("{webhook}"))
	if err != nil {
		return nil, fmt.Errorf("ingress: the counter of webhooks: %w", err)
	}
	s := &Server{cfg: cfg, mux: http.NewServeMux(), counter: counter}
	// A caller's trace context is only linked to: anybody may send one.
	s.mux.Handle("/webhooks/stripe", otelhttp.NewHandler(http.HandlerFunc(s.stripe), "POST /webhooks/stripe",
		otelhttp.WithPublicEndpointFn(func(*http.Request) bool { return true }),
		otelhttp.WithTracerProvider(cfg.TracerProvider), otelhttp.WithMeterProvider(cfg.MeterProvider)))
	s.mux.HandleFunc("/healthz", s.health)
	s.mux.HandleFunc("/readyz", s.ready)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusNotFound, answer{Error: "there is nothing here; webhooks go to /webhooks/stripe"})
	})
	return s, nil
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Run listens on the configured address and serves until ctx ends; then it drains and returns nil. An error means that
// it could not listen or serve, or that the drain took longer than its bound and requests were cut off.
func (s *Server) Run(ctx context.Context) error {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", s.cfg.Addr)
	if err != nil {
		return fmt.Errorf("ingress: cannot listen on %s: %w", s.cfg.Addr, err)
	}
	return s.Serve(ctx, listener)
}

// Serve is Run on a listener that is open already; it closes the listener.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       readTimeout,
		// Counted from the end of the header: it must leave room to read the body, to wait for Temporal, and to answer.
		WriteTimeout:   readTimeout + s.cfg.SignalTimeout + 5*time.Second,
		IdleTimeout:    90 * time.Second,
		MaxHeaderBytes: 64 << 10,
		ErrorLog:       slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	s.cfg.Logger.Info("ingress is listening", "address", listener.Addr().String())
	select {
	case err := <-served:
		return fmt.Errorf("ingress: serving: %w", err)
	case <-ctx.Done():
	}
	s.draining.Store(true)
	s.cfg.Logger.Info("ingress is draining", "within", s.cfg.ShutdownTimeout.String())
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.ShutdownTimeout)
	defer cancel()
	err := server.Shutdown(bounded)
	if err != nil {
		err = fmt.Errorf("ingress: the drain took longer than %s, so requests were cut off (Stripe sends them again): %w", s.cfg.ShutdownTimeout, err)
		err = errors.Join(err, server.Close())
	}
	<-served
	return err
}

func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	if !allow(w, r, http.MethodGet, http.MethodHead) {
		return
	}
	reply(w, http.StatusOK, answer{Status: "ok"})
}

func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	if !allow(w, r, http.MethodGet, http.MethodHead) {
		return
	}
	if s.draining.Load() {
		reply(w, http.StatusServiceUnavailable, answer{Error: "draining"})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	if err := s.cfg.Ready(ctx); err != nil {
		s.cfg.Logger.WarnContext(r.Context(), "ingress is not ready", "error", err)
		reply(w, http.StatusServiceUnavailable, answer{Error: "Temporal cannot be reached"})
		return
	}
	reply(w, http.StatusOK, answer{Status: "ready"})
}

// allow answers 405 unless the method is one of those.
func allow(w http.ResponseWriter, r *http.Request, methods ...string) bool {
	for _, m := range methods {
		if r.Method == m {
			return true
		}
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	reply(w, http.StatusMethodNotAllowed, answer{Error: "method not allowed; use " + methods[0]})
	return false
}

// answer is the body of every answer.
type answer struct {
	Received bool    `json:"received,omitempty"`
	Outcome  outcome `json:"outcome,omitempty"`
	Status   string  `json:"status,omitempty"`
	Error    string  `json:"error,omitempty"`
}

func reply(w http.ResponseWriter, status int, a answer) {
	body, err := json.Marshal(a)
	if err != nil { // texts and a truth value only: it cannot happen
		http.Error(w, `{"error":"internal"}`, http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // an error means that the caller has left; it sends again
}
