package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bursarhq/bursar/internal/lockgraph"
	"github.com/bursarhq/bursar/internal/lockpath"
	"github.com/bursarhq/bursar/lockorder"
)

// inventors are the packages whose tests make up paths of any name. Their edges count in the search for circles.
var inventors = []string{"lockorder", "internal/locktest", "internal/telemetry/lockmetrics"}

// edge is one that was seen, and where.
type edge struct {
	lockgraph.Edge
	pkg string
}

// run is a path that was run, and where.
type ran struct {
	lockgraph.Run
	pkg string
}

// view is what the tests of the module saw.
type view struct {
	edges    []edge
	runs     []ran
	all      []lockgraph.Edge // of all paths, those made up too
	broken   []string
	unknown  []string // paths that are neither in the table nor made up
	packages []string
}

// merge puts together what the processes saw. Transactions that tests make up are in all and broken only.
func merge(files []lockgraph.File, paths []lockpath.Path) view {
	var v view
	unknown := func(path, pkg string) bool {
		switch {
		case lockpath.Invented(path), slices.Contains(inventors, pkg):
			return true
		case slices.ContainsFunc(paths, func(p lockpath.Path) bool { return p.Name == path }):
			return false
		}
		v.unknown = append(v.unknown, fmt.Sprintf("path %s, which the tests of %s ran, is not in the table: add it to internal/lockpath and open the transaction by its Spec; if a test made it up, let its name begin with test-", path, pkg))
		return true
	}
	for _, f := range files {
		v.packages = append(v.packages, f.Package)
		v.all = append(v.all, f.Edges...)
		for _, text := range f.Broken {
			v.broken = append(v.broken, fmt.Sprintf("%s (in the tests of %s)", text, f.Package))
		}
		for _, e := range f.Edges {
			if !unknown(e.Path, f.Package) {
				v.edges = append(v.edges, edge{e, f.Package})
			}
		}
		for _, r := range f.Runs {
			if !unknown(r.Path, f.Package) {
				v.runs = append(v.runs, ran{r, f.Package})
			}
		}
	}
	slices.Sort(v.packages)
	slices.Sort(v.broken)
	slices.Sort(v.unknown)
	v.packages, v.broken, v.unknown = slices.Compact(v.packages), slices.Compact(v.broken), slices.Compact(v.unknown)
	return v
}

// steps are the edges as a record has them.
func (v view) steps() steps {
	var s steps
	for _, e := range v.edges {
		s = append(s, step{e.Path, e.Held, e.Took})
	}
	return s.sorted()
}

// verdict is what is wrong, and what is worth knowing.
type verdict struct {
	wrong, notes []string
	unrecorded   bool
}

func (v verdict) err(dir string) error {
	if len(v.wrong) == 0 {
		return nil
	}
	text := "the locks that the tests saw are not as they should be:\n  " + strings.Join(v.wrong, "\n  ")
	if v.unrecorded {
		text += "\nWhere an edge is as it should be and only not recorded, run: make locks (that is: go run ./internal/lockdoc record " + dir + ")"
	}
	return errors.New(text)
}

// judge holds what was seen against the classes, the table of paths and the record. Where not all tests ran, it says nothing of
// what was not seen.
func judge(seen view, known steps, paths []lockpath.Path, whole bool) (v verdict) {
	v.wrong = append(v.wrong, seen.broken...)
	v.wrong = append(v.wrong, seen.unknown...)
	v.wrong = append(v.wrong, againstRanks(seen.all)...)
	if circle := lockgraph.Circle(seen.all); circle != "" {
		v.wrong = append(v.wrong, "locks are taken in a circle, which can deadlock: "+circle)
	}
	for _, p := range paths {
		v.wrong = append(v.wrong, againstTable(p, seen)...)
	}
	have := seen.steps()
	for _, s := range have.allowed(paths) {
		switch {
		case known.has(s):
		case byChance(paths, s): // which runs see it differs: that must not fail one of them
			v.notes = append(v.notes, fmt.Sprintf("the record has no edge %s yet, which its path allows and not every run sees; make locks records it", s))
		default:
			v.wrong = append(v.wrong, fmt.Sprintf("the record has no edge %s", s))
			v.unrecorded = true
		}
	}
	if !whole {
		return v
	}
	for _, p := range paths {
		v.wrong = append(v.wrong, neverSeen(p, seen)...)
		for _, s := range p.Steps() {
			if s.When != "" && !have.takes(p.Name, s.Class.Name) {
				v.notes = append(v.notes, fmt.Sprintf("no test saw path %s take %s, which it does %s", p.Name, s.Class.Name, s.When))
			}
		}
	}
	for _, s := range known.allowed(paths) {
		if !have.has(s) {
			v.notes = append(v.notes, fmt.Sprintf("the record has %s, which no test saw this time; if it is gone for good: go run ./internal/lockdoc record -anew", s))
		}
	}
	return v
}

