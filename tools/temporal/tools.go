// Package temporal pins the Temporal CLI, whose development server the tests and `bursar dev` run.
//
// It is a module of its own because the CLI brings a whole Temporal server with it: none of that belongs in
// the dependency list of Bursar.
package temporal
