package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/catalog"
	"github.com/bursarhq/bursar/lockorder"
)

func newCatalogCommand(a *app) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "catalog",
		Short: "Say what is sold and what it entitles to",
		Long:  "The catalogue: resource keys, sets of rules, products, ladders, organisation types, and which Stripe prices stand for which product.",
	})
	cmd.AddCommand(newCatalogApplyCommand(a))
	return cmd
}

type catalogApply struct {
	yes, dryRun, json bool
}

func newCatalogApplyCommand(a *app) *cobra.Command {
	var o catalogApply
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Make the catalogue what a file says",
		Long: `Shows what the file would change, also in the entitlements of those who hold it already, asks, and applies
it in one transaction. Applied again it changes nothing.

What the file names is described whole: a rule, set or tier that it does not list is taken away. What it does not
name stays as it is. A change that reaches more than ` + fmt.Sprint(entitlements.SyncCap) + ` pools is refused.

  resource_keys:
    - {key: storage.gigabytes, kind: numeric, aggregation: sum, window: none, description: …}
    - {key: support.phone, kind: boolean}
  sets:
    - {id: gold, name: Gold, rules: {storage.gigabytes: 100, support.phone: true}}
  products:
    - {id: gold, name: Gold membership, sets: [gold], stripe: {prices: [price_…], products: [prod_…]}}
  ladders:
    - {id: membership, name: Membership, tiers: [free, silver, gold]}     # the floor first
  organization_types:
    - {id: club, name: Club, default: free}`,
		Example: `  bursar catalog apply catalog.yaml
  bursar catalog apply catalog.yaml --dry-run
  generate-catalog | bursar catalog apply - --yes`,
		Args: exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.yes && o.dryRun:
				return usagef(cmd, "--yes applies and --dry-run does not: give one of them")
			case o.json && !o.yes && !o.dryRun:
				return usagef(cmd, "--json asks nothing, so it needs --yes or --dry-run")
			}
			return a.applyCatalog(cmd.Context(), args[0], o)
		},
	}
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "apply without asking")
	cmd.Flags().BoolVarP(&o.dryRun, "dry-run", "n", false, "show what would change and apply nothing")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the difference as JSON")
	return cmd
}

func (a *app) applyCatalog(ctx context.Context, path string, o catalogApply) error {
	name, data, err := a.readFile(path)
	if err != nil {
		return err
	}
	file, err := catalog.Parse(name, data)
	if err != nil {
		return err
	}
	db, err := a.openDB(ctx)
	if err != nil {
		return err
	}
	preview, err := catalog.Plan(ctx, db, file)
	if err != nil {
		return err
	}
	if !o.json {
		a.printPreview(preview)
	}
	apply := o.yes && len(preview.Changes) > 0
	if !o.yes && !o.dryRun && len(preview.Changes) > 0 {
		if apply, err = a.ask(path, "Apply this?"); err != nil {
			return err
		}
		if !apply {
			return errors.New("not applied; nothing was changed")
		}
	}
	if apply {
		if preview, err = catalog.Apply(ctx, db, file, preview); err != nil {
			return err
		}
	}
	if o.json {
		return a.printJSON(struct {
			Applied bool `json:"applied"`
			catalog.Preview
		}{apply, preview})
	}
	switch {
	case apply:
		return a.printApplied(ctx, db, preview)
	case len(preview.Changes) > 0:
		fmt.Fprintln(a.out, "This was a dry run; nothing was changed.")
	}
	return nil
}

// readFile reads a file, or the standard input for "-", and returns the name it goes by in messages.
func (a *app) readFile(path string) (name string, data []byte, err error) {
	if path == "-" {
		data, err = io.ReadAll(a.in)
		return "(standard input)", data, err
	}
	data, err = os.ReadFile(path)
	return path, data, err
}

// ask asks for a yes. Where nobody can be asked it fails.
func (a *app) ask(path, question string) (bool, error) {
	if path == "-" || !a.interactive() {
		return false, errors.New("nobody can be asked here, since the standard input is no terminal; nothing was changed: give --yes to do it without being asked")
	}
	fmt.Fprintf(a.out, "%s [y/N] ", question)
	answer, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}

func (a *app) printPreview(p catalog.Preview) {
	if len(p.Changes) == 0 {
		fmt.Fprintln(a.out, "Nothing to change: the catalogue is as the file says.")
	}
	for _, c := range p.Changes {
		mark, colour := "+", text.FgGreen
		switch c.Op {
		case entitlements.Changed:
			mark, colour = "~", text.FgYellow
		case entitlements.Removed:
			mark, colour = "-", text.FgRed
		}
		line := fmt.Sprintf("%s %s %s%s", mark, c.Object, c.Name, describeChange(c))
		if a.colourful() {
			line = colour.Sprint(line)
		}
		fmt.Fprintln(a.out, line)
	}
	a.printLeft(p.Left)
	if len(p.Changes) == 0 {
		return
	}
	fmt.Fprintln(a.out)
	switch {
	case p.Pools == 0:
		fmt.Fprintln(a.out, "It reaches no pool: nobody holds what changes.")
	case len(p.Effects) == 0:
		fmt.Fprintf(a.out, "It reaches %s and changes no entitlement in them.\n", plural(p.Pools, "pool"))
	default:
		fmt.Fprintf(a.out, "It reaches %s; entitlements change in %d of them:\n\n", plural(p.Pools, "pool"), len(p.Effects))
		t := tableWriter("ORGANISATION", "POOL", "KEY", "FROM", "TO")
		for _, e := range p.Effects {
			for _, c := range e.Changes {
				t.AppendRow(table.Row{e.Organization, e.Pool, c.Key, c.From, c.To})
			}
		}
		render(a.out, t)
	}
	if p.Moved > 0 {
		fmt.Fprintf(a.out, "Moved to another product, because the mapping of what is paid for changes: %s.\n", plural(p.Moved, "position"))
	}
	fmt.Fprintln(a.out)
}

func describeChange(c entitlements.Change) string {
	switch {
	case c.What == "":
		return fmt.Sprintf(" (%s)", c.To)
	case c.Op == entitlements.Added:
		return fmt.Sprintf(": %s %s", c.What, c.To)
	case c.Op == entitlements.Removed:
		return fmt.Sprintf(": %s, which was %s", c.What, c.From)
	}
	return fmt.Sprintf(": %s %s → %s", c.What, c.From, c.To)
}

func (a *app) printLeft(left []catalog.Left) {
	for i := 0; i < len(left); {
		j := i
		var names []string
		for ; j < len(left) && left[j].Object == left[i].Object; j++ {
			names = append(names, left[j].Name)
		}
		fmt.Fprintf(a.out, "Not in the file, left as is: %s %s\n", left[i].Object, strings.Join(names, ", "))
		i = j
	}
}

func (a *app) printApplied(ctx context.Context, db *lockorder.DB, p catalog.Preview) error {
	fmt.Fprintf(a.out, "Applied: %s, %s settled.\n", plural(len(p.Changes), "change"), plural(p.Pools, "pool"))
	due, err := billing.ListDue(ctx, db.Reader(), billing.ParkedKey{}, billing.PageSize)
	if err != nil {
		return fmt.Errorf("the change stands, but what it frees could not be read: %w", err)
	}
	if n := len(due); n > 0 {
		more := ""
		if n == billing.PageSize {
			more = " or more"
		}
		fmt.Fprintf(a.out, "%s%s can go on now and will be tried again by the worker shortly.\n", plural(n, "parked object"), more)
	}
	return nil
}
