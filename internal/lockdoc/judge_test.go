package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/bursarhq/bursar/internal/lockgraph"
	"github.com/bursarhq/bursar/internal/lockpath"
	"github.com/bursarhq/bursar/lockorder"
)

// pay and settle are a table of two paths.
var (
	pay = lockpath.Path{
		Name: "pay", Area: lockpath.Subscriptions, Kind: lockorder.Materializing, Does: "Pays.", By: []string{"activity Pay"},
		Keys: []lockpath.Step{{Class: lockorder.Subscription}},
		Rows: []lockpath.Step{{Class: lockorder.Pool, Of: "of all"}, {Class: lockorder.ParkedWork, When: "where it is parked"}},
	}
	settle = lockpath.Path{Name: "settle", Area: lockpath.Rules, Kind: lockorder.Plain, Does: "Settles.", By: []string{"bursar settle"},
		Rows: []lockpath.Step{{Class: lockorder.Customer}, {Class: lockorder.Pool, When: "where there is one"}}}
	two = []lockpath.Path{pay, settle}
)

func saw(path, kind, held, took string) lockgraph.Edge {
	return lockgraph.Edge{Path: path, Kind: kind, Held: held, Took: took, Count: 1}
}

// seenWell is what the tests of two packages leave when all is well.
func seenWell() []lockgraph.File {
	m := "materializing"
	return []lockgraph.File{
		{Package: "activities", Runs: []lockgraph.Run{{Path: "pay", Kind: m, Committed: 3}}, Edges: []lockgraph.Edge{
			saw("pay", m, "", "materialization"), saw("pay", m, "materialization", "subscription"), saw("pay", m, "materialization", "pool"),
			saw("pay", m, "subscription", "pool"), saw("pay", m, "pool", "pool"), saw("pay", m, "pool", "parked-work"),
		}},
		{Package: "billing", Runs: []lockgraph.Run{{Path: "settle", Kind: "plain", Committed: 1, Failed: 2}, {Path: "test", Kind: "plain", Committed: 1}}, Edges: []lockgraph.Edge{
			saw("settle", "plain", "", "customer"), saw("settle", "plain", "customer", "pool"), saw("test", "plain", "", "invoice"),
		}},
		{Package: "lockorder", Runs: []lockgraph.Run{{Path: "anything", Kind: "plain", Committed: 1}}, Edges: []lockgraph.Edge{saw("anything", "plain", "subscription", "invoice")}},
	}
}

func judgeFiles(files []lockgraph.File, known steps, paths []lockpath.Path, whole bool) verdict {
	return judge(merge(files, paths), known, paths, whole)
}

func TestWhatIsAsItShouldBe(t *testing.T) {
	t.Parallel()
	known := merge(seenWell(), two).steps()
	if v := judgeFiles(seenWell(), known, two, true); v.err("dir") != nil || len(v.notes) > 0 {
		t.Fatalf("%v, notes %q", v.err("dir"), v.notes)
	}
	for _, s := range known {
		if s.Path != "pay" && s.Path != "settle" {
			t.Errorf("a path that tests made up is recorded: %s", s)
		}
	}
}

// TestWhatIsWrongNamesThePath spoils what was seen, or the table, in one way each.
func TestWhatIsWrongNamesThePath(t *testing.T) {
	t.Parallel()
	known := merge(seenWell(), two).steps()
	add := func(pkg int, e lockgraph.Edge) func([]lockgraph.File) {
		return func(f []lockgraph.File) { f[pkg].Edges = append(f[pkg].Edges, e) }
	}
	for name, c := range map[string]struct {
		spoil func([]lockgraph.File)
		want  []string
	}{
		"the other way round": {add(0, saw("pay", "materializing", "pool", "subscription")), []string{
			"path pay held pool (rank 110) and took subscription (rank 20): take subscription first",
			"in a circle", "path pay held pool and took subscription in the tests of activities, and its entry has them the other way round"}},
		"a path made up goes the other way round": {add(2, saw("anything", "plain", "invoice", "subscription")), []string{"path anything held invoice (rank 30)", "in a circle"}},
		"a class that the entry does not list":    {add(1, saw("settle", "plain", "customer", "parked-work")), []string{"path settle held customer and took parked-work in the tests of billing, and its entry lists no parked-work: add the step"}},
		"a first lock that is not the rendezvous": {add(0, saw("pay", "materializing", "", "subscription")), []string{"path pay took subscription first", "begins with the rendezvous"}},
		"a class that there is not":               {add(0, saw("pay", "materializing", "", "nonsense")), []string{`path pay took a lock of class nonsense`}},
		"a path that is not in the table":         {add(1, saw("stray", "plain", "", "pool")), []string{"path stray, which the tests of billing ran, is not in the table"}},
		"a run of a path that takes nothing":      {func(f []lockgraph.File) { f[0].Runs = append(f[0].Runs, lockgraph.Run{Path: "stray", Kind: "plain"}) }, []string{"path stray, which the tests of activities ran"}},
		"another kind":                            {func(f []lockgraph.File) { f[0].Runs[0].Kind = "plain" }, []string{"path pay ran as plain in the tests of activities, and the table says materializing"}},
		"broken in its process":                   {func(f []lockgraph.File) { f[0].Broken = []string{"path pay held pool 2 and took pool 1"} }, []string{"path pay held pool 2 and took pool 1 (in the tests of activities)"}},
		"never committed":                         {func(f []lockgraph.File) { f[1].Runs[0].Committed = 0 }, []string{"path settle is in the table, and no test commits it"}},
		"never run":                               {func(f []lockgraph.File) { f[0].Runs, f[0].Edges = nil, nil }, []string{"path pay is in the table, and no test commits it"}},
		"a step that is never taken": {func(f []lockgraph.File) {
			f[1].Edges = slices.DeleteFunc(f[1].Edges, func(e lockgraph.Edge) bool { return e.Took == "customer" })
		}, []string{"path settle lists customer, and no test saw it take one"}},
	} {
		files := seenWell()
		c.spoil(files)
		err := judgeFiles(files, known, two, true).err("dir")
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v\ndoes not say %q", name, err, want)
			}
		}
	}
}

