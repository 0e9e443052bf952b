package locktest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/bursarhq/bursar/lockorder"
)

// envGraphDir names the folder that the edges are written to.
const envGraphDir = "BURSAR_ORDER_GRAPH_DIR"

// Edge says that a path took a lock of one class while it held one of another.
type Edge struct {
	Path string `json:"path"`
	Kind string `json:"kind"`
	// Held is a class of which a lock was held, empty when none was: then Took is the transaction's first.
	Held string `json:"held"`
	Took string `json:"took"`
	// Count is how often it was seen; several locks of the held class count once each.
	Count int `json:"count"`
}

// graph collects edges. Several transactions may report at once.
type graph struct {
	mu     sync.Mutex
	edges  map[Edge]int // by the edge without its count
	broken map[string]bool
}

func newGraph() *graph { return &graph{edges: map[Edge]int{}, broken: map[string]bool{}} }

// theGraph is the one of this process.
var theGraph = newGraph()

// Observe records an event of a transaction. It is made for lockorder.Options.Observe.
func Observe(e lockorder.Event) { theGraph.add(e) }

func (g *graph) add(e lockorder.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	edge := Edge{Path: e.Path, Kind: e.Kind.String(), Took: e.Took.Class().Name}
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

// Edges returns what has been recorded in this process, by path and class.
func Edges() []Edge { return theGraph.list() }

func (g *graph) list() []Edge {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]Edge, 0, len(g.edges))
	for edge, count := range g.edges {
		edge.Count = count
		out = append(out, edge)
	}
	slices.SortFunc(out, func(a, b Edge) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Held, b.Held), cmp.Compare(a.Took, b.Took))
	})
	return out
}

// check says what is wrong with the graph.
func (g *graph) check() error {
	edges := g.list()
	var wrong []error
	g.mu.Lock()
	for _, text := range slices.Sorted(maps.Keys(g.broken)) {
		wrong = append(wrong, errors.New(text))
	}
	g.mu.Unlock()
	if circle := circleOf(edges); circle != nil {
		wrong = append(wrong, fmt.Errorf("locks are taken in a circle: %s", strings.Join(circle, " → ")))
	}
	return errors.Join(wrong...)
}

// circleOf returns the classes of a circle, the first again at the end, or nil. It knows nothing of ranks.
func circleOf(edges []Edge) []string {
	next := map[string][]string{}
	for _, e := range edges {
		if e.Held != "" && e.Held != e.Took && !slices.Contains(next[e.Held], e.Took) {
			next[e.Held] = append(next[e.Held], e.Took)
		}
	}
	done := map[string]bool{}
	var walk func(trail []string, at string) []string
	walk = func(trail []string, at string) []string {
		if i := slices.Index(trail, at); i >= 0 {
			return append(slices.Clone(trail[i:]), at)
		}
		if done[at] {
			return nil
		}
		for _, to := range next[at] {
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

// endGraph checks the graph and writes it where the environment says.
func endGraph(g *graph) error {
	err := g.check()
	if err != nil {
		err = fmt.Errorf("the order of locks: %w", err)
	}
	dir := os.Getenv(envGraphDir)
	if edges := g.list(); dir != "" && len(edges) > 0 {
		err = errors.Join(err, writeGraph(dir, edges))
	}
	return err
}

// writeGraph writes the edges to a file that is named after the package's folder.
func writeGraph(dir string, edges []Edge) error {
	name, err := packageName()
	if err != nil {
		return fmt.Errorf("write the order graph: %w", err)
	}
	text, err := json.MarshalIndent(struct {
		Package string `json:"package"`
		Edges   []Edge `json:"edges"`
	}{name, edges}, "", "  ")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, strings.ReplaceAll(name, "/", "-")+".json"), append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the order graph: %w", err)
	}
	return nil
}

// packageName is the folder of the tested package, from the module's root. Tests run in their package's folder.
func packageName() (string, error) {
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for root := here; ; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			name, err := filepath.Rel(root, here)
			return filepath.ToSlash(name), err
		}
		if root == filepath.Dir(root) {
			return "", fmt.Errorf("no go.mod above %s", here)
		}
	}
}
