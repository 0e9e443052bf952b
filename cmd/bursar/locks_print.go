package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/bursarhq/bursar/internal/lockview"
)

// lockPrinter prints locks for a person, wrapped to a width; 0 is as wide as it takes.
type lockPrinter struct {
	out    io.Writer
	width  int
	colour bool
}

const (
	// mostHeld is how many locks of one session are listed.
	mostHeld = 8
	// manyWait is how many may wait for one session before those that nobody waits for are told in one line each.
	manyWait = 4
)

func (p lockPrinter) paint(s string, colours ...text.Color) string {
	if !p.colour || s == "" {
		return s
	}
	return text.Colors(colours).Sprint(s)
}

// snapshot prints the chains, what else is held, and the notes.
func (p lockPrinter) snapshot(s lockview.Snapshot, org string) {
	waiting, longest := s.Waiting()
	concern := ""
	if org != "" {
		concern = " of what concerns " + org
	}
	summary := ""
	switch {
	case len(s.Sessions) == 0:
		summary = "nobody holds a lock" + concern + ", and nobody waits"
	case waiting == 0:
		summary = sessions(len(s.Sessions)) + " with locks" + concern + ", and nobody waits"
	case waiting == 1:
		summary = fmt.Sprintf("%s with locks%s; one waits, for %s so far", sessions(len(s.Sessions)), concern, ago(longest))
	default:
		summary = fmt.Sprintf("%s with locks%s; %d wait, the longest for %s so far", sessions(len(s.Sessions)), concern, waiting, ago(longest))
	}
	fmt.Fprintf(p.out, "%s at %s: %s.\n", s.Database, when(s.At), summary)
	shown := map[int]bool{}
	for _, chain := range s.Chains {
		fmt.Fprintln(p.out)
		p.link(chain, s.At, nil, "", "", shown)
	}
	p.others(s, shown)
	for i, note := range s.Notes {
		if i == 0 {
			fmt.Fprintln(p.out)
		}
		p.wrapped("", "! ", note, text.FgYellow)
	}
}

func sessions(n int) string { return plural(n, "session") }

// link prints a session and, below it, who waits for it. before stands before its first line, rest before the others.
func (p lockPrinter) link(l *lockview.Link, at time.Time, above *lockview.Link, before, rest string, shown map[int]bool) {
	shown[l.PID] = true
	if l.Waits != nil {
		what := "waits"
		if l.Waits.Queued {
			what = "stands in the queue"
		}
		p.wrapped(before, "", fmt.Sprintf("%s %s for %s", what, waited(l.Waits), l.Waits.For), text.FgYellow)
		before = rest
	}
	if l.Deadlock {
		p.wrapped(rest, "", "a deadlock: it waits for somebody who waits for it; PostgreSQL ends one of them within its deadlock_timeout", text.FgRed)
	}
	p.wrapped(before, "", l.Name()+", "+processOf(l.Session), text.Bold)
	bar := rest + "  "
	if len(l.Behind) > 0 {
		bar = rest + "│ "
	}
	for i, held := range p.held(l) {
		label := "      "
		if i == 0 {
			label = "holds "
		}
		p.wrapped(bar, label, held)
	}
	if open := openFor(l.Session, at); open != "" {
		p.wrapped(bar, "open  ", open)
	}
	if above == nil && l.Statement != "" && l.Waits == nil {
		label := "runs  "
		if strings.HasPrefix(l.State, "idle") {
			label = "last  "
		}
		p.wrapped(bar, label, l.Statement, text.Faint)
	}
	if len(l.Also) > 0 {
		p.wrapped(bar, "also  ", "waits for "+pids(l.Also))
	}
	if l.Advice != "" {
		p.wrapped(bar, "→ ", l.Advice, text.FgCyan)
	}
	for i, b := range l.Behind {
		branch, under := "├─ ", "│  "
		if i == len(l.Behind)-1 {
			branch, under = "└─ ", "   "
		}
		if len(l.Behind) > manyWait && len(b.Behind) == 0 && !b.Deadlock {
			shown[b.PID] = true
			p.wrapped(rest+branch, "", fmt.Sprintf("waits %s for %s: %s, %s", waited(b.Waits), b.Waits.For, b.Name(), processOf(b.Session)))
			continue
		}
		p.link(b, at, l, rest+branch, rest+under, shown)
	}
}

