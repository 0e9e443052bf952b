// Package lockordervet finds, before anything runs, code that goes round package lockorder or against its order.
//
// It is an analyzer of golang.org/x/tools/go/analysis with five rules; each finding names its rule and what mends it:
//
//   - transaction: a transaction that is opened outside lockorder, by a call of pgx or database/sql or by a text that begins one.
//   - lock-text: SQL that locks (pg_advisory…, FOR UPDATE and its kin, LOCK TABLE) in Go code. In files that sqlc has generated
//     the query file is what counts, which package sqltext reads.
//   - network: a call inside a transaction function that can reach the network, or start a program.
//   - nested: a call inside a transaction function that can open a second transaction or use a second connection.
//   - order: a lock that is asked for after one that ranks above it, or after the transaction's time was read, along any path
//     through one function. A helper that is handed the transaction counts by what it takes.
//
// A transaction function is one with a parameter of type *lockorder.Tx or *lockorder.Handed, and every function literal in it.
// What it calls is followed through functions, methods, method values, function-typed fields and variables, and through
// interfaces of the same module to the types that are known to implement them; across packages by facts.
//
// # Allowances
//
// One finding is allowed by a comment at the end of its line, or on the line above:
//
//	//lockordervet:allow network the stand-in answers in this process
//
// The rule and a reason are needed. An allowance without them, and one that allows nothing, are findings of the rule
// allowance. Where a helper outside any transaction function is allowed to make a call, nobody who calls the helper is
// told of that call.
//
// # What it cannot see
//
// An interface of another module, unless Flags names it; a type that implements an interface in a package which the caller
// does not import; a function that travels in a map or a channel; a lock whose class is known at run time only; what a helper
// asks for of a class that may be held already. lockorder refuses the second opening and the wrong order when they happen.
package lockordervet
