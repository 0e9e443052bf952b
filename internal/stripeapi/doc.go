// Package stripeapi is the one way in which Bursar speaks to Stripe: the official client, pinned to API version
// 2024-06-20, with time-outs short enough for an activity, errors sorted into the four kinds that callers act on,
// and a span per call.
//
// # What it promises
//
//   - Every method respects its context and, on top of it, a bound of its own on each call (Config.Timeout), so a
//     hung Stripe costs a caller that long and no longer.
//   - An object is returned whole or not at all: a subscription's items are paged through before it is returned.
//   - Errors are *Error. IsNotFound, IsRateLimited and IsAuth name the kinds that change what a caller does; every
//     other error is transient and may be retried. No error text contains the API key, a response body or a payload.
//   - Nothing here retries for long. Retrying is the work of the activity's retry policy, where it can be seen.
//
// No method may be called inside a database transaction.
package stripeapi
