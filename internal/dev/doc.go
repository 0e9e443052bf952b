// Package dev is `bursar dev`: the whole of Bursar on one machine with nothing to configure.
//
// Run starts a private PostgreSQL, a Temporal development server with its UI, and, unless a Stripe key is given, a stateful
// stand-in for Stripe; it migrates, applies a demonstration catalogue, runs the worker and the ingress in this process, and
// plays a story: a member's way from the checkout to the cancellation. With a Stripe key it plays nothing, since it would have to buy things
// in a real account: it polls the account's events, which Stripe cannot send to a laptop, and feeds them to the
// same workflows. Everything that Run started is ended, and every file removed, when it returns.
package dev
