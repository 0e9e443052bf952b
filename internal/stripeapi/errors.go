package stripeapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v79"
)

// Kind sorts failures by what a caller does about them.
type Kind int

const (
	// KindTransient is everything that may pass by itself: network, time-out, 5xx, an answer that cannot be read, and
	// also a request that Stripe refuses as invalid, since a retry costs little and a later release may fix it.
	KindTransient Kind = iota
	// KindNotFound means that Stripe knows no such object for this key. It is a reason to park, never to end anything.
	KindNotFound
	// KindRateLimited means that Stripe asks us to slow down.
	KindRateLimited
	// KindAuth means that the key is wrong, revoked or lacks a permission: an operator must act.
	KindAuth
)

// String returns the kind as a word for logs.
func (k Kind) String() string {
	switch k {
	case KindNotFound:
		return "not found"
	case KindRateLimited:
		return "rate limited"
	case KindAuth:
		return "not authorised"
	default:
		return "transient"
	}
}

// Error is every error that a Client returns. Its text holds ids, Stripe's own message and the request id to quote to
// Stripe's support; it holds no key, no payload and no response body.
type Error struct {
	// Op is what was asked, such as "retrieve subscription"; ID the object asked for, if one.
	Op, ID string
	Kind   Kind
	// Status is the HTTP status, or 0 when no answer came.
	Status int
	// Code is Stripe's error code, such as "resource_missing", or empty.
	Code string
	// Message says what went wrong.
	Message string
	// RequestID is Stripe's id of the request, or empty.
	RequestID string
	// RetryAfter is how long Stripe asks us to wait, or 0 when it does not say.
	RetryAfter time.Duration

	// cause is kept only for errors of contexts and time-outs, whose texts are known.
	cause error
}

// Error returns the failure in one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("stripe: ")
	if e.Op != "" {
		b.WriteString(e.Op)
		if e.ID != "" {
			b.WriteString(" " + strconv.QuoteToASCII(e.ID))
		}
		b.WriteString(": ")
	}
	b.WriteString(e.Message)
	if e.Status != 0 {
		fmt.Fprintf(&b, " (status %d", e.Status)
		if e.Code != "" {
			b.WriteString(", " + e.Code)
		}
		if e.RequestID != "" {
			b.WriteString(", request " + e.RequestID)
		}
		b.WriteString(")")
	}
	return b.String()
}

// Unwrap returns context.Canceled or context.DeadlineExceeded where one of them was the cause.
func (e *Error) Unwrap() error { return e.cause }

// IsNotFound reports whether Stripe said that the object does not exist for this key.
func IsNotFound(err error) bool { return kindOf(err) == KindNotFound }

// IsRateLimited reports whether Stripe asked us to slow down; RetryAfter says for how long.
func IsRateLimited(err error) bool { return kindOf(err) == KindRateLimited }

// IsAuth reports whether the key was refused or may not do what was asked.
func IsAuth(err error) bool { return kindOf(err) == KindAuth }

// RetryAfter returns how long Stripe asked us to wait, or 0 when err does not say.
func RetryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

func kindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return KindTransient
}

// Translate turns an error of the underlying client (see API) into an *Error; nil stays nil. ctx is the caller's
// context, op what was asked, id the object asked for.
func (c *Client) Translate(ctx context.Context, op, id string, err error) error {
	if err == nil {
		return nil
	}
	return c.translate(ctx, op, id, err)
}

func (c *Client) translate(ctx context.Context, op, id string, err error) *Error {
	if ours, ok := errors.AsType[*Error](err); ok {
		copied := *ours
		copied.Op, copied.ID = op, id
		return &copied
	}
	e := &Error{Op: op, ID: id}
	if answered, ok := errors.AsType[*stripe.Error](err); ok {
		c.fromAnswer(e, answered)
		return e
	}
	netErr, isNet := errors.AsType[net.Error](err)
	urlErr, isURL := errors.AsType[*url.Error](err)
	switch {
	case ctx.Err() != nil:
		e.cause = ctx.Err()
		e.Message = "the caller's context ended: " + ctx.Err().Error()
	case errors.Is(err, context.DeadlineExceeded) || (isNet && netErr.Timeout()):
		e.cause = context.DeadlineExceeded
		e.Message = fmt.Sprintf("no answer within %s", c.timeout)
	case isURL:
		// The text of the inner error names addresses and system calls, never headers.
		e.Message = "network: " + scrub(urlErr.Err.Error(), c.key)
	case isNet:
		e.Message = "network: " + scrub(netErr.Error(), c.key)
	default:
		// The client puts a sample of the body into such an error; a body may hold personal data.
		e.Message = "the answer could not be read as Stripe's JSON (a proxy, or a cut connection?)"
	}
	return e
}

// fromAnswer fills e from an error object that Stripe sent.
func (c *Client) fromAnswer(e *Error, a *stripe.Error) {
	e.Status, e.Code, e.RequestID = a.HTTPStatusCode, string(a.Code), a.RequestID
	e.Message = scrub(a.Msg, c.key)
	if e.Message == "" {
		e.Message = http.StatusText(a.HTTPStatusCode)
	}
	if a.LastResponse != nil {
		e.RetryAfter = parseRetryAfter(a.LastResponse.Header.Get("Retry-After"), time.Now())
	}
	switch {
	case a.HTTPStatusCode == http.StatusNotFound && a.Code == stripe.ErrorCodeResourceMissing:
		// A 404 without this code is about the address, not about the object.
		e.Kind = KindNotFound
	case a.HTTPStatusCode == http.StatusTooManyRequests && a.Code != stripe.ErrorCodeLockTimeout:
		// A lock time-out is a clash on one object, not a limit on the account.
		e.Kind = KindRateLimited
	case a.HTTPStatusCode == http.StatusUnauthorized || a.HTTPStatusCode == http.StatusForbidden:
		e.Kind = KindAuth
	}
}

// parseRetryAfter reads the header's two forms, seconds and date; anything else, or a time gone by, is 0.
func parseRetryAfter(header string, now time.Time) time.Duration {
	if header == "" {
		return 0
	}
	if n, err := strconv.Atoi(strings.TrimSpace(header)); err == nil {
		return max(0, time.Duration(min(n, 24*3600))*time.Second)
	}
	if at, err := http.ParseTime(header); err == nil {
		return min(max(0, at.Sub(now)), 24*time.Hour)
	}
	return 0
}
