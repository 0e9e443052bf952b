package dev

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/stripe/stripe-go/v79"

	"github.com/bursarhq/bursar/internal/stripeapi"
	"github.com/bursarhq/bursar/internal/stripeapi/standin"
)

// pollEvery is the pause between two looks at a real account's events.
const pollEvery = 3 * time.Second

// pollBack is how far back the first look goes: what happened today is seen, a year of history is not replayed.
const pollBack = 24 * time.Hour

// poller hands a real account's events to the ingress, signed as a webhook would be: Stripe cannot reach a laptop.
// An event that the ingress does not accept is handed over again with the next poll.
type poller struct {
	stripe  *stripeapi.Client
	ingress string // URL of the webhook endpoint
	secret  string
	console *console
	cursor  stripeapi.Cursor
	http    http.Client
}

// once hands over everything that is new and returns how many events that were.
func (p *poller) once(ctx context.Context) (int, error) {
	handed := 0
	for more := true; more; {
		events, next, rest, err := p.stripe.Events(ctx, p.cursor)
		if err != nil {
			return handed, err
		}
		for _, e := range events {
			if err := p.hand(ctx, e); err != nil {
				return handed, fmt.Errorf("event %s: %w", e.ID, err)
			}
			handed++
		}
		p.cursor, more = next, rest
	}
	return handed, nil
}

func (p *poller) hand(ctx context.Context, event *stripe.Event) error {
	body, err := json.Marshal(event)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.ingress, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Stripe-Signature", standin.Signature(body, time.Now(), p.secret))
	resp, err := p.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the ingress answered %s", resp.Status)
	}
	return nil
}

// run polls until ctx ends. A failure is said once, and again when it changes.
func (p *poller) run(ctx context.Context) {
	said := ""
	for {
		n, err := p.once(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && err.Error() != said:
			said = err.Error()
			fmt.Fprintf(p.console, "  ! polling Stripe: %v; trying again\n", err)
		case err == nil:
			said = ""
			if n > 0 {
				fmt.Fprintf(p.console, "  %s from Stripe\n", count(n, "event"))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pollEvery):
		}
	}
}
