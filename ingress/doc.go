// Package ingress is the HTTP server that Stripe's webhooks reach.
//
// POST /webhooks/stripe checks the signature and passes the id of the subscription that the event names to Temporal, by
// signal-with-start. Nothing else of the payload is used, so a duplicate, an old order, another API version and a state
// that has changed since are harmless: the workflow reads Stripe itself.
//
// # What it promises
//
//   - 2xx is answered only after Temporal has the signal, or when the event asks for none. When Temporal does not take
//     it in time the answer is 503 with Retry-After, and Stripe sends the event again, for up to three days.
//   - A body without a right signature, made within the tolerance before or after now, has no effect at all.
//   - It holds no database connection and keeps no state: any number of them may run.
//   - No secret, signature or payload is in a log line, an answer, a span or a metric. Ids and types are.
//   - When its context ends it accepts nothing new and finishes what is in flight, within a bound.
//
// # Answers
//
//	200  {"received":true,"outcome":"signalled"}      Temporal has it
//	200  {"received":true,"outcome":"nothing_to_do"}  the object names no subscription, as a one-off invoice
//	200  {"received":true,"outcome":"ignored"}        a type that Bursar has no use for
//	400  {"error":"…"}  signature missing, wrong, too old or from the future; malformed body; impossible id
//	405, 413            another method than POST (Allow says so); a body over 1 MiB
//	503  {"error":"…"}  not taken: Retry-After says when to come again
//
// GET /healthz answers 200 while the process runs; GET /readyz answers 200 while Temporal can be reached and the server
// is not draining, else 503.
package ingress
