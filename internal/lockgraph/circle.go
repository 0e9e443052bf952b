package lockgraph

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Circle describes a circle of classes with the paths that close it, or returns "". It knows nothing of ranks, so that it finds
// also what a wrong table allows.
func Circle(edges []Edge) string {
	next := map[string][]string{}
	by := map[[2]string][]string{}
	for _, e := range edges {
		if e.Held == "" || e.Held == e.Took {
			continue
		}
		pair := [2]string{e.Held, e.Took}
		if by[pair] == nil {
			next[e.Held] = append(next[e.Held], e.Took)
		}
		if !slices.Contains(by[pair], e.Path) {
			by[pair] = append(by[pair], e.Path)
		}
	}
	circle := circleOf(next)
	if circle == nil {
		return ""
	}
	text := []string{circle[0]}
	for i := 1; i < len(circle); i++ {
		paths := by[[2]string{circle[i-1], circle[i]}]
		slices.Sort(paths)
		text = append(text, fmt.Sprintf("%s (path %s)", circle[i], strings.Join(paths, ", ")))
	}
	return strings.Join(text, " → ")
}

// circleOf returns the classes of a circle, the first again at the end, or nil.
func circleOf(next map[string][]string) []string {
	done := map[string]bool{}
	var walk func(trail []string, at string) []string
	walk = func(trail []string, at string) []string {
		if i := slices.Index(trail, at); i >= 0 {
			return append(slices.Clone(trail[i:]), at)
		}
		if done[at] {
			return nil
		}
		for _, to := range slices.Sorted(slices.Values(next[at])) {
			if circle := walk(append(trail, at), to); circle != nil {
				return circle
			}
		}
		done[at] = true
		return nil
	}
	for _, from := range slices.Sorted(maps.Keys(next)) {
		if circle := walk(nil, from); circle != nil {
			return circle
		}
	}
	return nil
}