// held lists what a session holds, what others wait for first.
func (p lockPrinter) held(l *lockview.Link) []string {
	var wanted, others []string
	for _, h := range l.Holds {
		if slices.ContainsFunc(l.Behind, func(b *lockview.Link) bool { return b.Waits != nil && b.Waits.For.Same(h) }) {
			wanted = append(wanted, h.String())
		} else {
			others = append(others, h.String())
		}
	}
	all := append(wanted, others...)
	if len(all) > mostHeld {
		more := len(all) - mostHeld + 1
		all = append(all[:mostHeld-1:mostHeld-1], fmt.Sprintf("and %d more; --json lists them", more))
	}
	return all
}

// others prints who holds locks that nobody waits for.
func (p lockPrinter) others(s lockview.Snapshot, shown map[int]bool) {
	t := tableWriter("PID", "WHO", "OPEN FOR", "HOLDS")
	n := 0
	for _, session := range s.Sessions {
		if shown[session.PID] {
			continue
		}
		n++
		holds := make([]string, len(session.Holds))
		for i, l := range session.Holds {
			holds[i] = l.String()
		}
		if len(holds) > mostHeld {
			holds = append(holds[:mostHeld-1:mostHeld-1], fmt.Sprintf("and %d more; --json lists them", len(session.Holds)-mostHeld+1))
		}
		open := ""
		if session.Since != nil {
			open = ago(s.At.Sub(*session.Since))
		}
		t.AppendRow(table.Row{fmt.Sprint(session.PID), session.Name(), open, strings.Join(holds, "\n")})
	}
	if n == 0 {
		return
	}
	fmt.Fprintln(p.out, "\nHeld, and nobody waits for it:")
	var rendered bytes.Buffer
	renderTo(&rendered, t, p.width)
	_, _ = p.out.Write(rendered.Bytes())
}

// wrapped prints a text after a prefix and a label, its further lines below its first. The prefix and the label stay
// uncoloured, so that the tree stands still.
func (p lockPrinter) wrapped(prefix, label, s string, colours ...text.Color) {
	width := 1 << 20
	if p.width > 0 {
		width = max(p.width-text.StringWidth(prefix)-text.StringWidth(label), narrowest)
	}
	under := strings.Repeat(" ", text.StringWidth(label))
	// A branch goes on as a line, an end as a blank.
	next := strings.NewReplacer("├─", "│ ", "└─", "  ").Replace(prefix)
	for i, line := range strings.Split(wrapWords(s, width), "\n") {
		if i > 0 {
			prefix, label = next, under
		}
		fmt.Fprintln(p.out, strings.TrimRight(prefix+label+p.paint(line, colours...), " "))
	}
}

// processOf is the process id, and of another application who is behind it.
func processOf(s *lockview.Session) string {
	if s.PID == 0 {
		return "of no process"
	}
	b := fmt.Sprintf("pid %d", s.PID)
	if s.Holder == nil {
		if s.User != "" {
			b += ", role " + s.User
		}
		if s.Client != "" {
			b += ", from " + s.Client
		}
	}
	return b
}

// openFor is since when its transaction is open, and what it does.
func openFor(s *lockview.Session, at time.Time) string {
	if s.Since == nil {
		return ""
	}
	open := fmt.Sprintf("%s, since %s", ago(at.Sub(*s.Since)), s.Since.UTC().Format("15:04:05Z"))
	if strings.HasPrefix(s.State, "idle") && s.Still != nil {
		open += fmt.Sprintf("; %s for %s", s.State, ago(at.Sub(*s.Still)))
	}
	if len(s.By) > 0 {
		open += "; " + strings.Join(s.By, ", ")
	}
	return open
}

func waited(w *lockview.Wait) string {
	if w.Since == nil {
		return "(just now)"
	}
	return ago(time.Duration(w.Seconds * float64(time.Second)))
}

func pids(list []int) string {
	texts := make([]string, 0, len(list))
	for i, pid := range list {
		if i == 10 {
			texts = append(texts, fmt.Sprintf("%d more", len(list)-i))
			break
		}
		texts = append(texts, fmt.Sprintf("pid %d", pid))
	}
	return strings.Join(texts, ", ")
}

// ago writes how long for a person.
func ago(d time.Duration) string { return lockview.Seconds(d) }
