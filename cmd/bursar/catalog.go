package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/catalog"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows"
	"github.com/bursarhq/bursar/workflows/contract"
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
name stays as it is. Where it reaches more than ` + fmt.Sprint(entitlements.SyncCap) + ` pools they are counted only, left owed, and settled one after
another by the workflow of the change.

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
	drain := ""
	if preview.Owed > 0 && apply {
		drain = a.startDrain(ctx, preview.Change)
	}
	if o.json {
		return a.printJSON(struct {
			Applied bool `json:"applied"`
			catalog.Preview
			Drain string `json:"drain,omitempty"`
		}{apply, preview, drain})
	}
	switch {
	case apply:
		return a.printApplied(ctx, db, preview, drain)
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
	case p.Owed > 0:
		fmt.Fprintf(a.out, "It reaches %s, too many to be settled with it: what changes in them is not shown, and they are settled one after another once it is committed.\n", plural(p.Pools, "pool"))
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

// drainStartWithin bounds how long the command tries to start a drain itself.
const drainStartWithin = 3 * time.Second

// startDrain starts the drain of a change where Temporal can be reached, and says how it is drained. The change stands either way,
// and the worker's schedule starts every drain that is missing.
func (a *app) startDrain(ctx context.Context, change string) string {
	ctx, cancel := context.WithTimeout(ctx, drainStartWithin)
	defer cancel()
	workflow := contract.RuleChangeDrainWorkflowID(change)
	c, err := a.openTemporal(ctx)
	if err == nil {
		err = workflows.Starter{Client: c}.StartDrain(ctx, change)
	}
	if err != nil {
		return fmt.Sprintf("Workflow %s settles them; it could not be started from here, so a running 'bursar worker' starts it within a minute.", workflow)
	}
	return fmt.Sprintf("Workflow %s settles them.", workflow)
}

func (a *app) printApplied(ctx context.Context, db *lockorder.DB, p catalog.Preview, drain string) error {
	if p.Owed > 0 {
		fmt.Fprintf(a.out, "Applied: %s, %s owed. %s 'bursar rule status %s' tells how far it is.\n", plural(len(p.Changes), "change"), plural(p.Owed, "pool"), drain, p.Change)
	} else {
		fmt.Fprintf(a.out, "Applied: %s, %s settled.\n", plural(len(p.Changes), "change"), plural(p.Pools, "pool"))
	}
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
