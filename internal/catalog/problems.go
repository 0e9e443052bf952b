package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

var (
	// ErrDrift is returned when the change is no longer the one that was shown.
	ErrDrift = errors.New("something changed since the difference was shown; nothing was changed: look at it again")
	errShown = errors.New("this was only a look")
)

// Problem is one thing wrong with a file.
type Problem struct {
	// Line is counted from 1.
	Line int
	// Text says what is wrong and what to do.
	Text string
}

// Problems is returned, as a pointer, with everything that is wrong with a file.
type Problems struct {
	File string
	List []Problem
}

func (p *Problems) Error() string {
	lines := make([]string, len(p.List))
	for i, one := range p.List {
		lines[i] = fmt.Sprintf("%s:%d: %s", p.File, one.Line, one.Text)
	}
	return strings.Join(lines, "\n")
}

// problems collects them.
type problems []Problem

func (p *problems) add(line int, format string, args ...any) {
	*p = append(*p, Problem{Line: line, Text: fmt.Sprintf(format, args...)})
}

// err returns the problems by line, or nil when there are none.
func (p problems) err(file string) error {
	if len(p) == 0 {
		return nil
	}
	list := slices.Clone(p)
	slices.SortStableFunc(list, func(a, b Problem) int { return a.Line - b.Line })
	return &Problems{File: file, List: slices.Compact(list)}
}
