// Package desiredstate is where what outside systems should hold is kept and pushed to them: connections,
// addresses, records with generations, and the notices that say which record may have changed.
//
// Nothing of it exists yet. When it does, it will be level-triggered (a notice names a recipient, never content), it will count a
// record as in sync only when the generation and hash read back equal its own, and it will never import
// another domain package: an activity composes two of them in one transaction.
package desiredstate
