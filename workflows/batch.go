package workflows

import (
	"errors"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/bursarhq/bursar/workflows/contract"
)

// maxBatch bounds the signals that are remembered one by one, so that a burst does not make inputs of megabytes. What
// is beyond it is counted; it leads to the same read.
const maxBatch = 200

const (
	maxStripeID            = 255
	maxFailureText         = 1000
	retryStateNonRetryable = enumspb.RETRY_STATE_NON_RETRYABLE_FAILURE
)

// batch is a set of signals in the order of their arrival, bounded.
type batch struct {
	signals []contract.ReconcileSignal
	omitted int
}

// add notes a signal; one that is there already, as a resent webhook is, changes nothing.
func (b *batch) add(signal contract.ReconcileSignal) {
	switch {
	case b.has(signal):
	case len(b.signals) >= maxBatch:
		b.omitted++
	default:
		b.signals = append(b.signals, signal)
	}
}

func (b *batch) addAll(other batch) {
	for _, signal := range other.signals {
		b.add(signal)
	}
	b.omitted += other.omitted
}

func (b *batch) has(signal contract.ReconcileSignal) bool {
	for _, s := range b.signals {
		if s == signal {
			return true
		}
	}
	return false
}

func (b *batch) empty() bool { return len(b.signals) == 0 && b.omitted == 0 }
func (b *batch) count() int  { return len(b.signals) + b.omitted }

func (b *batch) take() batch {
	taken := *b
	*b = batch{}
	return taken
}

// validStripeID tells whether id could be the id of a Stripe object of a kind: its prefix, then letters, digits and _.
func validStripeID(id, prefix string) bool {
	rest, ok := strings.CutPrefix(id, prefix)
	if !ok || rest == "" || len(id) > maxStripeID {
		return false
	}
	for _, c := range []byte(rest) {
		if c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// failureText is what an operator reads of a failed activity: the activity's own words, without the wrappers.
func failureText(err error) string {
	text := err.Error()
	var appErr *temporal.ApplicationError
	var timeout *temporal.TimeoutError
	switch {
	case errors.As(err, &appErr):
		text = appErr.Message()
	case errors.As(err, &timeout):
		text = "no answer in time (" + timeout.TimeoutType().String() + ")"
		if last := timeout.Unwrap(); last != nil {
			text += "; last: " + last.Error()
		}
	}
	if len(text) > maxFailureText {
		text = strings.ToValidUTF8(text[:maxFailureText], "") + "…"
	}
	return text
}

func joinSentences(parts ...string) string {
	kept := parts[:0]
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, " ")
}

var (
	keyOrganization = temporal.NewSearchAttributeKeyKeyword(contract.AttrOrganization)
	keyObject       = temporal.NewSearchAttributeKeyKeyword(contract.AttrObject)
	keyOutcome      = temporal.NewSearchAttributeKeyKeyword(contract.AttrOutcome)
)

// searchAttributes keeps the attributes of a run. A write is an event of its history, so only what differs is written.
type searchAttributes struct{ object string }

// update sets the attributes to the outcome and, when it is known, the organisation.
func (s searchAttributes) update(ctx workflow.Context, outcome, organization string) {
	current := workflow.GetTypedSearchAttributes(ctx)
	var updates []temporal.SearchAttributeUpdate
	set := func(key temporal.SearchAttributeKeyKeyword, value string) {
		if had, _ := current.GetKeyword(key); value != "" && had != value {
			updates = append(updates, key.ValueSet(value))
		}
	}
	set(keyObject, s.object)
	set(keyOrganization, organization)
	set(keyOutcome, outcome)
	if len(updates) == 0 {
		return
	}
	if err := workflow.UpsertTypedSearchAttributes(ctx, updates...); err != nil {
		workflow.GetLogger(ctx).Warn("search attributes could not be set", "error", err)
	}
}
