package locktest

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/internal/lockgraph"
	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

var (
	low  = lockorder.PoolRow(uuid.MustParse("11111111-1111-4111-8111-111111111111"))
	high = lockorder.PoolRow(uuid.MustParse("22222222-2222-4222-8222-222222222222"))
	sub  = lockorder.SubscriptionKey("sub_1")
	inv  = lockorder.New(lockorder.Invoice, "in_1")
)

func took(path string, took lockorder.Lock, held ...lockorder.Lock) lockorder.Event {
	return lockorder.Event{Path: path, Kind: lockorder.Plain, Held: held, Took: took}
}

func TestGraphFindsWhatGoesAgainstTheOrder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		events []lockorder.Event
		want   string // empty: nothing is wrong
	}{
		"in order":           {[]lockorder.Event{took("a", sub), took("a", low, sub), took("a", high, sub, low)}, ""},
		"against the ranks":  {[]lockorder.Event{took("a", sub, low)}, "path a held pool 11111111-1111-4111-8111-111111111111 and took subscription sub_1"},
		"rows descending":    {[]lockorder.Event{took("a", low, high)}, "path a held pool 22222222-2222-4222-8222-222222222222 and took pool 1"},
		"a row twice":        {[]lockorder.Event{took("a", low, low)}, "path a held"},
		"a circle of two":    {[]lockorder.Event{took("a", inv, sub), took("b", sub, inv)}, "in a circle: invoice → subscription (path b) → invoice (path a)"},
		"a path without end": {[]lockorder.Event{took("a", low, sub), took("b", low, inv), took("c", inv, sub)}, ""},
	} {
		g := newGraph()
		g.dir = func() string { return "" } // these are no transactions
		for _, e := range c.events {
			g.took(e)
		}
		err := g.end()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// The events of real transactions become edges and runs with path, kind and count, and a file.
func TestGraphIsRecordedAndWritten(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	g, dir := newGraph(), filepath.Join(t.TempDir(), "edges")
	g.dir = func() string { return dir }
	heard := 0
	options := lockorder.Options{Observe: func(lockorder.Event) { heard++ }}
	g.watch(&options)
	db, err := lockorder.Open(t.Context(), database.URL(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	spec := lockorder.Spec{Path: "test-graph", Kind: lockorder.Materializing, Keys: []lockorder.Lock{inv, sub}}
	failure := errors.New("as the test has it")
	for _, want := range []error{nil, nil, failure} {
		if err := db.Run(t.Context(), spec, func(context.Context, *lockorder.Tx) error { return want }); !errors.Is(err, want) {
			t.Fatal(err)
		}
	}
	free := lockorder.Spec{Path: "test-free", Kind: lockorder.Plain}
	if err := db.Run(t.Context(), free, func(context.Context, *lockorder.Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := g.end(); err != nil {
		t.Fatal(err)
	}
	files, err := lockgraph.Read(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("%v: %+v", err, files)
	}
	f := files[0]
	edges := []lockgraph.Edge{
		{Path: "test-graph", Kind: "materializing", Held: "", Took: "materialization", Count: 3},
		{Path: "test-graph", Kind: "materializing", Held: "materialization", Took: "invoice", Count: 3},
		{Path: "test-graph", Kind: "materializing", Held: "materialization", Took: "subscription", Count: 3},
		{Path: "test-graph", Kind: "materializing", Held: "subscription", Took: "invoice", Count: 3},
	}
	runs := []lockgraph.Run{
		{Path: "test-free", Kind: "plain", Committed: 1},
		{Path: "test-graph", Kind: "materializing", Committed: 2, Failed: 1},
	}
	if f.Package != "internal/locktest" || !slices.Equal(f.Edges, edges) || !slices.Equal(f.Runs, runs) {
		t.Errorf("written: %+v", f)
	}
	if heard != 9 {
		t.Errorf("who listened before heard of %d locks, want 9", heard)
	}
}
