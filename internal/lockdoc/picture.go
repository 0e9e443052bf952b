package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bursarhq/bursar/internal/lockpath"
	"github.com/bursarhq/bursar/lockorder"
)

// picture draws the classes that paths take and which is taken after which: what the tests saw, and what the table says of a path
// between the steps that each run takes. An arrow that follows from two others is left out.
func picture(paths []lockpath.Path, known steps) string {
	next := map[string]map[string]bool{}
	arrow := func(from, to string) {
		if next[from] == nil {
			next[from] = map[string]bool{}
		}
		next[from][to] = true
	}
	taken := map[string]bool{}
	for _, p := range paths {
		var always string
		for _, s := range p.Steps() {
			taken[s.Class.Name] = true
			if s.When != "" {
				continue
			}
			if always != "" {
				arrow(always, s.Class.Name)
			}
			always = s.Class.Name
		}
	}
	for _, s := range known.allowed(paths) {
		if s.Held != "" && s.Held != s.Took {
			arrow(s.Held, s.Took)
		}
	}

	var text strings.Builder
	text.WriteString("flowchart TD\n")
	for _, group := range []struct {
		title string
		has   func(*lockorder.Class) bool
	}{
		{"the rendezvous", func(c *lockorder.Class) bool { return c == lockorder.Materialization }},
		{"advisory keys", func(c *lockorder.Class) bool { return c.Kind == lockorder.Advisory && c != lockorder.Materialization }},
		{"rows", func(c *lockorder.Class) bool { return c.Kind == lockorder.Row }},
	} {
		fmt.Fprintf(&text, "  subgraph %s[\"%s\"]\n", strings.ReplaceAll(group.title, " ", "_"), group.title)
		for _, c := range lockorder.Classes() {
			if group.has(c) && taken[c.Name] {
				fmt.Fprintf(&text, "    %s[\"%d · %s\"]\n", node(c.Name), c.Rank, c.Name)
			}
		}
		text.WriteString("  end\n")
	}
	for _, from := range lockorder.Classes() {
		for _, to := range lockorder.Classes() {
			if next[from.Name][to.Name] && !roundabout(next, from.Name, to.Name) {
				fmt.Fprintf(&text, "  %s --> %s\n", node(from.Name), node(to.Name))
			}
		}
	}
	return text.String()
}

// roundabout tells whether to is reached from from by way of another class.
func roundabout(next map[string]map[string]bool, from, to string) bool {
	seen := []string{from}
	var reaches func(at string) bool
	reaches = func(at string) bool {
		for n := range next[at] {
			if n == to && at != from {
				return true
			}
			if n != to && !slices.Contains(seen, n) {
				seen = append(seen, n)
				if reaches(n) {
					return true
				}
			}
		}
		return false
	}
	return reaches(from)
}

// node is a class's name as a node of the picture may be called.
func node(class string) string { return strings.ReplaceAll(class, "-", "_") }
