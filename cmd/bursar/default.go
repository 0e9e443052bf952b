package main

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/workflows/contract"
)

func newDefaultCommand(a *app) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "default",
		Short: "Change what organisations hold while nothing else does",
		Long:  "The default of an organisation type is what its organisations hold while nothing else does: the floor. 'bursar org types' lists them.",
	})
	cmd.AddCommand(newDefaultChangeCommand(a))
	return cmd
}

func newDefaultChangeCommand(a *app) *cobra.Command {
	var none bool
	var incumbents string
	cmd := &cobra.Command{
		Use:   "change TYPE PRODUCT | --none",
		Short: "Give an organisation type another default",
		Long: `Saves the default, then settles every organisation of the type, one after another. Three sorts are met: those whose ladder is
vacant get the new default; those that hold another default are migrated to the new one, or keep the old one as a grant
without an end (--incumbents grandfather); those that hold something on the new default's ladder keep that.`,
		Example: "  bursar default change club silver --dry-run\n  bursar default change club silver --incumbents grandfather",
		Args:    between(1, "TYPE", "PRODUCT"),
	}
	flags := changeFlagsOf(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in := contract.DefaultChange{Change: uuid.New(), Type: args[0], Incumbents: incumbents}
		switch {
		case none == (len(args) == 2):
			return usagef(cmd, "name the new default, or give --none for no default")
		case len(args) == 2:
			in.Product = args[1]
		}
		save := entitlements.SaveDefault(in)
		if err := save.Check(); err != nil {
			return usagef(cmd, "%w", err)
		}
		if err := flags.check(cmd); err != nil {
			return err
		}
		ctx := cmd.Context()
		db, err := a.openDB(ctx)
		if err != nil {
			return err
		}
		// Also where nothing is shown: what would be refused is told before anything starts.
		b, err := save.Preview(ctx, db.Reader())
		switch {
		case err != nil:
			return err
		case flags.dryRun && flags.json:
			return a.printJSON(b)
		}
		if flags.dryRun || !flags.yes {
			a.printBuckets(save, b)
			if flags.dryRun {
				fmt.Fprintln(a.out, "Nothing was changed.")
				return nil
			}
			if agreed, err := a.confirm("Do this?", false); err != nil || !agreed {
				return err
			}
		}
		what := act{name: contract.ActDefaultChange, input: in, object: args[0], summary: fmt.Sprintf("Change the default of %s to %s", args[0], orNone(in.Product))}
		return a.makeChange(ctx, what, flags)
	}
	cmd.Flags().BoolVar(&none, "none", false, "no default")
	cmd.Flags().StringVar(&incumbents, "incumbents", entitlements.IncumbentsMigrate, "what becomes of who holds another default: migrate or grandfather")
	return cmd
}

// printBuckets shows what a new default finds, and what becomes of it.
func (a *app) printBuckets(save entitlements.SaveDefault, b entitlements.Buckets) {
	fmt.Fprintf(a.out, "The default of %s becomes %s.\n\n", save.Type, orNone(save.Product))
	become := fmt.Sprintf("hold %s instead", orNone(save.Product))
	if save.Incumbents == entitlements.IncumbentsGrandfather {
		become = "keep that, as a grant without an end"
	}
	t := tableWriter("ORGANISATIONS THAT HOLD", "", "WHAT BECOMES OF THEM")
	t.AppendRow([]any{"another default", b.Incumbents, become})
	if save.Product != "" {
		t.AppendRow([]any{"nothing on its ladder", b.Vacant, "get it"})
		t.AppendRow([]any{"it, or something on its ladder", b.Untouched, "are left as they are"})
	} else {
		t.AppendRow([]any{"no default", b.Vacant + b.Untouched, "are left as they are"})
	}
	render(a.out, t)
}

func orNone(product string) string {
	if product == "" {
		return "nothing"
	}
	return product
}
