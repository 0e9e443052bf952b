// Package arch holds no code: its tests are the rules of what the packages may import, of what every package and file must
// have, and of what the module may depend on. A rule that fails says why it is there.
package arch
