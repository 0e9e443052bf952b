package main

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/workflows/contract"
)

func newTierCommand(a *app) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "tier",
		Short: "Add, remove and reorder the tiers of ladders",
		Long: `Tiers are the products of a ladder, of which a pool uses one at a time, the highest. Changing them changes what who holds
them may use: each act shows that first, and asks. Pools are settled at once where there are 50 of them or fewer, and otherwise
one after another by the workflow of the change.`,
	})
	cmd.AddCommand(newTierAddCommand(a), newTierRemoveCommand(a), newTierDeleteCommand(a), newTierReorderCommand(a))
	return cmd
}

func newTierAddCommand(a *app) *cobra.Command {
	var ladder string
	var rank int
	cmd := &cobra.Command{
		Use:     "add PRODUCT --ladder LADDER [--rank N]",
		Short:   "Put a product on a ladder",
		Long:    "Puts a product on a ladder, on top or at a rank; the tiers from there on move up. Who holds the product then uses it only while it is the highest tier held.",
		Example: "  bursar tier add platinum --ladder membership\n  bursar tier add silver --ladder membership --rank 1 --dry-run",
		Args:    exactly("PRODUCT"),
	}
	flags := changeFlagsOf(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in := contract.TierAdd{Change: uuid.New(), Product: args[0], Ladder: ladder}
		switch {
		case ladder == "":
			return usagef(cmd, "--ladder is missing: one of those that 'bursar ladder list' shows")
		case cmd.Flags().Changed("rank") && rank < 0:
			return usagef(cmd, "--rank is %d; the least is 0, the floor", rank)
		case cmd.Flags().Changed("rank"):
			in.Rank = &rank
		}
		what := act{name: contract.ActTierAdd, input: in, object: ladder, summary: fmt.Sprintf("Add tier %s to %s", args[0], ladder)}
		return a.finishChange(cmd, flags, what, entitlements.AddTier(in), func(o *activities.Operator) (entitlements.Outcome, error) {
			return o.PreviewTierAdd(cmd.Context(), in)
		})
	}
	cmd.Flags().StringVar(&ladder, "ladder", "", "the ladder's slug")
	cmd.Flags().IntVar(&rank, "rank", 0, "its place, 0 for the floor (default: the top)")
	return cmd
}

func newTierRemoveCommand(a *app) *cobra.Command {
	var migrate, end bool
	var to string
	cmd := &cobra.Command{
		Use:   "remove PRODUCT --migrate [--to TIER] | --end",
		Short: "Take a product off its ladder, also one that is held",
		Long: `Takes a product off its ladder. Who holds it is migrated to another tier (the floor, unless --to names one), or holds
nothing in its place with --end. It stays so: a subscription that goes on being paid confers what stands in its place.`,
		Example: "  bursar tier remove silver --migrate --to gold\n  bursar tier remove silver --end --dry-run",
		Args:    exactly("PRODUCT"),
	}
	flags := changeFlagsOf(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in := contract.TierRemove{Change: uuid.New(), Product: args[0], To: to}
		switch {
		case migrate == end:
			return usagef(cmd, "say what becomes of who holds it: either --migrate or --end")
		case end && to != "":
			return usagef(cmd, "--to goes with --migrate")
		case migrate:
			in.Disposition = entitlements.DispositionMigrate
		default:
			in.Disposition = entitlements.DispositionEnd
		}
		what := act{name: contract.ActTierRemove, input: in, object: args[0], summary: "Remove tier " + args[0]}
		return a.finishChange(cmd, flags, what, entitlements.RemoveTier(in), func(o *activities.Operator) (entitlements.Outcome, error) {
			return o.PreviewTierRemove(cmd.Context(), in)
		})
	}
	cmd.Flags().BoolVar(&migrate, "migrate", false, "who holds it holds another tier instead")
	cmd.Flags().BoolVar(&end, "end", false, "who holds it holds nothing instead")
	cmd.Flags().StringVar(&to, "to", "", "the tier to migrate to (default: the floor)")
	return cmd
}

func newTierDeleteCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "delete PRODUCT",
		Short:   "Take a product that nobody holds off its ladder",
		Long:    "Takes a product off its ladder where no pool holds it. The product stays, and can be held beside the ladder.",
		Example: "  bursar tier delete silver",
		Args:    exactly("PRODUCT"),
	}
	flags := changeFlagsOf(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in := contract.TierRemove{Change: uuid.New(), Product: args[0]}
		what := act{name: contract.ActTierRemove, input: in, object: args[0], summary: "Delete tier " + args[0]}
		return a.finishChange(cmd, flags, what, entitlements.RemoveTier(in), func(o *activities.Operator) (entitlements.Outcome, error) {
			return o.PreviewTierRemove(cmd.Context(), in)
		})
	}
	return cmd
}

func newTierReorderCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "reorder LADDER PRODUCT…",
		Short:   "Put the tiers of a ladder into another order",
		Long:    "Puts the tiers of a ladder into the order given, the floor first. All of them are named.",
		Example: "  bursar tier reorder membership free silver gold",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usagef(cmd, "LADDER and all its tiers are needed, the floor first")
			}
			return nil
		},
	}
	flags := changeFlagsOf(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in := contract.TierReorder{Change: uuid.New(), Ladder: args[0], Products: args[1:]}
		what := act{name: contract.ActTierReorder, input: in, object: args[0], summary: fmt.Sprintf("Reorder %s: %s", args[0], strings.Join(args[1:], ", "))}
		return a.finishChange(cmd, flags, what, entitlements.ReorderTiers(in), func(o *activities.Operator) (entitlements.Outcome, error) {
			return o.PreviewTierReorder(cmd.Context(), in)
		})
	}
	return cmd
}
