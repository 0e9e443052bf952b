package sqltext

import (
	"regexp"
	"strings"
)

// advisory is the name of a function that takes an advisory lock, or the beginning of one.
var advisory = regexp.MustCompile(`(?i)\bpg_(?:try_)?advisory\w*`)

// clause is what locks rows or tables. In lower case it is English as well ("wait for share"), so there it counts in SQL only.
const clause = `\bFOR\s+(?:NO\s+KEY\s+UPDATE|UPDATE|KEY\s+SHARE|SHARE)\b|\bLOCK\s+TABLE\b`

var (
	upperClause = regexp.MustCompile(clause)
	anyClause   = regexp.MustCompile(`(?i)` + clause)
	// query tells SQL from English: a text that reads rows, or locks a table as a statement.
	query = regexp.MustCompile(`(?i)\bselect\b(?s:.*)\bfrom\b|(?:^|;)\s*lock\s+table\b`)
	// lockStatement is LOCK without TABLE, which may be left out.
	lockStatement = regexp.MustCompile(`(?i)(?:^|;)\s*LOCK\s+(?:ONLY\s+)?[\w."]+(?:\s*,\s*[\w."]+)*\s+IN\s+[A-Z ]+\s+MODE\b`)
)

// LockIn returns the words that lock in a text of a program, in one line, or "" where there are none.
func LockIn(text string) string {
	found := advisory.FindString(text)
	if found == "" {
		found = upperClause.FindString(text)
	}
	if found == "" && query.MatchString(text) {
		found = anyClause.FindString(text)
	}
	if found == "" {
		found = lockStatement.FindString(text)
	}
	return strings.Join(strings.Fields(strings.TrimLeft(found, "; \t\r\n")), " ")
}