// byChance tells of an edge whether it hangs on circumstances: on a step that is not always taken, or on whether there are two of one.
func byChance(paths []lockpath.Path, s step) bool {
	p := paths[slices.IndexFunc(paths, func(p lockpath.Path) bool { return p.Name == s.Path })]
	depends := func(class string) bool {
		at := position(p, class)
		return at >= 0 && p.Steps()[at].When != ""
	}
	return s.Held == s.Took || depends(s.Held) || depends(s.Took)
}

func (s steps) takes(path, class string) bool {
	return slices.ContainsFunc(s, func(one step) bool { return one.Path == path && one.Took == class })
}

// againstRanks judges edges by the ranks of the classes alone, whatever the path.
func againstRanks(edges []lockgraph.Edge) (wrong []string) {
	for _, e := range edges {
		took, err := lockorder.ClassNamed(e.Took)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("path %s took a lock of class %s: %v", e.Path, e.Took, err))
			continue
		}
		if e.Held == "" {
			continue
		}
		held, err := lockorder.ClassNamed(e.Held)
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Sprintf("path %s held a lock of class %s: %v", e.Path, e.Held, err))
		case held.Rank > took.Rank:
			wrong = append(wrong, fmt.Sprintf("path %s held %s (rank %d) and took %s (rank %d): take %s first", e.Path, e.Held, held.Rank, e.Took, took.Rank, e.Took))
		}
	}
	slices.Sort(wrong)
	return slices.Compact(wrong)
}

// againstTable judges what was seen of a path by its entry.
func againstTable(p lockpath.Path, seen view) (wrong []string) {
	for _, r := range seen.runs {
		if r.Path == p.Name && r.Kind != p.Kind.String() {
			wrong = append(wrong, fmt.Sprintf("path %s ran as %s in the tests of %s, and the table says %s: open it by its Spec", p.Name, r.Kind, r.pkg, p.Kind))
		}
	}
	for _, e := range seen.edges {
		if e.Path != p.Name {
			continue
		}
		for _, class := range []string{e.Held, e.Took} {
			if class != "" && position(p, class) < 0 {
				wrong = append(wrong, fmt.Sprintf("path %s %s in the tests of %s, and its entry lists no %s: add the step to it in internal/lockpath, or take the lock out of the path", p.Name, did(e.Edge), e.pkg, class))
			}
		}
		if held, took := position(p, e.Held), position(p, e.Took); held > took && took >= 0 {
			wrong = append(wrong, fmt.Sprintf("path %s %s in the tests of %s, and its entry has them the other way round: take %s first", p.Name, did(e.Edge), e.pkg, e.Took))
		}
		if first := p.Steps(); e.Held == "" && p.Kind != lockorder.Plain && e.Took != first[0].Class.Name {
			wrong = append(wrong, fmt.Sprintf("path %s %s in the tests of %s, and its kind begins with the rendezvous", p.Name, did(e.Edge), e.pkg))
		}
	}
	slices.Sort(wrong)
	return slices.Compact(wrong)
}

func did(e lockgraph.Edge) string {
	if e.Held == "" {
		return fmt.Sprintf("took %s first", e.Took)
	}
	return fmt.Sprintf("held %s and took %s", e.Held, e.Took)
}

// neverSeen says what of a path all tests together did not show.
func neverSeen(p lockpath.Path, seen view) (wrong []string) {
	committed := 0
	for _, r := range seen.runs {
		if r.Path == p.Name {
			committed += r.Committed
		}
	}
	if committed == 0 {
		return []string{fmt.Sprintf("path %s is in the table, and no test commits it: write one that runs it on a database whose locks are watched (locktest.Watch), or take it out of internal/lockpath", p.Name)}
	}
	have := seen.steps()
	for _, s := range p.Steps() {
		if s.When == "" && !have.takes(p.Name, s.Class.Name) {
			wrong = append(wrong, fmt.Sprintf("path %s lists %s, and no test saw it take one: take the step out of its entry, or say in When on what it depends", p.Name, s.Class.Name))
		}
	}
	return wrong
}
