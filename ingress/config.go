package ingress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/bursarhq/bursar/workflows/contract"
)

// Defaults of Config.
const (
	DefaultAddr            = ":8080"
	DefaultTolerance       = 5 * time.Minute
	DefaultSignalTimeout   = 8 * time.Second
	DefaultShutdownTimeout = 15 * time.Second
	DefaultRetryAfter      = 10 * time.Second
)

// readTimeout bounds the reading of a request, header and body.
const readTimeout = 10 * time.Second

// readyTimeout bounds one readiness check.
const readyTimeout = 3 * time.Second

// maxBody is the largest body accepted, in bytes. Stripe's events are far smaller.
const maxBody = 1 << 20

// Starter hands a signal to the workflow of a subscription and starts the workflow where none runs. It returns nil only
// when Temporal has the signal, and returns soon after ctx ends. It may be called from many goroutines, and twice for one
// event.
type Starter interface {
	SignalReconcile(ctx context.Context, subscriptionID string, signal contract.ReconcileSignal) error
}

// Config configures a Server. Starter, Ready and Secrets are required.
type Config struct {
	// Addr is the address that Run listens on. Empty means DefaultAddr.
	Addr string
	// Secrets are the signing secrets (whsec_…) of which any may have made a signature: the current one and, while it is
	// being rotated, the previous one.
	Secrets []string
	// Tolerance is how far a signature's time may lie before or after now. Zero means DefaultTolerance.
	Tolerance time.Duration
	// SignalTimeout bounds the call to Temporal. Zero means DefaultSignalTimeout. Stripe itself waits about 20 s.
	SignalTimeout time.Duration
	// ShutdownTimeout bounds the drain. Zero means DefaultShutdownTimeout.
	ShutdownTimeout time.Duration
	// RetryAfter is what a 503 advises, in whole seconds. Zero means DefaultRetryAfter.
	RetryAfter time.Duration

	// Starter reaches Temporal.
	Starter Starter
	// Ready reports whether Temporal can be reached now; it is called for each /readyz, with a context of 3 s.
	Ready func(ctx context.Context) error

	// Logger receives a line for each webhook. Nil means slog.Default().
	Logger *slog.Logger
	// Now is the clock that signatures are held against. Nil means time.Now.
	Now func() time.Time
	// TracerProvider and MeterProvider default to the global ones.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
}

// Validate returns all that is wrong with the configuration, joined, each naming its setting; nil when nothing is. No
// secret is in the text.
func (c Config) Validate() error {
	var errs []error
	if len(c.Secrets) == 0 {
		errs = append(errs, errors.New("webhook secrets: none is set; copy the signing secret (whsec_…) of the endpoint from the Stripe dashboard"))
	}
	for i, s := range c.Secrets {
		switch {
		case strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }):
			errs = append(errs, fmt.Errorf("webhook secrets: number %d holds a space or a character that no secret has; copy it again", i+1))
		case len(s) < 16:
			errs = append(errs, fmt.Errorf("webhook secrets: number %d is shorter than 16 characters, so it is no signing secret", i+1))
		}
	}
	for _, d := range []struct {
		name string
		v    time.Duration
	}{{"webhook tolerance", c.Tolerance}, {"signal time-out", c.SignalTimeout}, {"shutdown time-out", c.ShutdownTimeout}, {"retry-after", c.RetryAfter}} {
		if d.v < 0 {
			errs = append(errs, fmt.Errorf("%s: %s is negative", d.name, d.v))
		}
	}
	if c.Starter == nil {
		errs = append(errs, errors.New("starter: none is given"))
	}
	if c.Ready == nil {
		errs = append(errs, errors.New("readiness check: none is given"))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.Addr = cmp.Or(c.Addr, DefaultAddr)
	c.Tolerance = cmp.Or(c.Tolerance, DefaultTolerance)
	c.SignalTimeout = cmp.Or(c.SignalTimeout, DefaultSignalTimeout)
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, DefaultShutdownTimeout)
	c.RetryAfter = cmp.Or(c.RetryAfter, DefaultRetryAfter)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	return c
}
