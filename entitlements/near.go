package entitlements

import (
	"cmp"
	"slices"
	"strings"
)

// Near returns up to three of the names that are like what was asked for, the most alike first.
func Near(asked string, names []string) []string {
	candidates := make([]candidate, len(names))
	for i, n := range names {
		candidates[i] = candidate{slug: n, name: n}
	}
	return near(asked, candidates)
}

type candidate struct{ slug, name string }

// near returns up to three slugs that are like what was asked for, the most alike first: contained in one another, or a
// few letters apart.
func near(asked string, candidates []candidate) []string {
	type scored struct {
		slug  string
		score int
	}
	asked = strings.ToLower(strings.TrimSpace(asked))
	var hits []scored
	for _, c := range candidates {
		if c.slug == "" {
			continue
		}
		best := min(distance(asked, c.slug), distance(asked, strings.ToLower(c.name)))
		if asked != "" && (strings.Contains(c.slug, asked) || strings.Contains(strings.ToLower(c.name), asked) || strings.Contains(asked, c.slug)) {
			best = min(best, 1)
		}
		if best <= max(2, len(asked)/3) {
			hits = append(hits, scored{c.slug, best})
		}
	}
	slices.SortStableFunc(hits, func(a, b scored) int { return cmp.Compare(a.score, b.score) })
	slugs := make([]string, 0, 3)
	for _, h := range hits[:min(3, len(hits))] {
		slugs = append(slugs, h.slug)
	}
	return slugs
}

// distance is the number of letters to change, add or leave out to make b of a.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(x); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(y); j++ {
			above := row[j]
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(above+1, row[j-1]+1, diagonal+cost)
			diagonal = above
		}
	}
	return row[len(y)]
}
