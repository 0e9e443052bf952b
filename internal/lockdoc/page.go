package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"github.com/bursarhq/bursar/internal/lockpath"
	"github.com/bursarhq/bursar/lockorder"
)

//go:embed page.md.tmpl
var pageText string

// makePage writes LOCKS.md from the classes, the paths and the record.
func makePage(paths []lockpath.Path, known steps) ([]byte, error) {
	page, err := template.New("page").Parse(pageText)
	if err != nil {
		return nil, fmt.Errorf("the page's template: %w", err)
	}
	var out bytes.Buffer
	data := struct {
		Picture        string
		Advisory, Rows []classEntry
		Session        []classEntry
		Untaken        string
		Answers        []answer
		Areas          []area
		Derivation     string
		MaxKeys        int
	}{
		Picture: picture(paths, known), Answers: answers(), Areas: areas(paths, known), Derivation: lockorder.Derivation, MaxKeys: lockorder.MaxKeys,
	}
	var untaken []string
	for _, c := range lockorder.Classes() {
		entry := entryOf(c, paths)
		switch c.Kind {
		case lockorder.Advisory:
			data.Advisory = append(data.Advisory, entry)
		case lockorder.Row:
			data.Rows = append(data.Rows, entry)
		default:
			data.Session = append(data.Session, entry)
		}
		if c.Kind != lockorder.Session && entry.Takers == "" {
			untaken = append(untaken, code(c.Name))
		}
	}
	data.Untaken = list(untaken, "and")
	if err := page.Execute(&out, data); err != nil {
		return nil, fmt.Errorf("the page's template: %w", err)
	}
	return out.Bytes(), nil
}

// classEntry is a class as the page shows it.
type classEntry struct {
	*lockorder.Class
	// Identified says what tells one lock of the class from another.
	Identified string
	// Takers are the paths that take it, empty where none does.
	Takers string
}

func entryOf(c *lockorder.Class, paths []lockpath.Path) classEntry {
	parts := make([]string, len(c.Identity))
	for i, p := range c.Identity {
		parts[i] = p.Name
		if c.Kind == lockorder.Row {
			parts[i] = code(p.Name)
		}
	}
	e := classEntry{Class: c, Identified: list(parts, "and")}
	var takers []string
	for _, p := range paths {
		if slices.ContainsFunc(p.Steps(), func(s lockpath.Step) bool { return s.Class == c }) {
			takers = append(takers, link(p.Name))
		}
	}
	e.Takers = list(takers, "and")
	return e
}

// area is a heading with its paths.
type area struct {
	Name  lockpath.Area
	Paths []pathEntry
}

// pathEntry is a path as the page shows it.
type pathEntry struct {
	lockpath.Path
	RunBy string
	// Takes are its steps, one a line.
	Takes []string
}

func areas(paths []lockpath.Path, known steps) []area {
	var out []area
	for _, name := range lockpath.Areas() {
		a := area{Name: name}
		for _, p := range paths {
			if p.Area == name {
				a.Paths = append(a.Paths, entryOfPath(p, known))
			}
		}
		if a.Paths != nil {
			out = append(out, a)
		}
	}
	return out
}

func entryOfPath(p lockpath.Path, known steps) pathEntry {
	by := make([]string, len(p.By))
	for i, who := range p.By {
		by[i] = code(who)
		if name, is := strings.CutPrefix(who, "activity "); is {
			by[i] = "the activity " + code(name)
		}
	}
	e := pathEntry{Path: p, RunBy: list(by, "and")}
	for _, s := range p.Steps() {
		text := code(s.Class.Name)
		switch {
		case s.Class == lockorder.Materialization && p.Kind == lockorder.RuleChange:
			text += ", exclusive"
		case s.Class == lockorder.Materialization:
			text += ", shared"
		}
		if s.Of != "" {
			text += ": " + s.Of
		}
		if s.When != "" {
			text += "; only " + s.When
		}
		if known.has(step{p.Name, s.Class.Name, s.Class.Name}) {
			by := "by identity, byte by byte"
			if s.Class.Kind == lockorder.Advisory {
				by = "by key"
			}
			text += "; several in one transaction, ascending " + by
		}
		e.Takes = append(e.Takes, text+".")
	}
	return e
}

func code(s string) string { return "`" + s + "`" }

// link leads to a path's heading on the page.
func link(path string) string { return fmt.Sprintf("[`%s`](#%s)", path, path) }

// list writes "a, b and c".
func list(items []string, and string) string {
	if n := len(items); n > 1 {
		return strings.Join(items[:n-1], ", ") + " " + and + " " + items[n-1]
	}
	return strings.Join(items, "")
}
