package lockordervet

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"
)

const shop = "example.com/shop/"

// fixtures are the packages that hold each rule's findings, and what must not be found.
var fixtures = map[Rule]string{
	Transaction: shop + "transaction",
	LockText:    shop + "locktext",
	Network:     shop + "network",
	Nested:      shop + "nested",
	Order:       shop + "order",
	Allowance:   shop + "allow",
}

func TestRules(t *testing.T) {
	all := slices.Collect(maps.Values(fixtures))
	for _, c := range run(newAnalyzer(), append(all, shop+"farm", shop+"stock")...) { // which the others call
		t.Error(c)
	}
}

// TestEveryRuleIsMissed takes each rule out, and sees that its fixture is short of findings then, all of them the rule's.
func TestEveryRuleIsMissed(t *testing.T) {
	all := findings(t, newAnalyzer())
	for rule, fixture := range fixtures {
		a, s := newAnalyzerOf()
		s.disabled = rule
		left := findings(t, a)
		for f := range left {
			if !all[f] {
				t.Errorf("without the rule %s something else is found: %s", rule, f)
			}
		}
		missed := 0
		for f := range all {
			if left[f] {
				continue
			}
			ofRule := f.category == string(rule) || f.category == string(Allowance) && strings.Contains(f.message, "of the rule "+string(rule)+" ")
			if !ofRule {
				t.Errorf("without the rule %s another one misses: %s", rule, f)
			} else if f.category == string(rule) && strings.HasPrefix(f.file, fixture+"/") {
				missed++
			}
		}
		if missed == 0 {
			t.Errorf("without the rule %s the fixture %s passes: it holds nothing that only this rule finds", rule, fixture)
		}
	}
}

// found is a finding in a fixture.
type found struct {
	file     string // below src
	line     int
	category string
	message  string
}

func (f found) String() string { return fmt.Sprintf("%s:%d: %s", f.file, f.line, f.message) }

// loaded are the packages of all fixtures, read once for the tests that run the analyzer over them again and again.
var loaded = sync.OnceValues(func() ([]*packages.Package, error) {
	return packages.Load(&packages.Config{
		Mode: packages.LoadAllSyntax | packages.NeedModule,
		Dir:  analysistest.TestData(),
		Env:  append(os.Environ(), "GOPATH="+analysistest.TestData(), "GO111MODULE=off", "GOWORK=off"),
	}, "example.com/...", "example.org/...")
})

// findings runs an analyzer over all fixtures.
func findings(t *testing.T, a *analysis.Analyzer) map[found]bool {
	t.Helper()
	pkgs, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	graph, err := checker.Analyze([]*analysis.Analyzer{a}, pkgs, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := map[found]bool{}
	for _, action := range graph.Roots {
		if action.Err != nil {
			t.Fatal(action.Err)
		}
		for _, d := range action.Diagnostics {
			at := action.Package.Fset.Position(d.Pos)
			_, file, _ := strings.Cut(filepath.ToSlash(at.Filename), "/testdata/src/")
			all[found{file, at.Line, d.Category, d.Message}] = true
		}
	}
	return all
}

// complaints are what a fixture has that was not found, and what was found that it does not have. Facts are left out: what
// they say shows in the findings of the packages that import them.
type complaints []string

func (c *complaints) Errorf(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !strings.Contains(text, ": unexpected fact: ") {
		*c = append(*c, text)
	}
}

func run(a *analysis.Analyzer, fixtures ...string) []string {
	var c complaints
	analysistest.Run(&c, analysistest.TestData(), a, fixtures...)
	return c
}

func TestFlags(t *testing.T) {
	set := func(a *analysis.Analyzer, flag, value string) {
		t.Helper()
		if err := a.Flags.Set(flag, value); err != nil {
			t.Fatal(err)
		}
	}
	without, together := findings(t, newAnalyzer()), newAnalyzer()
	for flag, value := range map[string]string{
		"network": shop + "flags/network.Mailer, " + shop + "flags/sms",
		"offline": shop + "flags/offline.callFarm",
		"testkit": "example.com/kit",
	} {
		set(together, flag, value)
		alone := newAnalyzer()
		set(alone, flag, value)
		if maps.Equal(without, findings(t, alone)) {
			t.Errorf("the same is found without the flag %s", flag)
		}
	}
	for _, c := range run(together, shop+"flags/...", "example.com/kit") {
		t.Error(c)
	}
	t.Run("lockpkg", func(t *testing.T) {
		a := newAnalyzer()
		set(a, "lockpkg", "example.org/forked/lockorder")
		for _, c := range run(a, "example.org/forked/...") {
			t.Error(c)
		}
	})
	t.Run("tests", func(t *testing.T) {
		a := newAnalyzer()
		set(a, "tests", "true")
		found := run(a, fixtures[Transaction])
		if len(found) != 1 || !strings.Contains(found[0], "transaction_test.go") {
			t.Errorf("with its tests, the one call in them is found: %q", found)
		}
	})
}

func TestPackagePatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, pkg string
		want         bool
	}{
		{"net/http", "net/http", true},
		{"net", "net/http", false},
		{"github.com/jackc/pgx/*", "github.com/jackc/pgx", true},
		{"github.com/jackc/pgx/*", "github.com/jackc/pgx/v5", true},
		{"github.com/jackc/pgx/*", "github.com/jackc/pgx/pgxpool", false},
		{"github.com/jackc/pgx/*/pgxpool", "github.com/jackc/pgx/v5/pgxpool", true},
		{"github.com/stripe/stripe-go/*/...", "github.com/stripe/stripe-go/v79", false},
		{"github.com/stripe/stripe-go/*/...", "github.com/stripe/stripe-go/v79/checkout/session", true},
		{"github.com/stripe/stripe-go/*/...", "github.com/stripe/other", false},
	} {
		if got := matchPackage(c.pattern, c.pkg); got != c.want {
			t.Errorf("matchPackage(%q, %q) = %v", c.pattern, c.pkg, got)
		}
	}
}
