// Package billing is the mirror of what Stripe showed, and how that maps to what is held here: customers to
// organisations, prices to products.
//
// # State
//
// Schema stripe: the last read of each subscription with its items and periods, the events that led to reads, links of
// customers, mappings of prices and products, and parked work. README.md tells what each means.
//
// # Authority
//
// Stripe is right, and only an object retrieved by its id counts. This package never calls Stripe and never opens a
// transaction: it writes into the one it is given, and begins by requiring the locks that cover the write.
//
// # Invariants
//
//   - A subscription's version rises in every transaction that recorded or parked it under its key, also when nothing
//     else changed. Whoever noted a version before reading Stripe can tell under the key whether the read is still the
//     newest.
//   - A known value is never overwritten by a missing one. A 404, or an object of the other mode, changes no mirrored value.
//   - The standing periods of an item never overlap, and the one recorded last stands.
//   - A customer's link never moves.
//   - Whether parked work is due is told from the tables as they are. Neither a link nor a mapping has to announce itself.
//
// # Failure
//
// Errors come back with what was being done. Those that a caller can act on are ErrInvalid, *ErrLinkedElsewhere and
// *Unreadable; the rest are the database's, and lockorder.VerdictOf judges them.
package billing
