package lockordervet

import (
	"go/token"
	"slices"
	"strings"
)

// allowance is a comment that allows the findings of one rule on its line or the next.
type allowance struct {
	rule Rule
	pos  token.Pos
	file string
	line int
	used bool
}

const allowPrefix = "//lockordervet:allow"

// readAllowances reads the allowances of the package, and finds those that lack a rule or a reason.
func (p *pass) readAllowances() {
	for _, f := range p.files {
		for _, group := range f.Comments {
			for _, c := range group.List {
				text, ok := strings.CutPrefix(c.Text, allowPrefix)
				if !ok {
					continue
				}
				text, _, _ = strings.Cut(text, " //") // a comment within the comment is no reason
				fields := strings.Fields(text)
				switch {
				case len(fields) == 0 || !slices.Contains(rules, Rule(fields[0])) || !strings.HasPrefix(text, " "):
					p.find(Allowance, c.Pos(), "names no rule: write %s RULE REASON, where RULE is one of %s", allowPrefix, ruleNames())
				case len(fields) == 1:
					p.find(Allowance, c.Pos(), "gives no reason: say after %s %s why the rule does not matter here", allowPrefix, fields[0])
				default:
					at := p.Fset.Position(c.Pos())
					p.allowances = append(p.allowances, &allowance{rule: Rule(fields[0]), pos: c.Pos(), file: at.Filename, line: at.Line})
				}
			}
		}
	}
}

func ruleNames() string {
	names := make([]string, len(rules))
	for i, r := range rules {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}

// allowed returns the allowance of a rule for a position, or nil.
func (p *pass) allowed(rule Rule, pos token.Pos) *allowance {
	at := p.Fset.Position(pos)
	for _, a := range p.allowances {
		if a.rule == rule && a.file == at.Filename && (a.line == at.Line || a.line == at.Line-1) {
			return a
		}
	}
	return nil
}

// allow tells whether a finding is allowed, and notes that the allowance was needed.
func (p *pass) allow(rule Rule, pos token.Pos) bool {
	a := p.allowed(rule, pos)
	if a != nil {
		a.used = true
	}
	return a != nil
}

// unusedAllowances finds the allowances that allowed nothing: what they were for is gone, or was never found.
func (p *pass) unusedAllowances() []finding {
	var unused []finding
	for _, a := range p.allowances {
		if !a.used && a.rule != p.disabled && p.disabled != Allowance {
			unused = append(unused, finding{Allowance, a.pos, "allows nothing of the rule " + string(a.rule) + " on this line or the next: take it out"})
		}
	}
	return unused
}
