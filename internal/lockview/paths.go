package lockview

import (
	"sync"

	"github.com/bursarhq/bursar/internal/lockpath"
)

// pathNames are the names of all paths.
var pathNames = sync.OnceValue(func() []string {
	var names []string
	for _, p := range lockpath.All() {
		names = append(names, p.Name)
	}
	return names
})

// runBy returns who runs a path; nil where it is not known here.
func runBy(path string) []string {
	p, _ := lockpath.Named(path)
	return p.By
}
