package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bursarhq/bursar/internal/lockgraph"
	"github.com/bursarhq/bursar/internal/lockpath"
	"github.com/bursarhq/bursar/lockorder"
)

// TestThePageAndTheRecordAreNotBehind is the check of make check, so that it is not forgotten.
func TestThePageAndTheRecordAreNotBehind(t *testing.T) {
	t.Chdir("../..")
	if err := run([]string{"drift"}, nil); err != nil {
		t.Error(err)
	}
}

// TestKnownAnswers holds the page's keys to numbers that were computed apart from this code.
func TestKnownAnswers(t *testing.T) {
	t.Parallel()
	want := map[string]int64{
		"bursar:materialization":                                -9104575358558129625,
		"bursar:subscription:sub_1PqRsT2eZvKYlo2C":              -3665128543489699651,
		"bursar:invoice:in_1PqRsT2eZvKYlo2C":                    1894564841501681177,
		"bursar:product:9b2f1c1e-1d1b-4c5e-9a43-2f7f5b0f7a10":   6624483717101204389,
		"bursar:workspace:17963da0-ab4a-4574-8eca-202bc22ceb7d": 8035307198156179396,
		"bursar:workspace:b1d30740-dd19-43ff-b650-978f27bfc618": -148746545014421041,
		"bursar:lifecycle:17963da0-ab4a-4574-8eca-202bc22ceb7d": 81864751639425832,
		"bursar:desired-state:c1:organization:a%3Ab":            1302692274493701487,
		"bursar:desired-state:c1:organization%3Aa:b":            31119508865334223,
		"bursar:domains":          6052211708705085523,
		"bursar:migration:bursar": -2472991287482019171,
	}
	page, err := makePage(lockpath.All(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := answers()
	if len(got) != len(want) {
		t.Errorf("%d answers, want %d", len(got), len(want))
	}
	families := map[string]bool{}
	for _, a := range got {
		if want[a.Text] != a.Key {
			t.Errorf("%s has the key %d, want %d", a.Text, a.Key, want[a.Text])
		}
		if whole := int64(uint64(a.ClassID)<<32 | uint64(a.Object)); whole != a.Key {
			t.Errorf("the halves of %s make %d, want %d", a.Text, whole, a.Key)
		}
		if row := fmt.Sprintf("| `%s` | %d | %d | %d |", a.Text, a.Key, a.ClassID, a.Object); !bytes.Contains(page, []byte(row)) {
			t.Errorf("the page has no row %s", row)
		}
		families[strings.Split(a.Text, ":")[1]] = true
	}
	for _, c := range lockorder.Classes() {
		if c.Kind != lockorder.Row && !families[c.Name] {
			t.Errorf("the page has no known answer of family %s", c.Name)
		}
	}
}

func TestThePageSaysEverything(t *testing.T) {
	t.Parallel()
	known := merge(seenWell(), two).steps()
	page, err := makePage(two, known)
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for _, c := range lockorder.Classes() {
		for _, want := range []string{"**`" + c.Name + "`**, rank " + fmt.Sprint(int(c.Rank)), c.Serializes, c.Why} {
			if !strings.Contains(text, want) {
				t.Errorf("class %s: the page does not say %q", c.Name, want)
			}
		}
	}
	for _, want := range []string{
		"#### `pay`\n\nPays. A materializing transaction, run by the activity `Pay`.\n\n1. `materialization`, shared.\n1. `subscription`.\n1. `pool`: of all; several in one transaction, ascending by identity, byte by byte.\n1. `parked-work`; only where it is parked.\n",
		"#### `settle`\n\nSettles. A plain transaction, run by `bursar settle`.\n\n1. `customer`.\n",
		"Taken by: [`pay`](#pay) and [`settle`](#settle).",
		"  materialization --> subscription\n  subscription --> pool\n  customer --> pool\n  pool --> parked_work\n```",
		"The classes `invoice`,",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if strings.Contains(text, "materialization --> pool") {
		t.Error("the picture has an arrow that follows from two others")
	}
}

// TestDriftIsFound changes the page, the record and the table's word on it, in a folder like the module's root.
func TestDriftIsFound(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{filepath.Dir(recordFile), filepath.Dir(pageFile)} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(root)
	const held = `[{"path":"subscription-reconcile","took":"materialization"},{"path":"subscription-reconcile","held":"materialization","took":"subscription"}]`
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wants := func(text string) {
		t.Helper()
		if err := drift(); err == nil || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), "make locks") {
			t.Errorf("%v, want %q and what to run", err, text)
		}
	}
	write(recordFile, held)
	wants("LOCKS.md")
	var out bytes.Buffer
	if err := run([]string{"page"}, &out); err != nil {
		t.Fatal(err)
	}
	if err := drift(); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	write(pageFile, strings.Replace(string(page), "# Locks\n", "# Lucks\n", 1))
	wants("# Lucks\nit should be # Locks")
	write(pageFile, string(page)+"\nmore")
	wants("is not what the classes")
	write(pageFile, string(page))
	write(recordFile, `[{"path":"subscription-reconcile","held":"pool","took":"subscription"}]`)
	wants("subscription-reconcile: pool → subscription, which the table of paths does not allow")
	write(recordFile, `[{"path":"gone","took":"pool"}]`)
	wants("gone: first pool")
}

// TestRecordGrows records two runs one after the other, and one that the table does not allow.
func TestRecordGrows(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{filepath.Dir(recordFile), filepath.Dir(pageFile)} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(root)
	left := func(edges ...[2]string) string {
		t.Helper()
		dir := t.TempDir()
		f := seenWell()[0]
		f.Runs, f.Edges = nil, nil
		for _, e := range edges {
			f.Edges = append(f.Edges, saw("subscription-reconcile", "materializing", e[0], e[1]))
		}
		if err := f.Write(dir); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	if err := (steps{{"gone", "", "pool"}, {"subscription-reconcile", "pool", "pool"}}).write(recordFile); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	recorded := func(args ...string) string {
		t.Helper()
		if err := run(append([]string{"record"}, args...), &out); err != nil {
			t.Fatal(err)
		}
		s, err := readRecord(recordFile)
		if err != nil {
			t.Fatal(err)
		}
		if err := drift(); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(s)
	}
	first := left([2]string{"", "materialization"}, [2]string{"materialization", "subscription"})
	if got := recorded(first); got != "[subscription-reconcile: first materialization subscription-reconcile: materialization → subscription subscription-reconcile: pool → pool]" {
		t.Errorf("after the first run: %s", got)
	}
	if got := recorded("-anew", left([2]string{"", "materialization"})); got != "[subscription-reconcile: first materialization]" {
		t.Errorf("anew: %s", got)
	}
	out.Reset()
	if got := recorded(left([2]string{"pool", "subscription"})); got != "[subscription-reconcile: first materialization]" || !strings.Contains(out.String(), "left out, since the table does not allow it: subscription-reconcile: pool → subscription") {
		t.Errorf("an edge that the table does not allow: %s\n%s", got, &out)
	}
	if err := run([]string{"check", "-part", first}, &out); err == nil || !strings.Contains(err.Error(), "the record has no edge subscription-reconcile: materialization → subscription") {
		t.Errorf("an edge that is not recorded: %v", err)
	}
	if err := run([]string{"check", "-part", t.TempDir()}, &out); err != nil {
		t.Errorf("a part of the tests that opens no transaction: %v", err)
	}
	if err := run([]string{"check", t.TempDir()}, &out); !errors.Is(err, lockgraph.ErrNone) {
		t.Errorf("all tests, and nothing left: %v", err)
	}
	for _, args := range [][]string{nil, {"nonsense"}, {"check"}, {"record", "-nonsense", first}, {"page", "more"}} {
		if err := run(args, &out); err == nil || !strings.Contains(err.Error(), "usage") {
			t.Errorf("%q: %v", args, err)
		}
	}
}
