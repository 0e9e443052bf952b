package devstack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// fakeTools is a PATH with a `go` that notes its arguments and makes a Temporal CLI which only knows its version.
type fakeTools struct{ dir, cache, calls string }

func newFakeTools(t *testing.T, goScript string) fakeTools {
	t.Helper()
	dir := t.TempDir()
	f := fakeTools{dir: filepath.Join(dir, "bin"), cache: filepath.Join(dir, "cache"), calls: filepath.Join(dir, "calls")}
	if err := os.Mkdir(f.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", f.dir+":/usr/bin:/bin")
	t.Setenv("XDG_CACHE_HOME", f.cache)
	t.Setenv("HOME", dir) // macOS keeps caches under it
	t.Setenv(envTemporalCLI, "")
	if goScript != "" {
		f.script(t, "go", `echo "$@" >> '`+f.calls+`'`+"\n"+goScript)
	}
	return f
}

func (f fakeTools) script(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(f.dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// goCalls are the argument lines that the fake go was called with.
func (f fakeTools) goCalls(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(f.calls)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

const (
	fakeCLI = `echo 'temporal version 1.2.3'`
	// `go build -C dir -o out package` has its output fifth; `go install` finds GOBIN.
	fakeGo = `out=$5; [ "$1" = install ] && out=$GOBIN/temporal
sleep 0.3
printf '#!/bin/sh\n%s\n' "` + fakeCLI + `" > "$out"; chmod +x "$out"`
)

func TestTemporalCLINamedOrOnPath(t *testing.T) {
	tools := newFakeTools(t, fakeGo)
	onPath := tools.script(t, "temporal", fakeCLI)
	named := tools.script(t, "named", fakeCLI)
	if got, err := TemporalCLI(t.Context(), nil); err != nil || got != onPath {
		t.Errorf("on PATH: %q, %v", got, err)
	}
	t.Setenv(envTemporalCLI, named)
	if got, err := TemporalCLI(t.Context(), nil); err != nil || got != named {
		t.Errorf("named: %q, %v", got, err)
	}
	t.Setenv(envTemporalCLI, filepath.Join(tools.dir, "missing"))
	if _, err := TemporalCLI(t.Context(), nil); err == nil || !strings.Contains(err.Error(), envTemporalCLI) {
		t.Errorf("named and missing: %v", err)
	}
	t.Setenv(envTemporalCLI, tools.script(t, "other", "echo something else"))
	if _, err := TemporalCLI(t.Context(), nil); err == nil {
		t.Error("a program that is no Temporal CLI was accepted")
	}
	if calls := tools.goCalls(t); len(calls) > 0 {
		t.Errorf("built although there was one: %q", calls)
	}
}

func TestTemporalCLIIsBuiltOnceFromTheCheckout(t *testing.T) {
	tools := newFakeTools(t, fakeGo)
	const n = 4
	var paths [n]string
	var errs [n]error
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { paths[i], errs[i] = TemporalCLI(t.Context(), nil) })
	}
	group.Wait()
	for i := range n {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		if paths[i] != paths[0] || !strings.HasSuffix(paths[i], "/bursar/temporal-"+temporalCLIVersion+"/temporal") {
			t.Errorf("path %q", paths[i])
		}
	}
	calls := tools.goCalls(t)
	if len(calls) != 1 {
		t.Fatalf("built %d times: %q", len(calls), calls)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if want := "build -C " + filepath.Join(root, "tools", "temporal") + " -o "; !strings.HasPrefix(calls[0], want) || !strings.HasSuffix(calls[0], temporalCLIPackage) {
		t.Errorf("go %s; want it to begin with %s", calls[0], want)
	}
	entries, err := filepath.Glob(filepath.Join(filepath.Dir(paths[0]), "staging-*"))
	if err != nil || len(entries) > 0 {
		t.Errorf("left in the cache: %v %v", entries, err)
	}
}

func TestTemporalCLIIsInstalledOutsideACheckout(t *testing.T) {
	tools := newFakeTools(t, fakeGo)
	t.Chdir(t.TempDir())
	if _, err := TemporalCLI(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if calls := tools.goCalls(t); len(calls) != 1 || calls[0] != "install "+temporalCLIPackage+"@"+temporalCLIVersion {
		t.Errorf("go was called with %q", calls)
	}
}

func TestTemporalCLIBuildCancelled(t *testing.T) {
	tools := newFakeTools(t, "sleep 600")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := TemporalCLI(ctx, func(line string) {
		if strings.HasPrefix(line, "building") {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	files, err := filepath.Glob(filepath.Join(tools.cache, "bursar", "*", "*"))
	if err != nil || len(files) != 1 || filepath.Base(files[0]) != "lock" {
		t.Errorf("left in the cache: %v %v", files, err)
	}
}

func TestTemporalCLIBuildFailsWithItsOutput(t *testing.T) {
	newFakeTools(t, "echo 'no space left on device' >&2; exit 1")
	// After a failed build comes a download; the context ends before it begins, so that no test uses the network.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := TemporalCLI(ctx, func(line string) {
		if strings.HasPrefix(line, "downloading") {
			cancel()
		}
	})
	if err == nil || !strings.Contains(err.Error(), "no space left on device") || !strings.Contains(err.Error(), envTemporalCLI) {
		t.Errorf("err = %v", err)
	}
}

func TestTemporalCLIVersionIsThePinnedOne(t *testing.T) {
	goMod, err := os.ReadFile("../../tools/temporal/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if want := "github.com/temporalio/cli " + temporalCLIVersion; !strings.Contains(string(goMod), want) {
		t.Errorf("tools/temporal/go.mod does not pin %s", want)
	}
	if moduleRoot() == "" {
		t.Error("the checkout around the tests is not found")
	}
}
