package arch

import (
	"slices"
	"strings"
	"testing"
)

// rule forbids the packages under from, but for those under but, to import what is under to, but for what is under except.
// A package is named by its path in the module, "" being all of it, or by its full path; "/*" at the end means what is
// below it and not itself. A rule without from is one about the whole module.
type rule struct {
	why        string
	from, but  []string
	to, except []string
}

// under reports whether path is prefix or below it.
func under(path, prefix string) bool {
	if prefix == "" {
		return path == module || strings.HasPrefix(path, module+"/")
	}
	prefix, below := strings.CutSuffix(prefix, "/*")
	for _, p := range []string{prefix, module + "/" + prefix} {
		if path == p && !below || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}

func underAny(path string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return under(path, prefix) })
}

// broken answers the first import of a package that the rule forbids.
func (r rule) broken(p pkg) (imported string, is bool) {
	if r.from != nil && !underAny(p.ImportPath, r.from) || underAny(p.ImportPath, r.but) {
		return "", false
	}
	i := slices.IndexFunc(p.Imports, func(imp string) bool { return underAny(imp, r.to) && !underAny(imp, r.except) })
	if i < 0 {
		return "", false
	}
	return p.Imports[i], true
}

func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		for _, r := range rules() {
			if imported, is := r.broken(p); is {
				t.Errorf("%s imports %s: %s", p.name(), imported, r.why)
			}
		}
	}
}

// TestRulesBite plants each import that a rule forbids into each package that it is about, and looks that it is found, and that
// the packages it is not about may have it.
func TestRulesBite(t *testing.T) {
	full := func(name string) string {
		name = strings.Replace(name, "/*", "/anything", 1)
		switch first, _, _ := strings.Cut(name, "/"); {
		case name == "":
			return module + "/internal/anything"
		case strings.Contains(first, "."), slices.Contains(standard, name):
			return name
		}
		return module + "/" + name
	}
	for _, r := range rules() {
		if len(r.to) == 0 || len(r.why) < 20 {
			t.Errorf("the rule %q forbids nothing, or does not say why", r.why)
		}
		from := r.from
		if from == nil {
			from = []string{"internal/anything"}
		}
		for _, f := range from {
			for _, to := range r.to {
				p := pkg{ImportPath: full(f), Imports: []string{"context", full(to)}}
				if _, is := r.broken(p); !is {
					t.Errorf("%s may import %s, against the rule: %s", f, to, r.why)
				}
			}
		}
		for _, b := range r.but {
			if imported, is := r.broken(pkg{ImportPath: full(b), Imports: []string{full(r.to[0])}}); is {
				t.Errorf("%s may not import %s, though the rule is not about it: %s", b, imported, r.why)
			}
		}
		for _, e := range r.except {
			if imported, is := r.broken(pkg{ImportPath: full(from[0]), Imports: []string{full(e)}}); is {
				t.Errorf("%s may not import %s, though the rule excepts it: %s", from[0], imported, r.why)
			}
		}
	}
}

// TestRulesNameWhatExists keeps a rule from going on about a package that is gone: it would hold for nothing.
func TestRulesNameWhatExists(t *testing.T) {
	all := packages(t)
	exists := func(name string) bool {
		return slices.ContainsFunc(all, func(p pkg) bool { return under(p.ImportPath, name) })
	}
	for _, r := range rules() {
		for _, name := range slices.Concat(r.from, r.but) {
			if !exists(name) {
				t.Errorf("a rule is about %s, which does not exist: %s", name, r.why)
			}
		}
		for _, name := range slices.Concat(r.to, r.except) {
			if first, _, _ := strings.Cut(name, "/"); !strings.Contains(first, ".") && !slices.Contains(standard, name) && !exists(name) {
				t.Errorf("a rule forbids %s, which does not exist: %s", name, r.why)
			}
		}
	}
}
