package sqltext

import (
	"strings"
)

// scan is the text of an SQL file with everything blanked that is not run: comments and strings. Line breaks stay where they
// are. Bodies of functions, in dollar quotes, are run, and so may be the strings in them; they are told apart from the rest, since
// BEGIN means something else there.
type scan struct {
	code     []byte // everything that may run
	top      []byte // what is outside dollar quotes
	comments []comment
}

type comment struct {
	line int
	text string // without its marks
}

func scanSQL(sql string) scan {
	s := scan{code: blank(sql), top: blank(sql)}
	s.read(sql, 0, false)
	return s
}

// blank returns spaces of the length of a text, with its line breaks.
func blank(text string) []byte {
	out := make([]byte, len(text))
	for i := range out {
		if out[i] = ' '; text[i] == '\n' {
			out[i] = '\n'
		}
	}
	return out
}

// read reads the whole text from an offset on; body says that it is the inside of dollar quotes up to the end of sql.
func (s *scan) read(sql string, from int, body bool) {
	keep := func(i, j int) {
		copy(s.code[i:j], sql[i:j])
		if !body {
			copy(s.top[i:j], sql[i:j])
		}
	}
	for i := from; i < len(sql); {
		switch c := sql[i]; {
		case strings.HasPrefix(sql[i:], "--"):
			end := i + strings.IndexByte(sql[i:]+"\n", '\n')
			s.comments = append(s.comments, comment{1 + strings.Count(sql[:i], "\n"), strings.TrimSpace(sql[i+2 : end])})
			i = end
		case strings.HasPrefix(sql[i:], "/*"):
			i = commentEnd(sql, i)
		case c == '\'':
			escapes := i > 0 && (sql[i-1] == 'e' || sql[i-1] == 'E') && (i == 1 || !isWord(sql[i-2]))
			end := stringEnd(sql, i, escapes)
			if body && LockIn(strings.Trim(sql[i:end], "'")) != "" { // it may be a message as well, as far as its words tell
				copy(s.code[i:end], sql[i:end])
				s.code[i] = ';' // a statement may begin here
			}
			i = end
		case c == '"':
			end := stringEnd(sql, i, false)
			keep(i, end)
			i = end
		case c == '$' && (i == 0 || !isWord(sql[i-1])):
			tag := dollarTag(sql[i:])
			if tag == "" {
				keep(i, i+1)
				i++
				continue
			}
			inside := i + len(tag)
			end := strings.Index(sql[inside:], tag)
			if end < 0 {
				end = len(sql) - inside
			}
			s.read(sql[:inside+end], inside, true)
			i = min(inside+end+len(tag), len(sql))
		default:
			keep(i, i+1)
			i++
		}
	}
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// commentEnd returns where the comment at i ends: such comments nest.
func commentEnd(sql string, i int) int {
	depth := 0
	for i < len(sql) {
		switch {
		case strings.HasPrefix(sql[i:], "/*"):
			depth, i = depth+1, i+2
		case strings.HasPrefix(sql[i:], "*/"):
			if depth, i = depth-1, i+2; depth == 0 {
				return i
			}
		default:
			i++
		}
	}
	return len(sql)
}

// stringEnd returns where the string or quoted name at i ends. A doubled quote is one within it.
func stringEnd(sql string, i int, escapes bool) int {
	quote := sql[i]
	for i++; i < len(sql); i++ {
		switch {
		case escapes && sql[i] == '\\':
			i++
		case sql[i] == quote && i+1 < len(sql) && sql[i+1] == quote:
			i++
		case sql[i] == quote:
			return i + 1
		}
	}
	return len(sql)
}

// dollarTag returns the mark that opens a dollar quote at the beginning of a text, or "".
func dollarTag(sql string) string {
	for i := 1; i < len(sql); i++ {
		switch c := sql[i]; {
		case c == '$':
			return sql[:i+1]
		case !isWord(c), i == 1 && c >= '0' && c <= '9':
			return ""
		}
	}
	return ""
}
