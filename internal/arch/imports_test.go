package arch

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/bursarhq/bursar"

// pkg is what go list says of a package; test files' imports are kept apart.
type pkg struct {
	ImportPath   string
	Dir          string
	Doc          string
	Imports      []string
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
}

func (p pkg) name() string { return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/") }

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Doc,Imports,GoFiles,TestGoFiles,XTestGoFiles", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 10 {
		t.Fatalf("go list found %d packages; the rules would hold for nothing", len(all))
	}
	return all
}

// rule forbids packages under from to import packages under to, but for those under except.
type rule struct {
	from, to, except []string
	why              string
}

var domains = []string{"entitlements", "billing", "desiredstate", "fedwiki", "domains"}

func rules() []rule {
	above := []string{"ingress", "workflows", "activities", "worker", "cmd"}
	list := []rule{
		{from: []string{"lockorder"}, to: []string{""}, except: []string{"lockorder"},
			why: "the lock package is usable alone"},
		{from: []string{"workflows/contract"}, to: []string{""}, except: []string{"workflows/contract"},
			why: "the contract is a leaf, so that everything can name a workflow without running it"},
		{from: []string{"ingress"}, to: []string{""}, except: []string{"ingress", "workflows/contract"},
			why: "the ingress passes ids on and knows no database, no workflow code and no domain"},
		{from: []string{"ingress", "workflows"}, to: []string{"github.com/jackc", "db", "lockorder", "entitlements", "billing"},
			why: "the database is reached by activities only"},
		{from: domains, to: append([]string{"internal/stripeapi", "go.temporal.io", "net/http", "internal/devstack"}, above...),
			why: "a domain package runs inside a transaction: it calls nothing outside and knows nothing above it"},
		{from: []string{"db"}, to: append(slices.Clone(domains), above...),
			why: "the schema is below everything"},
		{from: []string{"activities"}, to: []string{"ingress", "worker", "cmd", "internal/devstack"},
			why: "data flows from ingress to workflow to activity"},
		{from: []string{""}, to: []string{"github.com/jackc/pgx/v5/pgxpool"}, except: nil,
			why: "only lockorder opens transactions"},
		{from: []string{""}, to: []string{"github.com/fergusstrange/embedded-postgres"},
			why: "real parts are started by devstack"},
		{from: []string{""}, to: []string{"internal/stripeapi/standin"},
			why: "the stand-in is for development and tests"},
		{from: []string{""}, to: []string{"internal/pgtest", "testing", "github.com/peterldowns/pgtestdb"},
			why: "test helpers stay in tests"},
		{from: []string{""}, to: []string{"cmd"}, why: "a command is not a library"},
	}
	for _, d := range domains {
		others := slices.DeleteFunc(slices.Clone(domains), func(o string) bool { return o == d })
		list = append(list, rule{from: []string{d}, to: others,
			why: "domain packages never import each other: an activity composes two of them in one transaction"})
	}
	return list
}

// exempt are the packages that a rule about the whole module does not mean.
var exempt = map[string][]string{
	"github.com/jackc/pgx/v5/pgxpool":            {"lockorder", "internal/pgtest", "internal/locktest", "internal/telemetry"},
	"github.com/fergusstrange/embedded-postgres": {"internal/devstack"},
	"internal/stripeapi/standin":                 {"internal/stripeapi/standin", "internal/dev", "cmd/bursar"},
	"internal/pgtest":                            {"internal/pgtest", "internal/locktest"},
	"testing":                                    {"internal/pgtest", "internal/locktest", "internal/telemetry/otlptest"},
	"github.com/peterldowns/pgtestdb":            {"internal/pgtest"},
	"cmd":                                        {"cmd"},
}

// under reports whether path is prefix or below it. The empty prefix is the whole module.
func under(path, prefix string) bool {
	if prefix == "" {
		return path == module || strings.HasPrefix(path, module+"/")
	}
	for _, p := range []string{prefix, module + "/" + prefix} {
		if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}

func broken(p pkg, r rule) (imported string, is bool) {
	isFrom := slices.ContainsFunc(r.from, func(f string) bool { return under(p.ImportPath, f) })
	if !isFrom {
		return "", false
	}
	for _, imp := range p.Imports {
		for _, to := range r.to {
			if !under(imp, to) || slices.ContainsFunc(r.except, func(e string) bool { return under(imp, e) }) {
				continue
			}
			// A rule about the whole module does not mean the packages that the thing is for.
			if slices.Equal(r.from, []string{""}) && slices.ContainsFunc(exempt[to], func(e string) bool { return under(p.ImportPath, e) }) {
				continue
			}
			// A leaf below a package that is itself restricted keeps its own rule.
			if strings.HasPrefix(p.name(), "workflows/contract") && r.from[0] != "workflows/contract" {
				continue
			}
			return imp, true
		}
	}
	return "", false
}

func TestImports(t *testing.T) {
	all := packages(t)
	for _, p := range all {
		for _, r := range rules() {
			if imp, is := broken(p, r); is {
				t.Errorf("%s imports %s: %s", p.name(), imp, r.why)
			}
		}
	}
}

// TestRulesBite shows of every rule a package that would break it.
func TestRulesBite(t *testing.T) {
	for _, r := range rules() {
		to := r.to[0]
		if to == "" {
			to = "db"
		}
		if !strings.Contains(to, ".") && to != "testing" && to != "net/http" {
			to = module + "/" + to
		}
		from := r.from[0]
		if from == "" {
			from = "db"
		}
		p := pkg{ImportPath: module + "/" + from, Imports: []string{to}}
		if _, is := broken(p, r); !is {
			t.Errorf("the rule %q finds nothing wrong with %s importing %s", r.why, from, to)
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range packages(t) {
		if strings.Contains(p.ImportPath, "/internal/") && strings.HasSuffix(p.ImportPath, "db") {
			continue // generated
		}
		if len(p.Doc) < 40 {
			t.Errorf("%s has no package comment that says what it is for", p.ImportPath)
		}
	}
}

// TestFixedNames holds the top-level names that other repositories and people rely on.
func TestFixedNames(t *testing.T) {
	root := filepath.Dir(filepath.Dir(packageDir(t, "internal/arch")))
	for _, name := range []string{"go.mod", "go.sum", "worker/*.go", "workflows/*.go", "activities/*.go", "entitlements/doc.go", "desiredstate/doc.go",
		"fedwiki/doc.go", "domains/doc.go", "billing/doc.go", "lockorder/doc.go", "docker-compose.yml", "README.md", "LICENSE", "CHANGELOG.md", "cmd/bursar/main.go", "ingress/*.go", "db/*.go"} {
		found, err := filepath.Glob(filepath.Join(root, name))
		if err != nil || len(found) == 0 {
			t.Errorf("%s is missing (%v)", name, err)
		}
	}
}

func packageDir(t *testing.T, name string) string {
	t.Helper()
	for _, p := range packages(t) {
		if p.name() == name {
			return p.Dir
		}
	}
	t.Fatalf("no package %s", name)
	return ""
}
