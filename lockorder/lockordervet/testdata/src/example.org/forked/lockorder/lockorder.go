// Package lockorder is one that a flag names.
package lockorder

type Tx struct{}

// Text is one that only lockorder may have.
const Text = "FOR UPDATE"
