package sqltext

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Finding is a place in an SQL file that locks or controls a transaction and is not allowed, or an allowance that is wrong.
type Finding struct {
	File string
	Line int // from 1
	// Rule is that of package lockordervet: lock-text, transaction or allowance.
	Rule string
	// Text says what was found and what mends it.
	Text string
}

// String is the finding as compilers write theirs: file:line: rule: text.
func (f Finding) String() string { return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Rule, f.Text) }

var (
	locking = regexp.MustCompile(`(?i)` + clause + `|\bpg_(?:try_)?advisory\w*|(?:^|;|\b(?:BEGIN|THEN|ELSE|LOOP)\s)\s*LOCK\s+(?:ONLY\s+)?[\w."]+`)
	// control is a statement that controls a transaction, outside the body of a function.
	control = regexp.MustCompile(`(?i)(?:^|;)\s*(BEGIN|START\s+TRANSACTION|SAVEPOINT|PREPARE\s+TRANSACTION|COMMIT|ROLLBACK)\b`)
)

const allowPrefix = "lockordervet:allow"

type allowance struct {
	rule string
	line int
	used bool
}

// Check reads one SQL file.
func Check(file, sql string) []Finding {
	s := scanSQL(sql)
	allowances, found := readAllowances(file, s.comments)
	note := func(rule string, code []byte, matches [][]int, format string) {
		for _, m := range matches {
			begin := m[0]
			for begin < m[1] && strings.IndexByte("; \t\r\n", code[begin]) >= 0 {
				begin++
			}
			line := 1 + strings.Count(sql[:begin], "\n")
			if i := slices.IndexFunc(allowances, func(a *allowance) bool { return a.rule == rule && (a.line == line || a.line == line-1) }); i >= 0 {
				allowances[i].used = true
				continue
			}
			words := strings.ToUpper(strings.Join(strings.Fields(string(code[begin:m[1]])), " "))
			found = append(found, Finding{file, line, rule, fmt.Sprintf(format, words)})
		}
	}
	note("lock-text", s.code, locking.FindAllIndex(s.code, -1),
		"%s locks outside the order: ask for the lock in Go, with the transaction's Lock, and read here what it guards; or say above it in -- "+allowPrefix+" lock-text REASON why it can wait for nobody")
	note("transaction", s.top, control.FindAllIndex(s.top, -1),
		"%s controls a transaction, which only lockorder does: leave it out")
	for _, a := range allowances {
		if !a.used {
			found = append(found, Finding{file, a.line, "allowance", "it allows nothing of the rule " + a.rule + " on this line or the next: take it out"})
		}
	}
	slices.SortStableFunc(found, func(a, b Finding) int { return a.Line - b.Line })
	return found
}

func readAllowances(file string, comments []comment) (allowances []*allowance, wrong []Finding) {
	for _, c := range comments {
		text, ok := strings.CutPrefix(c.text, allowPrefix)
		if !ok {
			continue
		}
		switch fields := strings.Fields(text); {
		case len(fields) == 0 || fields[0] != "lock-text" && fields[0] != "transaction":
			wrong = append(wrong, Finding{file, c.line, "allowance", "it names no rule: write " + allowPrefix + " RULE REASON, where RULE is lock-text or transaction"})
		case len(fields) == 1:
			wrong = append(wrong, Finding{file, c.line, "allowance", "it gives no reason: say after " + fields[0] + " why the rule does not matter here"})
		default:
			allowances = append(allowances, &allowance{rule: fields[0], line: c.line})
		}
	}
	return allowances, wrong
}

// Files reads every .sql file of a tree, but for folders named testdata and those that begin with a dot, and answers what it
// found in the order of the files; and how many files there were.
func Files(tree fs.FS) (found []Finding, files int, err error) {
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := path.Base(name); name != "." && (base == "testdata" || strings.HasPrefix(base, ".")) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".sql" {
			return nil
		}
		sql, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		files++
		found = append(found, Check(name, string(sql))...)
		return nil
	})
	return found, files, err
}
