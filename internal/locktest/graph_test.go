package locktest

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

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
		"a circle of two":    {[]lockorder.Event{took("a", inv, sub), took("b", sub, inv)}, "in a circle: invoice → subscription → invoice"},
		"a circle of three":  {[]lockorder.Event{took("a", inv, sub), took("b", low, inv), took("c", sub, low)}, "in a circle: invoice → pool → subscription → invoice"},
		"a path without end": {[]lockorder.Event{took("a", low, sub), took("b", low, inv), took("c", inv, sub)}, ""},
	} {
		g := newGraph()
		for _, e := range c.events {
			g.add(e)
		}
		err := endGraph(g)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// The events of real transactions become edges with path, kind and count, and a file.
func TestGraphIsRecordedAndWritten(t *testing.T) {
	database := pgtest.New(t)
	g := newGraph()
	db, err := lockorder.Open(t.Context(), database.URL(), lockorder.Options{Observe: g.add})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	for range 2 {
		spec := lockorder.Spec{Path: "test-graph", Kind: lockorder.Materializing, Keys: []lockorder.Lock{inv, sub}}
		if err := db.Run(t.Context(), spec, func(context.Context, *lockorder.Tx) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "edges")
	t.Setenv(envGraphDir, dir)
	if err := endGraph(g); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "internal-locktest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var written struct {
		Package string
		Edges   []Edge
	}
	if err := json.Unmarshal(text, &written); err != nil {
		t.Fatal(err)
	}
	want := []Edge{
		{"test-graph", "materializing", "", "materialization", 2},
		{"test-graph", "materializing", "materialization", "invoice", 2},
		{"test-graph", "materializing", "materialization", "subscription", 2},
		{"test-graph", "materializing", "subscription", "invoice", 2},
	}
	if written.Package != "internal/locktest" || len(written.Edges) != len(want) {
		t.Fatalf("written: %s", text)
	}
	for i := range want {
		if written.Edges[i] != want[i] {
			t.Errorf("edge %d: %+v, want %+v", i, written.Edges[i], want[i])
		}
	}
}
