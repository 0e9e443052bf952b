// Package entitlements decides what an organisation may use: it turns the products that a pool holds into
// entitlements, and keeps the reason for each.
//
// # State and authority
//
// The schema core is this package's own: organisations and their types, pools, the catalogue (resource keys, sets,
// products, ladders), positions, pool_entitlements and the ledger. Nothing else writes it. README.md gives the
// meaning of the words.
//
// # Transactions
//
// Only [Spend], [Release], [RaiseTo] and [Bound] open a transaction; each has a form that takes the caller's. A function
// that writes takes a [lockorder.Tx] and begins by requiring what it relies
// on: the kind that brings the rendezvous, the subscription's key, the rows of the pools. One that only reads takes a
// [lockorder.Querier]. Times come from Tx.Now, so a function that writes positions must be called when every lock of
// the transaction is held. A spend is of the moment at which its counter is locked: it reads the clock in a statement after that.
//
// # Invariants
//
// After every function that changes positions, the pools it touched are settled: the floor stands exactly where its
// ladder is vacant, pool_entitlements is what the conferring positions add up to, and each difference has a line in the
// ledger. Running a function twice changes nothing the second time.
package entitlements
