// Package sqltext finds, in the text of SQL, what locks and what controls a transaction.
//
// Package lockordervet asks it about the texts in Go code. Check and Files read query files and migrations, which are no Go: there
// a statement may lock only below a comment that says why, on the line of the lock or the one above:
//
//	-- lockordervet:allow lock-text the claim waits for nobody: SKIP LOCKED
//
// What is found in the body of a function counts, and so does a string in it, which it may run; comments and other strings do
// not.
package sqltext
