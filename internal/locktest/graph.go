package locktest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/bursarhq/bursar/internal/lockgraph"
	"github.com/bursarhq/bursar/lockorder"
)

// graph collects edges and runs. Several transactions may report at once.
type graph struct {
	mu     sync.Mutex
	edges  map[lockgraph.Edge]int // by the edge without its count
	runs   map[lockgraph.Run]*lockgraph.Run
	broken map[string]bool
	// dir is where the graph goes; empty where nobody asked for it. It is read while tests run: go test then knows that a
	// run with another folder is another run, and does not take it from its cache.
	dir func() string
}

func newGraph() *graph {
	return &graph{
		edges: map[lockgraph.Edge]int{}, runs: map[lockgraph.Run]*lockgraph.Run{}, broken: map[string]bool{},
		dir: sync.OnceValue(func() string { return os.Getenv(lockgraph.EnvDir) }),
	}
}

// theGraph is the one of this process.
var theGraph = newGraph()

// Watch lets the order graph see the transactions of a database that is opened with these options, beside whoever sees
// them already.
func Watch(o *lockorder.Options) { theGraph.watch(o) }

func (g *graph) watch(o *lockorder.Options) {
	o.Observe, o.Ended = both(g.took, o.Observe), both(g.ended, o.Ended)
}

func both[E any](first, second func(E)) func(E) {
	if second == nil {
		return first
	}
	return func(e E) { first(e); second(e) }
}

// Watched is Watch for options that are written where they are used.
func Watched(o lockorder.Options) lockorder.Options {
	Watch(&o)
	return o
}

func (g *graph) took(e lockorder.Event) {
	g.dir()
	g.mu.Lock()
	defer g.mu.Unlock()
	edge := lockgraph.Edge{Path: e.Path, Kind: e.Kind.String(), Took: e.Took.Class().Name}
	if len(e.Held) == 0 {
		g.edges[edge]++
	}
	for _, held := range e.Held {
		edge.Held = held.Class().Name
		g.edges[edge]++
		if !ascending(held, e.Took) {
			g.broken[fmt.Sprintf("path %s held %s and took %s, which ranks below it", e.Path, held, e.Took)] = true
		}
	}
}

func (g *graph) ended(e lockorder.TxEvent) {
	g.dir()
	g.mu.Lock()
	defer g.mu.Unlock()
	key := lockgraph.Run{Path: e.Path, Kind: e.Kind.String()}
	run := g.runs[key]
	if run == nil {
		run = &lockgraph.Run{Path: key.Path, Kind: key.Kind}
		g.runs[key] = run
	}
	if e.Err == nil {
		run.Committed++
	} else {
		run.Failed++
	}
}

// ascending tells whether the order lets b be taken while a is held.
func ascending(a, b lockorder.Lock) bool {
	switch {
	case a.Class() != b.Class():
		return a.Class().Rank < b.Class().Rank
	case a.Class().Kind == lockorder.Row:
		return slices.Compare(a.Identity(), b.Identity()) < 0
	}
	return a.Key() < b.Key()
}

// file is what the graph has seen until now.
func (g *graph) file() lockgraph.File {
	g.mu.Lock()
	defer g.mu.Unlock()
	var f lockgraph.File
	for edge, count := range g.edges {
		edge.Count = count
		f.Edges = append(f.Edges, edge)
	}
	lockgraph.Sort(f.Edges)
	for _, key := range slices.SortedFunc(maps.Keys(g.runs), compareRuns) {
		f.Runs = append(f.Runs, *g.runs[key])
	}
	f.Broken = slices.Sorted(maps.Keys(g.broken))
	return f
}

// end checks the graph and writes it where the environment says.
func (g *graph) end() error {
	f := g.file()
	var wrong []error
	for _, text := range f.Broken {
		wrong = append(wrong, fmt.Errorf("the order of locks: %s", text))
	}
	if circle := lockgraph.Circle(f.Edges); circle != "" {
		wrong = append(wrong, fmt.Errorf("the order of locks: they are taken in a circle: %s", circle))
	}
	if dir := g.dir(); dir != "" && len(f.Edges)+len(f.Runs) > 0 {
		var err error
		if f.Package, err = lockgraph.Package(); err == nil {
			err = f.Write(dir)
		}
		wrong = append(wrong, err)
	}
	return errors.Join(wrong...)
}

// EndProcess checks the order graph of this process and leaves it where the environment says. Main does it for a test binary; a
// process that a test starts and that does not go through Main calls it at its end. One that is killed leaves none: let the
// test's own process run the same path.
func EndProcess() error { return theGraph.end() }

func compareRuns(a, b lockgraph.Run) int {
	return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Kind, b.Kind))
}
