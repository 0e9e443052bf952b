package ingress

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// outcome is what became of a webhook, in logs, metrics and answers.
type outcome string

const (
	outcomeSignalled    outcome = "signalled"
	outcomeNothingToDo  outcome = "nothing_to_do"
	outcomeIgnored      outcome = "ignored"
	outcomeBadSignature outcome = "bad_signature"
	outcomeTooOld       outcome = "too_old"
	outcomeInFuture     outcome = "in_future"
	outcomeTooLarge     outcome = "too_large"
	outcomeUnreadable   outcome = "unreadable"
	outcomeMalformed    outcome = "malformed"
	outcomeBadID        outcome = "bad_id"
	outcomeUnavailable  outcome = "unavailable"
)

// labels are the event types that the counter tells apart; every other one is "other", so that nobody can make series
// without end.
var labels = []string{
	"checkout.session.async_payment_succeeded", "checkout.session.completed",
	"customer.subscription.created", "customer.subscription.deleted", "customer.subscription.paused",
	"customer.subscription.pending_update_applied", "customer.subscription.pending_update_expired",
	"customer.subscription.resumed", "customer.subscription.trial_will_end", "customer.subscription.updated",
	"invoice.created", "invoice.finalized", "invoice.marked_uncollectible", "invoice.paid",
	"invoice.payment_action_required", "invoice.payment_failed", "invoice.payment_succeeded", "invoice.upcoming",
	"invoice.updated", "invoice.voided",
	"subscription_schedule.aborted", "subscription_schedule.canceled", "subscription_schedule.completed",
	"subscription_schedule.created", "subscription_schedule.expiring", "subscription_schedule.released",
	"subscription_schedule.updated",
}

func label(kind string) string {
	switch {
	case kind == "":
		return "none" // nothing was verified, or nothing could be read
	case slices.Contains(labels, kind):
		return kind
	}
	return "other"
}

// result is how a webhook was dealt with.
type result struct {
	event   event
	outcome outcome
	status  int
	err     error // what the caller is told
	cause   error // what only the log is told
}

func (s *Server) stripe(w http.ResponseWriter, r *http.Request) {
	if !allow(w, r, http.MethodPost) {
		return
	}
	began := time.Now()
	res := s.receive(w, r)
	s.record(r.Context(), res, time.Since(began))
	if res.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(int(max(s.cfg.RetryAfter, time.Second)/time.Second)))
	}
	if res.err != nil {
		reply(w, res.status, answer{Error: res.err.Error()})
		return
	}
	reply(w, res.status, answer{Received: true, Outcome: res.outcome})
}

// receive takes one webhook in, up to Temporal's word that it has the signal.
func (s *Server) receive(w http.ResponseWriter, r *http.Request) result {
	header := r.Header.Get("Stripe-Signature")
	if header == "" {
		return result{outcome: outcomeBadSignature, status: http.StatusBadRequest, err: errors.New("the Stripe-Signature header is missing")}
	}
	payload, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return result{outcome: outcomeTooLarge, status: http.StatusRequestEntityTooLarge, err: errors.New("the body is larger than 1 MiB")}
		}
		return result{outcome: outcomeUnreadable, status: http.StatusBadRequest, err: errors.New("the body could not be read to its end")}
	}
	if why, err := verify(payload, header, s.cfg.Secrets, s.cfg.Now(), s.cfg.Tolerance); err != nil {
		return result{outcome: why, status: http.StatusBadRequest, err: err}
	}
	e, err := parseEvent(payload)
	switch {
	case errors.Is(err, errBadID):
		return result{event: e, outcome: outcomeBadID, status: http.StatusBadRequest, err: err}
	case err != nil:
		return result{event: e, outcome: outcomeMalformed, status: http.StatusBadRequest, err: err}
	case !e.wanted:
		return result{event: e, outcome: outcomeIgnored, status: http.StatusOK}
	case e.subscription == "":
		return result{event: e, outcome: outcomeNothingToDo, status: http.StatusOK}
	}
	// A caller that hangs up does not undo its event: the signal goes on, within its own bound.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), s.cfg.SignalTimeout)
	defer cancel()
	if err := s.cfg.Starter.SignalReconcile(ctx, e.subscription, e.signal()); err != nil {
		return result{event: e, outcome: outcomeUnavailable, status: http.StatusServiceUnavailable,
			err: errors.New("the event cannot be taken now; send it again"), cause: err}
	}
	return result{event: e, outcome: outcomeSignalled, status: http.StatusOK}
}

// record writes the line, the span's attributes and the count of one webhook: ids, type, outcome and duration only.
func (s *Server) record(ctx context.Context, res result, took time.Duration) {
	s.counter.Add(ctx, 1, metric.WithAttributes(attribute.String("type", label(res.event.kind)), attribute.String("outcome", string(res.outcome))))
	span := trace.SpanFromContext(ctx)
	span.SetAttributes(attribute.String("bursar.event_id", res.event.id), attribute.String("bursar.event_type", res.event.kind),
		attribute.String("bursar.subscription_id", res.event.subscription), attribute.String("bursar.outcome", string(res.outcome)))
	level, attrs := slog.LevelInfo, []slog.Attr{
		slog.String("event_id", res.event.id), slog.String("type", res.event.kind), slog.String("object_id", res.event.subscription),
		slog.String("outcome", string(res.outcome)), slog.Int("status", res.status), slog.String("duration", took.Round(time.Microsecond).String()),
	}
	if res.err != nil {
		level = slog.LevelWarn
		attrs = append(attrs, slog.String("reason", res.err.Error()))
	}
	if res.cause != nil {
		level = slog.LevelError
		attrs = append(attrs, slog.String("error", res.cause.Error()))
		span.SetStatus(codes.Error, "the signal was not taken")
	}
	s.cfg.Logger.LogAttrs(ctx, level, "webhook", attrs...)
}
