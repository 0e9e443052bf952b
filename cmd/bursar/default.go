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
		ctx := cmd.Context()
		if flags.dryRun || !flags.yes {
			db, err := a.openDB(ctx)
			if err != nil {
				return err
			}
			b, err := save.Preview(ctx, db.Reader())
			switch {
			case err != nil:
				return err
			case flags.dryRun && flags.json:
				return a.printJSON(b)
			case !flags.json:
				fmt.Fprintf(a.out, "Vacant, and get it:           %d\nHold another default:         %d, %s\nHold something else there:    %d, untouched\n",
					b.Vacant, b.Incumbents, map[string]string{"migrate": "migrated", "grandfather": "grandfathered"}[incumbents], b.Untouched)
			}
			if flags.dryRun {
				fmt.Fprintln(a.out, "Nothing was changed.")
				return nil
			}
			if agreed, err := a.confirm("Do this?", false); err != nil || !agreed {
				return err
			}
		}
		what := act{name: contract.ActDefaultChange, input: in, object: args[0], summary: fmt.Sprintf("Change the default of %s to %s", args[0], orNone(in.Product))}
		return a.finishAct(ctx, what, flags.actFlags)
	}
	cmd.Flags().BoolVar(&none, "none", false, "no default")
	cmd.Flags().StringVar(&incumbents, "incumbents", entitlements.IncumbentsMigrate, "what becomes of who holds another default: migrate or grandfather")
	return cmd
}

func orNone(product string) string {
	if product == "" {
		return "nothing"
	}
	return product
}
