package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUnderVet runs the command as another project does: a process for each package, which hand each other what they found.
func TestUnderVet(t *testing.T) {
	dir := t.TempDir()
	tool := filepath.Join(dir, "lockordervet")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", tool, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	write(t, dir, map[string]string{
		"go.mod": "module example.com/app\n\ngo 1.26\n",
		"lockorder/lockorder.go": `package lockorder
type Class struct { Name string; Rank int }
var (
	A = &Class{Name: "a", Rank: 1}
	B = &Class{Name: "b", Rank: 2}
)
type Lock struct { class *Class }
func New(class *Class) Lock { return Lock{class} }
type Tx struct{}
func (*Tx) Lock(ctx any, locks ...Lock) error { return nil }
type DB struct{}
func (*DB) Run(ctx, spec any, fn func(ctx any, tx *Tx) error) error { return nil }
`,
		"far/far.go": `package far
func Call() {}
type Caller interface { Call() }
`,
		"middle/middle.go": `package middle
import (
	"example.com/app/far"
	"example.com/app/lockorder"
)
type Client struct { Again func() }
func (c *Client) Call() { far.Call() }
func Open(db *lockorder.DB) { db.Run(nil, nil, nil) }
func LockA(tx *lockorder.Tx) error { return tx.Lock(nil, lockorder.New(lockorder.A)) }
`,
		"app/app.go": `package app
import (
	"example.com/app/far"
	"example.com/app/lockorder"
	"example.com/app/middle"
)
func Run(db *lockorder.DB, tx *lockorder.Tx, c far.Caller) {
	c.Call()
	middle.Open(db)
	tx.Lock(nil, lockorder.New(lockorder.B))
	middle.LockA(tx)
}
`,
	})
	vet := func(args ...string) (string, error) {
		cmd := exec.Command("go", append([]string{"vet", "-vettool=" + tool, "-lockordervet.lockpkg=example.com/app/lockorder"}, args...)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}

	out, err := vet("-lockordervet.network=example.com/app/far.Call", "./...")
	if err == nil {
		t.Error("go vet found nothing")
	}
	for _, want := range []string{
		"app.go:8:4: network: far.Caller.Call can reach the network inside a transaction function (far.Caller.Call → middle.Client.Call → far.Call)",
		"app.go:9:9: nested: middle.Open can use a second connection inside a transaction function (middle.Open → lockorder.DB.Run)",
		"app.go:11:2: order: middle.LockA asks for a (rank 1) where b (rank 2) may be held since line 10",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("go vet does not find %q:\n%s", want, out)
		}
	}
	if n := strings.Count(out, "app.go:"); n != 3 {
		t.Errorf("go vet finds %d things, not 3:\n%s", n, out)
	}
	if out, err := vet("./middle", "./far", "./lockorder"); err != nil {
		t.Errorf("go vet finds something where there is nothing: %v\n%s", err, out)
	}
}

func TestSQL(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"bad/a.sql":      "SELECT 1\nFOR UPDATE;",
		"good/b.sql":     "SELECT 1;",
		"none/readme.md": "FOR UPDATE",
	})
	for _, c := range []struct {
		folders     []string
		code        int
		out, errOut string
	}{
		{[]string{"good"}, 0, "", ""},
		{[]string{"good", "bad"}, 1, filepath.Join("bad", "a.sql") + ":2: lock-text: FOR UPDATE", ""},
		{[]string{"none"}, 2, "", "there is no .sql file below"},
		{[]string{"nowhere"}, 2, "", "cannot be read"},
	} {
		var out, errOut bytes.Buffer
		folders := make([]string, len(c.folders))
		for i, f := range c.folders {
			folders[i] = filepath.Join(dir, f)
		}
		code := checkSQL(&out, &errOut, folders)
		if code != c.code || !strings.Contains(out.String(), c.out) || !strings.Contains(errOut.String(), c.errOut) || c.code == 0 && out.Len()+errOut.Len() > 0 {
			t.Errorf("sql %v answers %d, %q and %q", c.folders, code, out.String(), errOut.String())
		}
	}
	t.Chdir(filepath.Join(dir, "bad"))
	var out, errOut bytes.Buffer
	if code := checkSQL(&out, &errOut, nil); code != 1 || !strings.HasPrefix(out.String(), "a.sql:2:") {
		t.Errorf("without folders it reads the one it runs in: %d, %q, %q", code, out.String(), errOut.String())
	}
}
