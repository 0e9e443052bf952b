package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"github.com/bursarhq/bursar/internal/catalog"
	"github.com/bursarhq/bursar/lockorder"
)

// friendly returns an error's text for a person: without the names of transactions where the cause says it all.
func friendly(err error) string {
	var problems *catalog.Problems
	if errors.As(err, &problems) {
		many := "one problem"
		if n := len(problems.List); n > 1 {
			many = fmt.Sprintf("%d problems", n)
		}
		return fmt.Sprintf("%s in %s; nothing was changed\n%s", many, problems.File, problems.Error())
	}
	var tx *lockorder.Error
	if !errors.As(err, &tx) {
		return err.Error()
	}
	switch tx.Verdict {
	case lockorder.VerdictOther:
		if tx.Doing == "" {
			return tx.Err.Error()
		}
	case lockorder.VerdictBusy, lockorder.VerdictLockTimeout, lockorder.VerdictDeadlock, lockorder.VerdictSerialization, lockorder.VerdictConnection:
		return fmt.Sprintf("nothing was changed; try again (%v)", err)
	case lockorder.VerdictCommitUnknown:
		return fmt.Sprintf("the answer to COMMIT was lost, so this may or may not have been done; look before you try again (%v)", err)
	}
	return err.Error()
}

// printJSON prints a value for a program.
func (a *app) printJSON(v any) error {
	encoder := json.NewEncoder(a.out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// colourful says whether out is a terminal that may be given colours.
func (a *app) colourful() bool { return isTerminal(a.out) && a.getenv("NO_COLOR") == "" }

// grid is a table and the header of its last column.
type grid struct {
	table.Writer
	columns int
	last    string
}

// tableWriter returns an empty table in the style of all tables here: columns set apart by space, nothing else.
func tableWriter(header ...string) grid {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	row := make(table.Row, len(header))
	for i, h := range header {
		row[i] = h
	}
	t.AppendHeader(row)
	return grid{t, len(header), header[len(header)-1]}
}

// narrowest is the least that a last column is wrapped to.
const narrowest = 24

// render prints a table; where out is a terminal that is too narrow for it, with its last column wrapped.
func render(out io.Writer, g grid) { renderTo(out, g, terminalWidth(out)) }

func renderTo(out io.Writer, g grid, width int) {
	rendered := g.Render()
	if width > 0 && text.LongestLineLen(rendered) > width {
		header, _, _ := strings.Cut(rendered, "\n")
		before := text.StringWidth(header[:strings.LastIndex(header, g.last)])
		g.SetColumnConfigs([]table.ColumnConfig{{Number: g.columns, WidthMax: max(narrowest, width-before), WidthMaxEnforcer: wrapWords}})
		rendered = g.Render()
	}
	fmt.Fprintln(out, rendered)
}

// wrapWords wraps each line of a text at its blanks. A word that is too long stays whole, so that it can be copied.
func wrapWords(s string, width int) string {
	var out []string
	for line := range strings.SplitSeq(s, "\n") {
		for current := ""; ; {
			word, rest, more := strings.Cut(line, " ")
			switch {
			case current == "":
				current = word
			case text.StringWidth(current)+1+text.StringWidth(word) <= width:
				current += " " + word
			default:
				out = append(out, current)
				current = word
			}
			if line = rest; !more {
				out = append(out, current)
				break
			}
		}
	}
	return strings.Join(out, "\n")
}

// terminalWidth returns how many columns a terminal has, 0 for anything else.
func terminalWidth(out io.Writer) int { width, _ := terminalSize(out); return width }

// terminalHeight returns how many lines a terminal has, 0 for anything else.
func terminalHeight(out io.Writer) int { _, height := terminalSize(out); return height }

func terminalSize(out io.Writer) (width, height int) {
	f, ok := out.(*os.File)
	if !ok {
		return 0, 0
	}
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}

func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// plural returns "1 pool", "2 pools".
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
