package standin

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stripe/stripe-go/v79/webhook"
)

// deliverer sends events to the webhook address, one after another. Its own mutex comes after the server's.
type deliverer struct {
	server *Server
	opts   Options
	client *http.Client
	logger *slog.Logger

	mu      sync.Mutex
	changed chan struct{} // closed and replaced whenever the fields below change
	url     string
	secrets []string
	queue   []string // event ids; the first stays until it is delivered
	busy    bool     // a delivery is on its way
	paused  bool
}

func newDeliverer(s *Server, opts Options) *deliverer {
	return &deliverer{
		server:  s,
		opts:    opts,
		client:  &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()},
		logger:  opts.Logger,
		changed: make(chan struct{}),
		url:     opts.WebhookURL,
		secrets: slices.Clone(opts.WebhookSecrets),
	}
}

// update changes the fields under the mutex and tells whoever waits.
func (d *deliverer) update(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
	close(d.changed)
	d.changed = make(chan struct{})
}

func (d *deliverer) hooked() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.url != ""
}

// add queues an event, unless nobody is to receive it.
func (d *deliverer) add(ids ...string) {
	d.update(func() {
		if d.url != "" {
			d.queue = append(d.queue, ids...)
		}
	})
}

// shuffle puts the queue into an order that the seed decides, and lets it go. What is on its way stays first.
func (d *deliverer) shuffle(seed int64) {
	d.update(func() {
		rest := d.queue
		if d.busy && len(rest) > 0 {
			rest = rest[1:]
		}
		rnd := rand.New(rand.NewPCG(uint64(seed), 0x73687566))
		rnd.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
		d.paused = false
	})
}

// idle waits until nothing is queued or on its way.
func (d *deliverer) idle(ctx context.Context) error {
	for {
		d.mu.Lock()
		left, changed := len(d.queue), d.changed
		d.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("stripe stand-in: %d webhooks are not delivered yet: %w", left, context.Cause(ctx))
		}
	}
}

// run delivers until ctx ends.
func (d *deliverer) run(ctx context.Context) {
	delay := d.opts.RetryDelay
	for ctx.Err() == nil {
		d.mu.Lock()
		ready, changed := !d.paused && len(d.queue) > 0 && d.url != "", d.changed
		var id, url string
		var secrets []string
		if ready {
			d.busy, id, url, secrets = true, d.queue[0], d.url, slices.Clone(d.secrets)
		}
		d.mu.Unlock()
		if !ready {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		err := d.deliver(ctx, id, url, secrets)
		d.update(func() {
			d.busy = false
			if err == nil {
				d.queue = d.queue[1:]
			}
		})
		if err == nil {
			delay = d.opts.RetryDelay
			continue
		}
		d.logger.Info("stripe stand-in: webhook not delivered, will be sent again", "event", id, "error", err, "in", delay)
		select {
		case <-time.After(delay):
		case <-ctx.Done():
		}
		delay = min(2*delay, 100*d.opts.RetryDelay)
	}
}

// deliver sends one event once; an error means that the receiver did not answer 2xx.
func (d *deliverer) deliver(ctx context.Context, id, url string, secrets []string) error {
	s := d.server
	s.mu.Lock()
	e, ok := s.events.get(id)
	if !ok {
		s.mu.Unlock()
		return nil
	}
	e.attempts++
	body := mustJSON(e.render(true))
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, d.opts.DeliveryTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("the webhook address: %w", err)
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	req.Header.Set("User-Agent", "Stripe/1.0 (+https://stripe.com/docs/webhooks)")
	req.Header.Set("Stripe-Signature", Signature(body, d.opts.Clock(), secrets...))
	resp, err := d.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20)) // so that the connection is used again
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("the receiver answered %s", resp.Status)
	}
	s.mu.Lock()
	e.delivered = true
	s.mu.Unlock()
	return nil
}

// Signature returns the Stripe-Signature header for a body sent at the given time: one v1 signature for each secret.
func Signature(body []byte, at time.Time, secrets ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "t=%d", at.Unix())
	for _, secret := range secrets {
		b.WriteString(",v1=" + hex.EncodeToString(webhook.ComputeSignature(at, body, secret)))
	}
	return b.String()
}
