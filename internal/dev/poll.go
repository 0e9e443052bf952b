package dev

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
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
			var refused *refusal
			err := p.hand(ctx, e)
			switch {
			case errors.As(err, &refused) && refused.final():
				// It would be refused for ever, and hold up those behind it.
				fmt.Fprintf(p.console, "  ! event %s (%s) is left out: %v\n", e.ID, e.Type, err)
				continue
			case err != nil:
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
	said, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<12))
	if resp.StatusCode/100 != 2 {
		return &refusal{resp.StatusCode, strings.TrimSpace(string(said))}
	}
	return nil
}

// refusal is an answer of the ingress other than yes.
type refusal struct {
	status int
	said   string
}

func (r *refusal) Error() string { return fmt.Sprintf("the ingress answered %d: %s", r.status, r.said) }

// final tells whether sending it again would be answered alike.
func (r *refusal) final() bool { return r.status/100 == 4 && r.status != http.StatusTooManyRequests }

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
