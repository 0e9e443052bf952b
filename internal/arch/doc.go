// Package arch holds no code: its tests are the rules of how the packages may depend on each other, and what every
// package and file must have.
package arch
