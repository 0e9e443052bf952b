// Package domains is where names are allocated: an exact name or a subtree, owned by a workspace. Allocations are
// disjoint, under one lock, since no constraint can compare a name with a subtree.
//
// Nothing of it exists yet. When it does, creating, releasing and reconciling a name will run in the transaction
// they are given.
package domains
