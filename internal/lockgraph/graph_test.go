package lockgraph

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func edge(path, held, took string) Edge {
	return Edge{Path: path, Kind: "plain", Held: held, Took: took, Count: 1}
}

func TestCircle(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edges []Edge
		want  string
	}{
		"nothing":            {nil, ""},
		"in order":           {[]Edge{edge("a", "", "x"), edge("a", "x", "y"), edge("a", "y", "y"), edge("b", "x", "z"), edge("a", "y", "z")}, ""},
		"two ways":           {[]Edge{edge("a", "x", "y"), edge("b", "y", "x")}, "x → y (path a) → x (path b)"},
		"three, and a fork":  {[]Edge{edge("a", "x", "y"), edge("b", "y", "z"), edge("c", "z", "x"), edge("d", "x", "w"), edge("d", "y", "z")}, "x → y (path a) → z (path b, d) → x (path c)"},
		"behind another one": {[]Edge{edge("a", "v", "x"), edge("a", "x", "y"), edge("b", "y", "x")}, "x → y (path a) → x (path b)"},
	} {
		if got := Circle(c.edges); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestFilesAreWrittenAndRead(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	want := File{Package: "a/b", Edges: []Edge{edge("p", "x", "y")}, Runs: []Run{{"p", "plain", 2, 1}}, Broken: []string{"path p did"}}
	for range 2 { // two processes of one package
		if err := want.Write(dir); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read(dir)
	if err != nil || len(got) != 2 || !reflect.DeepEqual(got[0], want) || !reflect.DeepEqual(got[1], want) {
		t.Fatalf("read %+v, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "torn.json"), []byte(`{"package": "a`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "torn.json") {
		t.Errorf("a torn file: %v", err)
	}
	if _, err := Read(t.TempDir()); !errors.Is(err, ErrNone) {
		t.Errorf("an empty folder: %v", err)
	}
	if err := want.Write("relative"); err == nil || !strings.Contains(err.Error(), "absolute") {
		t.Errorf("a relative folder: %v", err)
	}
	if name, err := Package(); name != "internal/lockgraph" || err != nil {
		t.Errorf("the package is %q, %v", name, err)
	}
}

func TestSort(t *testing.T) {
	t.Parallel()
	want := []Edge{edge("a", "", "x"), edge("a", "x", "y"), edge("a", "y", "x"), edge("b", "", "x")}
	got := []Edge{want[3], want[2], want[0], want[1]}
	if Sort(got); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}
