package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/bursarhq/bursar/internal/lockpath"
)

// coverage is a table of what the tests ran of each path.
func coverage(seen view, paths []lockpath.Path) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PATH\tKIND\tCOMMITTED\tFAILED\tSTEPS SEEN\tIN THE TESTS OF")
	have, ranPaths := seen.steps(), 0
	for _, p := range paths {
		committed, failed := 0, 0
		var in []string
		for _, r := range seen.runs {
			if r.Path == p.Name {
				committed, failed = committed+r.Committed, failed+r.Failed
				in = append(in, r.pkg)
			}
		}
		slices.Sort(in)
		taken := 0
		for _, s := range p.Steps() {
			if have.takes(p.Name, s.Class.Name) {
				taken++
			}
		}
		if committed > 0 {
			ranPaths++
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d of %d\t%s\n", p.Name, p.Kind, committed, failed, taken, len(p.Steps()), strings.Join(slices.Compact(in), ", "))
	}
	w.Flush()
	fmt.Fprintf(&text, "%d of %d paths ran; %d packages left edges: %s\n", ranPaths, len(paths), len(seen.packages), strings.Join(seen.packages, ", "))
	return text.String()
}
