package lockordervet

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Rule names what a finding breaks, and what an allowance is for.
type Rule string

// The rules. Allowance is about the comments that allow findings, and cannot be allowed.
const (
	Transaction Rule = "transaction"
	LockText    Rule = "lock-text"
	Network     Rule = "network"
	Nested      Rule = "nested"
	Order       Rule = "order"
	Allowance   Rule = "allowance"
)

// rules are those that can be allowed.
var rules = []Rule{Transaction, LockText, Network, Nested, Order}

// Analyzer is the check with its default settings, which its flags change.
var Analyzer = newAnalyzer()

// settings are what the flags set. The tests leave rules out, to see that a fixture misses them.
type settings struct {
	lockpkg  string
	network  list
	offline  list
	testkit  list
	tests    bool
	disabled Rule
}

// list is a flag of names with commas between them.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(text string) error {
	*l = nil
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			*l = append(*l, part)
		}
	}
	return nil
}

func newAnalyzer() *analysis.Analyzer {
	a, _ := newAnalyzerOf()
	return a
}

func newAnalyzerOf() (*analysis.Analyzer, *settings) {
	s := &settings{lockpkg: "github.com/bursarhq/bursar/lockorder"}
	a := &analysis.Analyzer{
		Name:      "lockordervet",
		Doc:       "find transactions and locks that go round lockorder or against its order\n\nThe rules are transaction, lock-text, network, nested and order; see the package's documentation.",
		URL:       "https://pkg.go.dev/github.com/bursarhq/bursar/lockorder/lockordervet",
		Run:       s.run,
		FactTypes: []analysis.Fact{new(reachFact), new(classFact), new(locksFact), new(takesFact)},
	}
	a.Flags.StringVar(&s.lockpkg, "lockpkg", s.lockpkg, "import path of the lockorder package")
	a.Flags.Var(&s.network, "network", "what reaches the network besides what is known, with commas: package paths, or path.Func, path.Type, path.Type.Method")
	a.Flags.Var(&s.offline, "offline", "what never does, though it looks so: as for network")
	a.Flags.Var(&s.testkit, "testkit", "packages, with those below them, that tests are built with: they may open transactions and spell locks, to play another process")
	a.Flags.BoolVar(&s.tests, "tests", false, "read test files too")
	return a, s
}

// pass is the check of one package.
type pass struct {
	*analysis.Pass
	*settings
	allowances []*allowance
	findings   []finding
	files      []*ast.File // those that are read

	graph   map[types.Object]*node
	nodes   []*node // of the graph, in the order of the source
	roots   []*root
	readers map[types.Object]bool // variables that hold a reader, which has a connection of its own
	callees map[*types.Func][]*types.Func
	named   []*types.Named // see namedTypes

	assigned map[types.Object][]ast.Expr // what variables that hold locks are set to
}

type finding struct {
	rule Rule
	pos  token.Pos
	text string
}

func (s *settings) run(ap *analysis.Pass) (any, error) {
	p := &pass{Pass: ap, settings: s, readers: map[types.Object]bool{}, callees: map[*types.Func][]*types.Func{}}
	path := ap.Pkg.Path()
	if p.isStandard() {
		return nil, nil // what of it matters is known by name
	}
	for _, f := range ap.Files {
		if s.tests || !strings.HasSuffix(ap.Fset.File(f.FileStart).Name(), "_test.go") {
			p.files = append(p.files, f)
		}
	}
	p.exportClasses()
	if path == s.lockpkg {
		return nil, nil
	}
	p.exportLocks()
	if slices.ContainsFunc(drivers, func(d string) bool { return under(path, d) }) {
		return nil, nil
	}
	p.readAllowances()
	p.exportTakes()
	p.buildGraph()
	p.followGraph()
	p.exportReach()

	p.checkReach()
	p.checkOrder()
	if !slices.ContainsFunc(s.testkit, func(kit string) bool { return under(path, kit) }) {
		p.checkTransactions()
		p.checkLockTexts()
	}
	p.report()
	return nil, nil
}

// isStandard tells whether the package is one of Go's own.
func (p *pass) isStandard() bool {
	first, _, _ := strings.Cut(p.Pkg.Path(), "/")
	return !strings.Contains(first, ".") && (p.Module == nil || p.Module.Path == "" || p.Module.Path == "std") && first != "main" && first != "command-line-arguments"
}

// sameModule tells whether a package belongs to the module of the one that is checked.
func (p *pass) sameModule(pkg *types.Package) bool {
	if pkg == nil {
		return false
	}
	if p.Module != nil && p.Module.Path != "" {
		return under(pkg.Path(), p.Module.Path)
	}
	own, _, _ := strings.Cut(p.Pkg.Path(), "/")
	other, _, _ := strings.Cut(pkg.Path(), "/")
	return own == other
}

// find notes what breaks a rule.
func (p *pass) find(rule Rule, pos token.Pos, format string, args ...any) {
	if rule != p.disabled {
		p.findings = append(p.findings, finding{rule, pos, fmt.Sprintf(format, args...)})
	}
}

// report tells the findings that no allowance covers, in the order of the source, each once.
func (p *pass) report() {
	kept := slices.DeleteFunc(p.findings, func(f finding) bool { return f.rule != Allowance && p.allow(f.rule, f.pos) })
	kept = append(kept, p.unusedAllowances()...)
	slices.SortStableFunc(kept, func(a, b finding) int { return int(a.pos) - int(b.pos) })
	for _, f := range slices.Compact(kept) {
		p.Report(analysis.Diagnostic{Pos: f.pos, Category: string(f.rule), Message: string(f.rule) + ": " + f.text})
	}
}

// ofLockpkg tells whether a type is the one of that name in lockorder, or a pointer to it.
func (s *settings) ofLockpkg(t types.Type, name string) bool {
	t = types.Unalias(t)
	if ptr, ok := t.(*types.Pointer); ok {
		t = types.Unalias(ptr.Elem())
	}
	named, ok := t.(*types.Named)
	return ok && named.Obj().Name() == name && pathOf(named.Obj()) == s.lockpkg
}

// inTransaction tells whether functions of a signature run inside a transaction: they are given it, or what is handed to its
// opening.
func (s *settings) inTransaction(t types.Type) bool {
	sig, ok := t.Underlying().(*types.Signature)
	if !ok {
		return false
	}
	for v := range sig.Params().Variables() {
		if s.ofLockpkg(v.Type(), "Tx") || s.ofLockpkg(v.Type(), "Handed") {
			return true
		}
	}
	return false
}
