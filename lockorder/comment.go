package lockorder

import (
	"net/url"
	"strings"
)

// A statement that waits carries a comment, so that who looks at pg_stat_activity sees what it waits for; a row that is
// waited for shows nowhere else. Its form is fixed:
//
//	/* lockorder: <class>[:<part>]… path=<path> */
//
// Each part of the identity, and the path, is written as url.QueryEscape writes it: no sign is left in it that could end
// the comment or a part, and it is read back as it was.
const (
	commentStart = "/* lockorder: "
	commentPath  = " path="
	commentEnds  = " */"
)

// waitComment is the comment of a statement that waits for a lock.
func waitComment(l Lock, path string) string {
	var b strings.Builder
	b.WriteString(commentStart)
	b.WriteString(l.class.Name)
	for _, p := range l.parts {
		b.WriteByte(':')
		b.WriteString(url.QueryEscape(p))
	}
	b.WriteString(commentPath)
	b.WriteString(url.QueryEscape(path))
	b.WriteString(commentEnds + " ")
	return b.String()
}

// ParseWaitComment reads, from the query of a statement that waits (pg_stat_activity.query), which lock it waits for and
// on which path. It answers false for a statement of anybody else, and for one that the server has cut off within the
// comment, at its track_activity_query_size.
func ParseWaitComment(query string) (class string, identity []string, path string, ok bool) {
	text, ok := strings.CutPrefix(query, commentStart)
	if !ok {
		return "", nil, "", false
	}
	if text, _, ok = strings.Cut(text, commentEnds); !ok {
		return "", nil, "", false
	}
	lock, path, ok := strings.Cut(text, commentPath)
	if !ok {
		return "", nil, "", false
	}
	parts := strings.Split(lock, ":")
	for i, p := range append(parts, path) {
		p, err := url.QueryUnescape(p)
		switch {
		case err != nil:
			return "", nil, "", false
		case i < len(parts):
			parts[i] = p
		default:
			path = p
		}
	}
	if parts[0] == "" {
		return "", nil, "", false
	}
	return parts[0], parts[1:], path, true
}
