package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/lockorder"
)

// What can be held: products, the ladders they are tiers of, and the sets they carry. These commands only read.

func newProductCommand(a *app) *cobra.Command {
	cmd := group(&cobra.Command{Use: "product", Short: "Show products: what they give and who holds them", Long: "Products are what an organisation can hold. They are made by 'bursar catalog apply'."})
	cmd.AddCommand(
		listCommand(a, "List products and where they sit", "bursar product list", func(ctx context.Context, q lockorder.Querier) (any, grid, error) {
			c, err := entitlements.LoadCatalogue(ctx, q)
			if err != nil {
				return nil, grid{}, err
			}
			names := slices.Sorted(maps.Keys(c.Products))
			holders, err := entitlements.Holders(ctx, q, c, names)
			if err != nil {
				return nil, grid{}, err
			}
			places := map[string]string{}
			for _, l := range c.Ladders {
				for rank, product := range l.Tiers {
					places[product] = fmt.Sprintf("tier %d of %s", rank, l.Slug)
				}
			}
			type row struct {
				Slug    string   `json:"slug"`
				Name    string   `json:"name"`
				Place   string   `json:"place,omitempty"`
				Sets    []string `json:"sets"`
				Holders int      `json:"holders"`
			}
			rows, t := make([]row, len(names)), tableWriter("PRODUCT", "NAME", "PLACE", "HOLDERS", "SETS")
			for i, name := range names {
				p := c.Products[name]
				rows[i] = row{p.Slug, p.Name, places[name], append([]string{}, p.Sets...), holders[name]}
				t.AppendRow([]any{p.Slug, p.Name, places[name], holders[name], strings.Join(p.Sets, ", ")})
			}
			return rows, t, nil
		}),
		showCommand(a, "PRODUCT", "Show a product", "bursar product show gold", entitlements.ViewProduct, func(a *app, p entitlements.ProductView) {
			fmt.Fprintf(a.out, "%s (%s)\n", p.Slug, p.Name)
			switch {
			case p.Ladder != "":
				fmt.Fprintf(a.out, "  tier %d of %s\n", p.Rank, p.Ladder)
			case p.Succeeded:
				fmt.Fprintf(a.out, "  its tier was removed; %s stands in its place\n", orNone(p.Successor))
			}
			if len(p.DefaultOf) > 0 {
				fmt.Fprintf(a.out, "  the default of %s\n", strings.Join(p.DefaultOf, ", "))
			}
			fmt.Fprintf(a.out, "  held by %s\n  carries %s\n\n", plural(p.Holders, "pool"), orNone(strings.Join(p.Sets, ", ")))
			printValues(a, p.Gives)
		}))
	return cmd
}

func newLadderCommand(a *app) *cobra.Command {
	cmd := group(&cobra.Command{Use: "ladder", Short: "Show ladders and their tiers", Long: "A ladder is an order of products of which a pool uses one at a time, the highest. 'bursar tier' changes them."})
	cmd.AddCommand(
		listCommand(a, "List ladders", "bursar ladder list", func(ctx context.Context, q lockorder.Querier) (any, grid, error) {
			c, err := entitlements.LoadCatalogue(ctx, q)
			if err != nil {
				return nil, grid{}, err
			}
			type row struct {
				Slug  string   `json:"slug"`
				Name  string   `json:"name"`
				Tiers []string `json:"tiers"`
			}
			rows, t := []row{}, tableWriter("LADDER", "NAME", "TIERS, THE FLOOR FIRST")
			for _, name := range slices.Sorted(maps.Keys(c.Ladders)) {
				l := c.Ladders[name]
				rows = append(rows, row{l.Slug, l.Name, append([]string{}, l.Tiers...)})
				t.AppendRow([]any{l.Slug, l.Name, strings.Join(l.Tiers, ", ")})
			}
			return rows, t, nil
		}),
		showCommand(a, "LADDER", "Show a ladder", "bursar ladder show membership", entitlements.ViewLadder, func(a *app, l entitlements.LadderView) {
			fmt.Fprintf(a.out, "%s (%s)\n\n", l.Slug, l.Name)
			t := tableWriter("RANK", "PRODUCT", "NAME", "HOLDERS", "DEFAULT OF")
			for _, tier := range slices.Backward(l.Tiers) {
				t.AppendRow([]any{tier.Rank, tier.Product, tier.Name, tier.Holders, tier.DefaultOf})
			}
			render(a.out, t)
		}))
	return cmd
}