// TestWhatIsNotRecorded takes edges out of the record. Only one that each run sees has to be there.
func TestWhatIsNotRecorded(t *testing.T) {
	t.Parallel()
	all := merge(seenWell(), two).steps()
	without := func(text string) steps {
		known := slices.DeleteFunc(slices.Clone(all), func(s step) bool { return s.String() == text })
		if len(known) == len(all) {
			t.Fatalf("%s is not among %v", text, all)
		}
		return known
	}
	err := judgeFiles(seenWell(), without("pay: subscription → pool"), two, true).err("dir")
	for _, want := range []string{"the record has no edge pay: subscription → pool", "run: make locks", "record dir"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %q", err, want)
		}
	}
	for _, text := range []string{"pay: pool → parked-work", "pay: pool → pool", "settle: customer → pool"} {
		v := judgeFiles(seenWell(), without(text), two, true)
		if v.err("dir") != nil || !strings.Contains(strings.Join(v.notes, "\n"), "the record has no edge "+text+" yet") {
			t.Errorf("%s: %v, notes %q", text, v.err("dir"), v.notes)
		}
	}
}

// TestATableChangedUnderTheTests turns two steps of an entry round: what the tests saw contradicts it.
func TestATableChangedUnderTheTests(t *testing.T) {
	t.Parallel()
	turned := pay
	turned.Rows = []lockpath.Step{pay.Rows[1], pay.Rows[0]}
	paths := []lockpath.Path{turned, settle}
	known := merge(seenWell(), two).steps()
	err := judgeFiles(seenWell(), known, paths, true).err("dir")
	if err == nil || !strings.Contains(err.Error(), "path pay held pool and took parked-work in the tests of activities, and its entry has them the other way round") {
		t.Errorf("%v", err)
	}
	if strangers := known.strangers(paths); len(strangers) != 1 || strangers[0].String() != "pay: pool → parked-work" {
		t.Errorf("the record's strangers are %v", strangers)
	}
}

// TestWhatDependsIsNoted leaves out what hangs on circumstances, and what is not asked of a part of the tests.
func TestWhatDependsIsNoted(t *testing.T) {
	t.Parallel()
	known := merge(seenWell(), two).steps()
	files := seenWell()
	files[0].Edges = files[0].Edges[:5]
	v := judgeFiles(files, known, two, true)
	if notes := strings.Join(v.notes, "\n"); v.err("dir") != nil || !strings.Contains(notes, "no test saw path pay take parked-work") || !strings.Contains(notes, "the record has pay: pool → parked-work") {
		t.Errorf("%v, notes %q", v.err("dir"), v.notes)
	}
	if v := judgeFiles(seenWell()[1:2], known, two, false); v.err("dir") != nil || len(v.notes) > 0 {
		t.Errorf("a part of the tests: %v, notes %q", v.err("dir"), v.notes)
	}
}

func TestCoverageShowsEveryPath(t *testing.T) {
	t.Parallel()
	files := seenWell()
	files[0].Runs = nil
	got := strings.Join(strings.Fields(coverage(merge(files, two), two)), " ")
	for _, want := range []string{"pay materializing 0 0 4 of 4", "settle plain 1 2 2 of 2 billing", "1 of 2 paths ran; 3 packages left edges: activities, billing, lockorder"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
}
