package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/bursarhq/bursar/entitlements"
)

func newGrantListCommand(a *app) *cobra.Command {
	var org string
	var states []string
	var overdue, all, asJSON bool
	cmd := &cobra.Command{
		Use:   "list [--org ORG] [--state STATE] [--overdue] [--all]",
		Short: "List grants",
		Long: `Lists the grants that are not over, the first issued first; with --state those in a state, with --all those that are over too.
With --overdue it lists those that should have begun or ended by now in the tables, and why they have not: reads give
nothing of what has ended in any case, and the sweep of every minute tries again.

  waiting    it has not conferred yet         extended  another grant goes on from it
  active     it confers                       expired   its time is over
  replaced   it has conferred, and is         revoked   it was ended by a person
             displaced now`,
		Example: `  bursar grant list --org acme
  bursar grant list --state waiting,replaced
  bursar grant list --overdue`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter := entitlements.GrantFilter{States: states, Overdue: overdue}
			switch {
			case all && len(states) > 0:
				return usagef(cmd, "--all lists every state, and --state some: give one of them")
			case !all && len(states) == 0:
				filter.States = []string{entitlements.GrantWaiting, entitlements.GrantActive, entitlements.GrantReplaced}
			}
			if err := filter.Check(); err != nil {
				return usagef(cmd, "%w", err)
			}
			ctx := cmd.Context()
			db, err := a.openDB(ctx)
			if err != nil {
				return err
			}
			if org != "" {
				found, err := findOrganization(ctx, db.Reader(), org)
				if err != nil {
					return err
				}
				filter.Organization = &found.ID
			}
			grants, err := entitlements.ListGrants(ctx, db.Reader(), filter)
			switch {
			case err != nil:
				return err
			case asJSON:
				return a.printJSON(grants)
			case len(grants) == 0:
				fmt.Fprintln(a.out, "There is no such grant.")
			case overdue:
				printOverdue(a.out, grants)
			default:
				printGrants(a.out, grants)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&org, "org", "", "only those of an organisation")
	cmd.Flags().StringSliceVar(&states, "state", nil, "only those in the states: "+strings.Join(entitlements.GrantStates(), ", "))
	cmd.Flags().BoolVar(&overdue, "overdue", false, "only those that the sweep should have begun or ended by now")
	cmd.Flags().BoolVar(&all, "all", false, "those that are over too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

func printGrants(out io.Writer, grants []entitlements.Grant) {
	t := tableWriter("GRANT", "ORGANISATION", "PRODUCT", "STATE", "FROM", "UNTIL", "NOTE")
	for _, g := range grants {
		t.AppendRow(table.Row{g.ID, orNobody(g.Organization), granted(g), g.State, when(g.StartsAt), untilOf(g), g.Note})
	}
	render(out, t)
}

func printOverdue(out io.Writer, grants []entitlements.Grant) {
	t := tableWriter("GRANT", "ORGANISATION", "PRODUCT", "STATE", "FROM", "UNTIL", "TRIES", "WHY NOT YET")
	for _, g := range grants {
		why := "no sweep has come by yet"
		if g.LastTriedAt != nil {
			why = fmt.Sprintf("%s (%s)", g.LastError, when(*g.LastTriedAt))
		}
		t.AppendRow(table.Row{g.ID, orNobody(g.Organization), granted(g), g.State, when(g.StartsAt), untilOf(g), g.Attempts, why})
	}
	render(out, t)
}

func granted(g entitlements.Grant) string {
	if g.Quantity > 1 {
		return fmt.Sprintf("%s × %d", g.Product, g.Quantity)
	}
	return g.Product
}

func untilOf(g entitlements.Grant) string {
	if g.EndsAt == nil {
		return "for ever"
	}
	return when(*g.EndsAt)
}

func newGrantShowCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "show GRANT",
		Short:   "Show a grant and its line: what was agreed when, by which act",
		Long:    "Shows all grants of the line that a grant belongs to, in their order, with the acts and workflows that made and closed each.",
		Example: "  bursar grant show 6f1c3c1e-8f0e-4d39-a2e5-0d7f5a0a9b11",
		Args:    exactly("GRANT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := grantID(cmd, args[0])
			if err != nil {
				return err
			}
			db, err := a.openDB(cmd.Context())
			if err != nil {
				return err
			}
			line, err := entitlements.GrantLine(cmd.Context(), db.Reader(), id)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(line)
			}
			for i, g := range slices.Backward(line) {
				printGrant(a.out, g)
				if i > 0 {
					fmt.Fprintln(a.out, "\nIt goes on from:")
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

func printGrant(out io.Writer, g entitlements.Grant) {
	fmt.Fprintf(out, "Grant %s\n  %s for %s, %s\n  from      %s\n  until     %s\n", g.ID, granted(g), orNobody(g.Organization), g.State, when(g.StartsAt), untilOf(g))
	by := g.IssuedAct
	if g.Origin != "operator" {
		by = g.Origin + ", " + by
	}
	fmt.Fprintf(out, "  issued    %s by %s%s\n", when(g.IssuedAt), by, ofWorkflow(g.IssuedWorkflow))
	if g.ConferredAt != nil {
		fmt.Fprintf(out, "  first     conferred %s\n", when(*g.ConferredAt))
	}
	if g.ClosedAt != nil {
		fmt.Fprintf(out, "  %-9s %s by %s%s\n", g.State, when(*g.ClosedAt), g.ClosedAct, ofWorkflow(g.ClosedWorkflow))
	}
	if g.Note != "" {
		fmt.Fprintf(out, "  note      %s\n", g.Note)
	}
	if g.Open() && g.LastTriedAt != nil {
		fmt.Fprintf(out, "  the sweep failed %s, at last %s: %s\n", plural(g.Attempts, "time"), when(*g.LastTriedAt), g.LastError)
	}
}

func ofWorkflow(id string) string {
	if id == "" {
		return ""
	}
	return " (workflow " + id + ")"
}