func newSetCommand(a *app) *cobra.Command {
	cmd := group(&cobra.Command{Use: "set", Short: "Show entitlement sets and their rules", Long: "A set is a bundle of rules that products carry. 'bursar rule change' changes its rules."})
	cmd.AddCommand(
		listCommand(a, "List sets", "bursar set list", func(ctx context.Context, q lockorder.Querier) (any, grid, error) {
			c, err := entitlements.LoadCatalogue(ctx, q)
			if err != nil {
				return nil, grid{}, err
			}
			type row struct {
				Slug  string                        `json:"slug"`
				Name  string                        `json:"name"`
				Rules map[string]entitlements.Value `json:"rules"`
			}
			rows, t := []row{}, tableWriter("SET", "NAME", "RULES")
			for _, name := range slices.Sorted(maps.Keys(c.Sets)) {
				s := c.Sets[name]
				rows = append(rows, row{s.Slug, s.Name, s.Rules})
				t.AppendRow([]any{s.Slug, s.Name, values(s.Rules)})
			}
			return rows, t, nil
		}),
		showCommand(a, "SET", "Show a set", "bursar set show gold", entitlements.ViewSet, func(a *app, s entitlements.SetView) {
			fmt.Fprintf(a.out, "%s (%s)\n  carried by %s\n  held by %s\n\n", s.Slug, s.Name, orNone(strings.Join(s.Products, ", ")), plural(s.Pools, "pool"))
			printValues(a, s.Rules)
		}))
	return cmd
}

func values(rules map[string]entitlements.Value) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(rules)) {
		all = append(all, fmt.Sprintf("%s=%s", key, rules[key]))
	}
	return strings.Join(all, " ")
}

func printValues(a *app, rules map[string]entitlements.Value) {
	if len(rules) == 0 {
		fmt.Fprintln(a.out, "It gives nothing.")
		return
	}
	t := tableWriter("KEY", "VALUE")
	for _, key := range slices.Sorted(maps.Keys(rules)) {
		t.AppendRow([]any{key, rules[key]})
	}
	render(a.out, t)
}

// listCommand is a command that lists what read returns: as JSON, or as the table.
func listCommand(a *app, short, example string, read func(context.Context, lockorder.Querier) (any, grid, error)) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: short, Example: "  " + example, Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			db, err := a.openDB(cmd.Context())
			if err != nil {
				return err
			}
			rows, t, err := read(cmd.Context(), db.Reader())
			switch {
			case err != nil:
				return err
			case asJSON:
				return a.printJSON(rows)
			case t.Length() == 0:
				fmt.Fprintln(a.out, "There is none yet: bursar catalog apply makes them.")
				return nil
			}
			render(a.out, t)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

// showCommand is a command that shows the one thing that its argument names.
func showCommand[T any](a *app, what, short, example string, view func(context.Context, lockorder.Querier, string) (T, error), show func(*app, T)) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show " + what, Short: short, Example: "  " + example, Args: exactly(what),
		RunE: func(cmd *cobra.Command, args []string) error {
			db, err := a.openDB(cmd.Context())
			if err != nil {
				return err
			}
			one, err := view(cmd.Context(), db.Reader(), args[0])
			switch {
			case err != nil:
				return err
			case asJSON:
				return a.printJSON(one)
			}
			show(a, one)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}
