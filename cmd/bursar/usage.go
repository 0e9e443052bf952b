package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/uuid"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/workflows/contract"
)

func newUsageCommand(a *app) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "usage",
		Short: "Show, spend and mend allowances",
		Long: `A numeric resource key is an allowance: what an organisation is entitled to can be used up, for good, or each day or month
(in UTC) where the key has such a window. These commands act on the organisation's default pool.`,
	})
	cmd.AddCommand(newUsageShowCommand(a), newUsageSpendCommand(a), newUsageReleaseCommand(a),
		newUsageAdjustCommand(a, "raise", contract.ActUsageRaise), newUsageAdjustCommand(a, "bound", contract.ActUsageBound))
	return cmd
}

func newUsageShowCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show ORG [KEY]",
		Short: "Show what is used and what is left",
		Long:  "Shows what an organisation has used and has left of each numeric resource key that it is entitled to or has used, in the present windows.",
		Example: `  bursar usage show acme
  bursar usage show acme builds --json`,
		Args: between(1, "ORG", "KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			db, err := a.openDB(ctx)
			if err != nil {
				return err
			}
			org, err := findOrganization(ctx, db.Reader(), args[0])
			if err != nil {
				return err
			}
			all, err := entitlements.Usage(ctx, db.Reader(), org.ID)
			if err != nil {
				return err
			}
			if len(args) > 1 {
				if err := entitlements.CheckCounter(ctx, db.Reader(), entitlements.Counter{Pool: org.DefaultPool, Key: args[1]}); err != nil {
					return err
				}
				all = slices.DeleteFunc(all, func(u entitlements.Allowance) bool { return u.Key != args[1] })
			}
			if asJSON {
				return a.printJSON(all)
			}
			if len(all) == 0 {
				fmt.Fprintf(a.out, "%s has no such allowance, and has used none.\n", org.Slug)
				return nil
			}
			printUsage(a, all)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

func printUsage(a *app, all []entitlements.Allowance) {
	several := slices.ContainsFunc(all, func(u entitlements.Allowance) bool { return u.PoolID != all[0].PoolID })
	t := tableWriter("KEY", "USED", "OF", "LEFT", "RENEWS")
	for _, u := range all {
		key, renews := u.Key, "never"
		if several {
			key += " (pool " + u.Pool + ")"
		}
		if !u.RenewsAt.IsZero() {
			renews = when(u.RenewsAt)
		}
		t.AppendRow(table.Row{key, u.Used, u.Limit, u.Left, renews})
	}
	render(a.out, t)
}

func newUsageSpendCommand(a *app) *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use:   "spend ORG KEY N [--id ID]",
		Short: "Take of what is left",
		Long: `Takes N of what is left of an allowance, or nothing where less is left. The spend's id is printed: with it the spend can be
tried again, which takes nothing where it was granted before, and released.`,
		Example: `  bursar usage spend acme builds 1
  bursar usage spend acme builds 20 --id release-2026-03`,
		Args: exactly("ORG", "KEY", "N"),
	}
	flags := actFlagsOf(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		n, err := count(cmd, "N", args[2], 1)
		if err != nil {
			return err
		}
		if id == "" {
			id = uuid.NewString()
		}
		if len([]rune(id)) > entitlements.MaxSpendID {
			return usagef(cmd, "--id has %d characters, and may have %d", len([]rune(id)), entitlements.MaxSpendID)
		}
		org, err := a.counterOf(cmd.Context(), args[0], args[1])
		if err != nil {
			return err
		}
		if !flags.json {
			fmt.Fprintf(a.out, "Spend %s\n", id)
		}
		return a.finishAct(cmd.Context(), act{
			name: contract.ActUsageSpend, input: contract.UsageSpend{Pool: org.DefaultPool, Key: args[1], ID: id, N: n},
			organization: org.Slug, object: args[1], summary: fmt.Sprintf("Spend %d of %s of %s", n, args[1], org.Slug),
		}, flags)
	}
	cmd.Flags().StringVar(&id, "id", "", "the spend's id, the same whenever it is tried again (default: a new one)")
	return cmd
}

