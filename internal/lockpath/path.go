package lockpath

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/bursarhq/bursar/lockorder"
)

// Path is a way through the code that opens a transaction: one of a kind, with the locks that it may take.
type Path struct {
	// Name is unique and never reused: lower-case words with hyphens between.
	Name string
	// Area is the heading that the path stands under.
	Area Area
	// Kind is the transaction's. It implies the rendezvous, which Keys does not list.
	Kind lockorder.Kind
	// Keys are the advisory classes that it takes, Rows the classes of rows, both in the order of their ranks. Several locks of
	// one class are one step.
	Keys []Step
	Rows []Step
	// Does says in a sentence what the transaction does.
	Does string
	// By says who runs it: "activity ReconcileSubscription", "bursar org create".
	By []string
}

// Step is a class of which a path takes a lock, or several.
type Step struct {
	Class *lockorder.Class
	// Of says which locks of the class, where that is not plain: "of every pool that the change reaches".
	Of string
	// When says when the step is taken; empty where each run takes it.
	When string
}

// Area is what a path is about.
type Area string

// The areas, in the order in which they are shown.
const (
	Subscriptions Area = "Subscriptions"
	Customers     Area = "Customers"
	Parked        Area = "Parked work"
	Organizations Area = "Organisations"
	Catalogue     Area = "Catalogue"
	Ladders       Area = "Ladders and defaults"
	Rules         Area = "Rule changes and obligations"
	Grants        Area = "Grants"
	Usage         Area = "Usage"
)

// Areas returns the areas in the order in which they are shown.
func Areas() []Area {
	return []Area{Subscriptions, Customers, Parked, Organizations, Catalogue, Ladders, Rules, Grants, Usage}
}

// table is every path; path adds to it while the package's variables are made.
var table []Path

func path(p Path) Path {
	table = append(table, p)
	return p
}

// All returns every path, by area and name. The caller may change the list, not what it holds.
func All() []Path {
	all := slices.Clone(table)
	slices.SortFunc(all, func(a, b Path) int {
		return cmp.Or(cmp.Compare(slices.Index(Areas(), a.Area), slices.Index(Areas(), b.Area)), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// Named returns the path of that name, and whether there is one.
func Named(name string) (Path, bool) {
	i := slices.IndexFunc(table, func(p Path) bool { return p.Name == name })
	if i < 0 {
		return Path{}, false
	}
	return table[i], true
}

// Invented tells whether a name is one of those that tests make up for transactions of their own.
func Invented(name string) bool { return name == "test" || strings.HasPrefix(name, "test-") }

// Spec opens the path with the keys that are known beforehand, for (*lockorder.DB).Run.
func (p Path) Spec(keys ...lockorder.Lock) lockorder.Spec {
	return lockorder.Spec{Path: p.Name, Kind: p.Kind, Keys: keys}
}

// Steps returns all that the path may take, in order: the rendezvous where its kind has one, the keys, the rows.
func (p Path) Steps() []Step {
	var steps []Step
	if p.Kind == lockorder.Materializing || p.Kind == lockorder.RuleChange {
		steps = append(steps, Step{Class: lockorder.Materialization})
	}
	return append(append(steps, p.Keys...), p.Rows...)
}

var kebab = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// check says all that is wrong with a table of paths under an order of classes.
func check(paths []Path, rank func(*lockorder.Class) lockorder.Rank) (wrong []string) {
	seen := map[string]bool{}
	for _, p := range paths {
		complain := func(format string, args ...any) {
			wrong = append(wrong, fmt.Sprintf("path %s ", p.Name)+fmt.Sprintf(format, args...))
		}
		switch {
		case !kebab.MatchString(p.Name):
			complain("is not named in lower-case words with hyphens between")
		case seen[p.Name]:
			complain("is in the table twice; give one of them a name of its own")
		case Invented(p.Name):
			complain("has a name that is kept for tests; give it another")
		}
		seen[p.Name] = true
		if !slices.Contains(Areas(), p.Area) {
			complain("is in no area: %q", p.Area)
		}
		if p.Kind != lockorder.Plain && p.Kind != lockorder.Materializing && p.Kind != lockorder.RuleChange {
			complain("has no kind")
		}
		if p.Does == "" || !strings.HasSuffix(p.Does, ".") || len(p.By) == 0 {
			complain("does not say in a sentence what it does, or not who runs it")
		}
		steps := p.Steps()
		for i, s := range steps {
			if s.Class == nil {
				complain("has a step without a class")
				return wrong
			}
			if i == 0 || steps[i-1].Class == nil {
				continue
			}
			if before := steps[i-1].Class; rank(s.Class) <= rank(before) {
				complain("lists %s after %s, which ranks %d, not below %d: put them in the order of the ranks, and take them so",
					s.Class.Name, before.Name, rank(before), rank(s.Class))
			}
		}
		for _, s := range p.Keys {
			switch {
			case s.Class.Kind != lockorder.Advisory:
				complain("lists %s among its keys, which is no advisory class", s.Class.Name)
			case s.Class == lockorder.Materialization:
				complain("lists the rendezvous, which its kind implies")
			}
		}
		for _, s := range p.Rows {
			if s.Class.Kind != lockorder.Row {
				complain("lists %s among its rows, which is no class of rows", s.Class.Name)
			}
		}
	}
	return wrong
}
