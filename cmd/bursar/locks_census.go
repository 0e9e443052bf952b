package main

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/bursarhq/bursar/internal/lockpath"
	"github.com/bursarhq/bursar/lockorder"
)

func newLocksCensusCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "census [CLASS]",
		Short: "List every class of lock, and which paths take it",
		Long: `Lists the classes of locks in the order in which a transaction takes them: what tells one lock of a class from another, and the
paths that take it, with who runs them. With CLASS it tells all of one. It needs no database.`,
		Example: `  bursar locks census
  bursar locks census pool`,
		Args: between(0, "CLASS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			classes := lockorder.Classes()
			if len(args) == 1 {
				class, err := lockorder.ClassNamed(args[0])
				if err != nil {
					return usagef(cmd, "%s", strings.TrimPrefix(err.Error(), "lockorder: "))
				}
				classes = []*lockorder.Class{class}
			}
			counted := make([]censusJSON, len(classes))
			for i, c := range classes {
				counted[i] = census(c)
			}
			switch {
			case asJSON:
				return a.printJSON(counted)
			case len(args) == 1:
				lockPrinter{out: a.out, width: terminalWidth(a.out), colour: a.colourful()}.class(counted[0])
			default:
				printCensus(a, counted)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

// censusJSON is a class and who takes it, for a program.
type censusJSON struct {
	Class      string       `json:"class"`
	Rank       int          `json:"rank"`
	Kind       string       `json:"kind"`
	Identity   []string     `json:"identity"`
	Table      string       `json:"table,omitempty"`
	Mode       string       `json:"mode,omitempty"`
	Serializes string       `json:"serializes"`
	Why        string       `json:"why"`
	Paths      []censusPath `json:"paths"`
}

// censusPath is a path that takes locks of a class.
type censusPath struct {
	Name string   `json:"name"`
	Kind string   `json:"kind"`
	Of   string   `json:"of,omitempty"`
	When string   `json:"when,omitempty"`
	Does string   `json:"does"`
	By   []string `json:"by"`
}

// census collects what is known of a class.
func census(class *lockorder.Class) censusJSON {
	c := censusJSON{
		Class: class.Name, Rank: int(class.Rank), Identity: []string{}, Table: class.Table, Mode: class.Mode,
		Serializes: class.Serializes, Why: class.Why, Paths: []censusPath{},
	}
	c.Kind = map[lockorder.ClassKind]string{lockorder.Advisory: "key", lockorder.Row: "row", lockorder.Session: "key of a session"}[class.Kind]
	for _, part := range class.Identity {
		c.Identity = append(c.Identity, part.Name)
	}
	for _, p := range lockpath.All() {
		for _, step := range p.Steps() {
			if step.Class == class {
				c.Paths = append(c.Paths, censusPath{Name: p.Name, Kind: p.Kind.String(), Of: step.Of, When: step.When, Does: p.Does, By: p.By})
			}
		}
	}
	if class == lockorder.Migration { // no transaction's: it is outside the table of paths
		c.Paths = append(c.Paths, censusPath{Name: "migrate", Kind: "session", Does: "Applies the migrations that the database does not have.", By: []string{"bursar migrate"}})
	}
	return c
}

// mode says how a path takes the rendezvous, "" for any other lock.
func (c censusJSON) mode(p censusPath) string {
	switch {
	case c.Class != lockorder.Materialization.Name:
		return ""
	case p.Kind == lockorder.RuleChange.String():
		return ", exclusive"
	}
	return ", shared"
}

func (c censusJSON) identity() string {
	if len(c.Identity) == 0 {
		return "one for all"
	}
	return strings.Join(c.Identity, ", ")
}

func printCensus(a *app, classes []censusJSON) {
	t := tableWriter("RANK", "CLASS", "KIND", "ONE FOR EACH", "TAKEN ON THE PATHS")
	for _, c := range classes {
		paths := make([]string, len(c.Paths))
		for i, p := range c.Paths {
			paths[i] = fmt.Sprintf("%s%s: %s", p.Name, c.mode(p), strings.Join(p.By, ", "))
		}
		if len(paths) == 0 {
			paths = []string{"none yet"}
		}
		t.AppendRow(table.Row{fmt.Sprint(c.Rank), c.Class, c.Kind, c.identity(), strings.Join(paths, "\n")})
	}
	render(a.out, t)
}

// class prints all that is known of one class.
func (p lockPrinter) class(c censusJSON) {
	line := func(label, s string) { p.wrapped("", fmt.Sprintf("%-14s", label), s) }
	what := c.Kind
	if c.Table != "" {
		what = fmt.Sprintf("row of %s, %s", c.Table, c.Mode)
	}
	line(c.Class, fmt.Sprintf("rank %d, a %s", c.Rank, what))
	line("one for each", c.identity())
	line("keeps apart", c.Serializes)
	line("its place", c.Why)
	if len(c.Paths) == 0 {
		line("paths", "none yet")
	}
	for _, path := range c.Paths {
		fmt.Fprintln(p.out)
		p.wrapped("", "  ", path.Name+c.mode(path))
		p.wrapped("", "    ", path.Does)
		if path.Of+path.When != "" {
			p.wrapped("", "    ", strings.TrimSpace("Takes it "+strings.TrimSpace(path.Of+" "+path.When))+".")
		}
		p.wrapped("", "    ", "By "+strings.Join(path.By, ", ")+".")
	}
}