func newUsageReleaseCommand(a *app) *cobra.Command {
	var id string
	var keep int64
	cmd := &cobra.Command{
		Use:   "release ORG KEY --id ID [--keep N]",
		Short: "Give back a spend",
		Long: `Gives back what a spend has taken, or with --keep what it has taken beyond that. It goes back to the window that it was taken
from; where that is over it cannot be spent again.`,
		Example: `  bursar usage release acme builds --id release-2026-03
  bursar usage release acme builds --id release-2026-03 --keep 12`,
		Args: exactly("ORG", "KEY"),
	}
	flags := actFlagsOf(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case id == "":
			return usagef(cmd, "--id is missing: the spend's, as 'bursar usage spend' prints it")
		case keep < 0:
			return usagef(cmd, "--keep is %d; the least is 0, which releases the whole", keep)
		}
		org, err := a.counterOf(cmd.Context(), args[0], args[1])
		if err != nil {
			return err
		}
		return a.finishAct(cmd.Context(), act{
			name: contract.ActUsageRelease, input: contract.UsageRelease{Pool: org.DefaultPool, Key: args[1], ID: id, Keep: keep},
			organization: org.Slug, object: args[1], summary: fmt.Sprintf("Release spend %s of %s of %s", id, args[1], org.Slug),
		}, flags)
	}
	cmd.Flags().StringVar(&id, "id", "", "the spend's id")
	cmd.Flags().Int64Var(&keep, "keep", 0, "how much of it stays spent")
	return cmd
}

// newUsageAdjustCommand is the raise and the bound.
func newUsageAdjustCommand(a *app, verb, name string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "raise ORG KEY N",
		Short:   "Make a counter at least what was measured",
		Long:    "Makes what is used of an allowance N at least. What was measured stands also where it exceeds the limit; nothing can be spent then.",
		Example: "  bursar usage raise acme storage.gigabytes 42",
		Args:    exactly("ORG", "KEY", "N"),
	}
	if name == contract.ActUsageBound {
		cmd.Use = "bound ORG KEY N"
		cmd.Short = "Make a counter at most what was counted"
		cmd.Long = "Makes what is used of an allowance N at most: it mends a counter that says more than there is. Spends stay remembered."
		cmd.Example = "  bursar usage bound acme seats 3"
	}
	flags := actFlagsOf(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		n, err := count(cmd, "N", args[2], 0)
		if err != nil {
			return err
		}
		org, err := a.counterOf(cmd.Context(), args[0], args[1])
		if err != nil {
			return err
		}
		return a.finishAct(cmd.Context(), act{
			name: name, input: contract.UsageAdjust{Pool: org.DefaultPool, Key: args[1], To: n},
			organization: org.Slug, object: args[1], summary: fmt.Sprintf("%s: %s of %s, %d", verb, args[1], org.Slug, n),
		}, flags)
	}
	return cmd
}

// counterOf finds the organisation, and refuses a key that does not exist or counts nothing.
func (a *app) counterOf(ctx context.Context, organization, key string) (entitlements.Organization, error) {
	db, err := a.openDB(ctx)
	if err != nil {
		return entitlements.Organization{}, err
	}
	org, err := findOrganization(ctx, db.Reader(), organization)
	if err != nil {
		return entitlements.Organization{}, err
	}
	return org, entitlements.CheckCounter(ctx, db.Reader(), entitlements.Counter{Pool: org.DefaultPool, Key: key})
}

// count reads a whole number from the least to the most that can be counted.
func count(cmd *cobra.Command, what, text string, least int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > entitlements.MaxNumber {
		return 0, usagef(cmd, "%s is %q; it takes a whole number from %d to %d", what, text, least, int64(entitlements.MaxNumber))
	}
	return n, nil
}
