package lockorder

import (
	"fmt"
	"iter"
	"strings"

	"github.com/jackc/pgx/v5"
)

// controlWords begin the statements that only Run may send, or that change what the transaction stands on.
var controlWords = set("BEGIN START COMMIT END ROLLBACK ABORT SAVEPOINT RELEASE PREPARE SET RESET DISCARD DEALLOCATE LOCK CALL DO")

// readWords begin the statements that a Reader sends; writeWords occur in none of them.
var (
	readWords  = set("SELECT WITH VALUES TABLE SHOW EXPLAIN")
	writeWords = set("INSERT UPDATE DELETE MERGE TRUNCATE")
)

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}

// checkStatement refuses a text in which any statement would control the transaction. A text without arguments may hold
// several.
func checkStatement(sql string) error {
	single := strings.IndexByte(sql, ';') < 0
	for word, first := range words(sql) {
		if first && controlWords[strings.ToUpper(word)] {
			return fmt.Errorf("lockorder: %w: %s would control the transaction", ErrForbidden, strings.ToUpper(word))
		}
		if single {
			break
		}
	}
	return nil
}

// checkRead refuses a text that does not only read. A function that writes is not seen; those of the schema ask for
// the rendezvous.
func checkRead(sql string) error {
	for word, first := range words(sql) {
		word = strings.ToUpper(word)
		if first && !readWords[word] || writeWords[word] {
			return fmt.Errorf("lockorder: %w: %s: a Reader only reads; open a transaction with Run", ErrForbidden, word)
		}
	}
	return nil
}

// checkLockless refuses a text of more than one statement, and one that spells a lock which could wait. A function
// that locks is not seen.
func checkLockless(sql string) error {
	if err := checkStatement(sql); err != nil {
		return err
	}
	last, begun := "", false
	for word, first := range words(sql) {
		word = strings.ToUpper(word)
		switch {
		case first && begun:
			return fmt.Errorf("lockorder: %w: one statement at a time", ErrForbidden)
		case last == "FOR" && (word == "UPDATE" || word == "NO" || word == "SHARE" || word == "KEY"):
			return fmt.Errorf("lockorder: %w: FOR %s locks rows that nobody declared; take locks through the transaction", ErrForbidden, word)
		}
		last, begun = word, true
	}
	// Also within quotes, where an identifier may stand.
	if lower := strings.ToLower(sql); strings.Contains(lower, "pg_advisory") || strings.Contains(lower, "pg_try_advisory") {
		return fmt.Errorf("lockorder: %w: advisory keys are declared, or taken through the transaction", ErrForbidden)
	}
	return nil
}

// checkArguments refuses an argument that could put another statement in the place of the checked one.
func checkArguments(args []any) error {
	for _, a := range args {
		switch a.(type) {
		case pgx.NamedArgs, pgx.StrictNamedArgs:
		case pgx.QueryRewriter:
			return fmt.Errorf("lockorder: %w: a %T rewrites the statement", ErrForbidden, a)
		}
	}
	return nil
}

// words yields the bare words of a SQL text as they are written, each with whether it begins a statement. It passes over
// strings, quoted identifiers and comments, as PostgreSQL's lexer reads them with standard_conforming_strings.
func words(sql string) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		first := true
		for i := 0; i < len(sql); {
			rest := sql[i:]
			switch c := sql[i]; {
			case strings.HasPrefix(rest, "--"):
				i += lineEnd(rest)
			case strings.HasPrefix(rest, "/*"):
				i += commentEnd(rest)
			case c == '\'':
				first = false
				i += quoteEnd(rest, '\'', false)
			case c == '"':
				first = false
				i += quoteEnd(rest, '"', false)
			case c == '$':
				first = false
				i += dollarEnd(rest)
			case c == ';':
				first = true
				i++
			case isWordByte(c) && (c < '0' || c > '9'):
				n := 1
				for n < len(rest) && (isWordByte(rest[n]) || rest[n] == '$') {
					n++
				}
				if n == 1 && (c == 'e' || c == 'E') && n < len(rest) && rest[n] == '\'' {
					first = false
					i += n + quoteEnd(rest[n:], '\'', true)
					continue
				}
				if !yield(rest[:n], first) {
					return
				}
				first = false
				i += n
			case isWordByte(c): // a number; letters that touch it belong to it
				first = false
				for i < len(sql) && isWordByte(sql[i]) {
					i++
				}
			default: // blanks and parentheses may stand before the first word; no statement begins with another sign
				i++
			}
		}
	}
}

func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c >= 0x80
}

// lineEnd returns the length of the -- comment that s begins with.
func lineEnd(s string) int {
	if n := strings.IndexAny(s, "\r\n"); n >= 0 {
		return n
	}
	return len(s)
}

// commentEnd returns the length of the /* comment that s begins with. Such comments nest.
func commentEnd(s string) int {
	depth := 0
	for i := 0; i+1 < len(s); {
		switch s[i : i+2] {
		case "/*":
			depth++
			i += 2
		case "*/":
			depth--
			i += 2
			if depth == 0 {
				return i
			}
		default:
			i++
		}
	}
	return len(s)
}

// quoteEnd returns the length of the quoted text that s begins with. A doubled quote stands for one, and where
// backslashes escape, so does an escaped one.
func quoteEnd(s string, quote byte, backslash bool) int {
	for i := 1; i < len(s); i++ {
		switch {
		case backslash && s[i] == '\\':
			i++
		case s[i] == quote && i+1 < len(s) && s[i+1] == quote:
			i++
		case s[i] == quote:
			return i + 1
		}
	}
	return len(s)
}

// dollarEnd returns the length of the dollar-quoted text that s begins with, or of its $ alone where it is a parameter.
func dollarEnd(s string) int {
	n := 1
	for n < len(s) && isWordByte(s[n]) {
		n++
	}
	if n == len(s) || s[n] != '$' || s[1] >= '0' && s[1] <= '9' {
		return 1
	}
	tag := s[:n+1]
	if end := strings.Index(s[len(tag):], tag); end >= 0 {
		return len(tag) + end + len(tag)
	}
	return len(s)
}
