package arch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/bursarhq/bursar"

// pkg is what go list says of a package. Imports are those of its code; its tests may import what they like.
type pkg struct {
	ImportPath string
	Name       string
	Dir        string
	Doc        string
	Imports    []string
}

// name is the package's path within the module.
func (p pkg) name() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

func packages(t *testing.T) []pkg {
	t.Helper()
	all, err := listed()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var listed = sync.OnceValues(func() ([]pkg, error) {
	// -e: a package that does not build is reported by its own tests.
	out, err := exec.Command("go", "list", "-e", "-json=ImportPath,Name,Dir,Doc,Imports", module+"/...").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return nil, fmt.Errorf("go list: %w\n%s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("go list: %w", err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list's answer: %w", err)
		}
		all = append(all, p)
	}
	if len(all) < 20 {
		return nil, fmt.Errorf("go list found %d packages; the rules would hold for nothing", len(all))
	}
	return all, nil
})

// root is the module's folder.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// sources are the Go files of the repository, those of the tools' modules too, by their path in it.
func sources(t *testing.T) map[string]string {
	t.Helper()
	dir := root(t)
	texts := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && path != dir || path == filepath.Join(dir, "bin") || entry.Name() == "testdata") {
			return fs.SkipDir
		}
		if entry.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		texts[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(texts) < 100 {
		t.Fatalf("%d Go files were found; the rules would hold for nothing", len(texts))
	}
	return texts
}
