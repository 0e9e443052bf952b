package lockgraph

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// EnvDir names the folder that test processes leave their graphs in. It must be an absolute path, new in each run: a test
// that go test takes from its cache, because it read the same name before, would leave none. Only tests read it.
const EnvDir = "BURSAR_ORDER_GRAPH_DIR"

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

// Run says how often transactions of a path ended.
type Run struct {
	Path string `json:"path"`
	Kind string `json:"kind"`
	// Committed are those that were committed, Failed all others.
	Committed int `json:"committed"`
	Failed    int `json:"failed"`
}

// File is what one process saw.
type File struct {
	// Package is the folder of the tested package, from the module's root.
	Package string `json:"package"`
	Edges   []Edge `json:"edges"`
	Runs    []Run  `json:"runs"`
	// Broken are the locks that were taken against the order, each in a sentence that names the path.
	Broken []string `json:"broken,omitempty"`
}

// Write writes the file into a folder, which it makes, under a name that no other process takes.
func (f File) Write(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("write the order graph: %s is %q; it must be an absolute path, since each test runs in a folder of its own", EnvDir, dir)
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	var file *os.File
	if err == nil {
		file, err = os.CreateTemp(dir, strings.ReplaceAll(f.Package, "/", "-")+"-*.json")
	}
	if err == nil {
		_, err = file.Write(append(text, '\n'))
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return fmt.Errorf("write the order graph: %w", err)
	}
	return nil
}

// ErrNone is what Read answers for a folder in which no process left anything.
var ErrNone = errors.New("no test has left an order graph")

// Read reads what the processes of one run left in a folder. A file that cannot be read is an error: it could be the one
// with the edge that matters.
func Read(dir string) ([]File, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("read the order graph: %w", err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w in %s; make test sets %s and runs them", ErrNone, dir, EnvDir)
	}
	files := make([]File, len(names))
	for i, name := range names {
		text, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(text, &files[i])
		}
		if err != nil {
			return nil, fmt.Errorf("read the order graph: %s: %w", name, err)
		}
	}
	return files, nil
}

// Package returns the folder of the package whose tests run in this process, from the module's root.
func Package() (string, error) {
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

// Sort sorts edges by path, kind and classes.
func Sort(edges []Edge) {
	slices.SortFunc(edges, func(a, b Edge) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Held, b.Held), cmp.Compare(a.Took, b.Took))
	})
}
