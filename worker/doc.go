// Package worker runs the Temporal workers of Bursar: the process behind `bursar worker`, and a part of `bursar dev`.
//
// Run opens the database and the Temporal client, checks that both fit this program (schema, derivation of lock keys,
// search attributes), ensures the schedules, and serves two task queues:
//
//   - contract.QueueDB: every workflow, and the activities that only use the database. It runs as many of those at once as
//     the pool has connections beyond the reserve.
//   - contract.QueueIO: the activities that call other services, many at once. Their transactions share the reserve: one more
//     answers busy at once, and Temporal's retry waits for free.
//
// So a hung Stripe fills the slots of one queue and the connections of none, and what needs the database alone goes on.
//
// register.go is the one list of what is served, schedule.go that of what runs by itself.
//
// # Failure
//
// A configuration that is wrong is refused as a whole, every problem named, before anything starts. What the database or
// Temporal lacks is said with the command that mends it. When ctx ends, no new task is taken, activities that run
// get Config.ShutdownTimeout to finish, then their contexts end; Temporal gives what was cut off to another worker.
package worker
