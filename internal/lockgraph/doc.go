// Package lockgraph is the form in which test processes leave the locks that they saw taken, and the search for circles
// in them. Package locktest writes it, package lockdoc reads all of it over the module.
package lockgraph
