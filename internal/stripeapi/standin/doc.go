// Package standin is a stateful stand-in for Stripe, spoken to over HTTP through the real Stripe client. It serves
// `bursar dev` where no Stripe key is set, and the tests. Besides the clock it is the only double in the project.
//
// It speaks the wire format of API version 2024-06-20: form-encoded requests with nested parameters, JSON answers and
// error objects, Request-Id, bearer or basic authorisation, idempotency keys, cursor-paged lists. It keeps customers,
// products, prices, subscriptions with their items, checkout sessions and events, and delivers signed webhooks.
//
// # Where it is strict
//
// A parameter that it does not know is refused as Stripe refuses one (parameter_unknown), so that a test cannot pass on
// a parameter that did nothing. So are an unknown expansion, another API version and an id that does not exist.
//
// # Where it is simple
//
// Every payment succeeds at once: there are no invoices and no payment methods; SetStatus brings about what a failed
// payment would. Time passes only by Advance: a period that ends by the machine's clock is renewed by the next Advance,
// not before. Test mode only, unless SetLivemode says otherwise for an object.
//
// # Concurrency
//
// One mutex guards the state; each request is one step under it. Nothing is called with the mutex held. Webhooks are
// delivered by one goroutine in the order of the events; a receiver that does not answer 2xx holds up those behind it
// until it does.
package standin
