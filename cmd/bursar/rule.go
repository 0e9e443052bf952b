package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/workflows/contract"
)

func newRuleCommand(a *app) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "rule",
		Short: "Change the rules of sets: what products entitle to",
		Long: `The rules of a set say what each product that carries it entitles to. A change reaches everybody who holds such a product: ` + fmt.Sprint(entitlements.SyncCap) + ` pools
or fewer are settled with it, more are owed and settled one after another by the workflow of the change.`,
	})
	cmd.AddCommand(newRuleListCommand(a), newRulePreviewCommand(a), newRuleChangeCommand(a), newRuleStatusCommand(a))
	return cmd
}

func newRuleListCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list SET",
		Short:   "List the rules of a set",
		Long:    "Lists what a set gives, by resource key. 'bursar set list' shows the sets.",
		Example: "  bursar rule list gold",
		Args:    exactly("SET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			db, err := a.openDB(cmd.Context())
			if err != nil {
				return err
			}
			set, err := entitlements.FindSet(cmd.Context(), db.Reader(), args[0])
			switch {
			case err != nil:
				return err
			case asJSON:
				return a.printJSON(set.Rules)
			case len(set.Rules) == 0:
				fmt.Fprintln(a.out, "It gives nothing.")
				return nil
			}
			t := tableWriter("KEY", "VALUE")
			for _, key := range slices.Sorted(maps.Keys(set.Rules)) {
				t.AppendRow([]any{key, set.Rules[key]})
			}
			render(a.out, t)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

// ruleArgs accepts a set and at least one rule.
func ruleArgs(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return usagef(cmd, "SET is missing: one of those that 'bursar set list' shows")
	case 1:
		return usagef(cmd, "what shall change? Give KEY=VALUE for what the set shall give, KEY- for what it shall give no more")
	}
	return nil
}

// parseRules reads SET KEY=VALUE… KEY-… as a change of a new id.
func parseRules(cmd *cobra.Command, args []string) (contract.RuleChange, error) {
	in := contract.RuleChange{Change: uuid.New(), Set: args[0]}
	for _, arg := range args[1:] {
		key, text, gives := strings.Cut(arg, "=")
		value, err := any(nil), error(nil)
		switch {
		case gives:
			value, err = parseRuleValue(text)
		case strings.HasSuffix(arg, "-"):
			key = strings.TrimSuffix(arg, "-")
		default:
			err = fmt.Errorf("it is neither KEY=VALUE nor KEY-")
		}
		if err == nil && key == "" {
			err = fmt.Errorf("it names no resource key")
		}
		if err != nil {
			return in, usagef(cmd, "%q: %w", arg, err)
		}
		raw, err := json.Marshal(value)
		if err != nil {
			return in, err
		}
		in.Deltas = append(in.Deltas, contract.RuleDelta{Key: key, Value: raw})
	}
	if _, err := activities.AlterRules(in); err != nil {
		return in, usagef(cmd, "%w", err)
	}
	return in, nil
}

func parseRuleValue(text string) (any, error) {
	switch text {
	case "yes", "true":
		return true, nil
	case "no", "false":
		return false, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%q is neither a whole number, nor yes or no", text)
	}
	return n, nil
}

// rulePreview is what a change would do, for a program.
type rulePreview struct {
	entitlements.RulePreview
	Effects []entitlements.PoolPreview `json:"effects"`
}

// validateRules says what would be refused, before anything starts.
func (a *app) validateRules(ctx context.Context, in contract.RuleChange) error {
	alter, err := activities.AlterRules(in)
	if err != nil {
		return err
	}
	db, err := a.openDB(ctx)
	if err != nil {
		return err
	}
	return alter.Validate(ctx, db.Reader())
}

// previewRules looks at every pool that the change reaches.
func (a *app) previewRules(ctx context.Context, in contract.RuleChange) (rulePreview, error) {
	alter, err := activities.AlterRules(in)
	if err != nil {
		return rulePreview{}, err
	}
	db, err := a.openDB(ctx)
	if err != nil {
		return rulePreview{}, err
	}
	p := rulePreview{Effects: []entitlements.PoolPreview{}}
	p.RulePreview, err = alter.Preview(ctx, db.Reader(), func(one entitlements.PoolPreview) error {
		p.Effects = append(p.Effects, one)
		return nil
	})
	return p, err
}

// printRulePreview shows at most so many of the pools; 0 is all of them.
func (a *app) printRulePreview(p rulePreview, most int) {
	fmt.Fprintln(a.out, p.Summary)
	switch {
	case p.Pools == 0:
		fmt.Fprintln(a.out, "It reaches no pool: nobody holds a product with the set.")
		return
	case p.Changed == 0:
		fmt.Fprintf(a.out, "It reaches %s and changes no entitlement in them.\n", plural(p.Pools, "pool"))
		return
	}
	how := "settled with it"
	if !p.AtOnce {
		how = "settled one after another once it is committed"
	}
	fmt.Fprintf(a.out, "It reaches %s, %s; entitlements change in %d of them:\n\n", plural(p.Pools, "pool"), how, p.Changed)
	shown := p.Effects
	if most > 0 && len(shown) > most {
		shown = shown[:most]
	}
	t := tableWriter("ORGANISATION", "POOL", "KEY", "FROM", "TO")
	for _, e := range shown {
		for _, c := range e.Changes {
			t.AppendRow([]any{e.Organization, e.Pool, c.Key, c.From, c.To})
		}
		if e.Problem != "" {
			t.AppendRow([]any{e.Organization, e.Pool, "", "", e.Problem})
		}
	}
	render(a.out, t)
	if n := len(p.Effects) - len(shown); n > 0 {
		fmt.Fprintf(a.out, "… and %s more; 'bursar rule preview' lists all.\n", plural(n, "pool"))
	}
	if p.Unsettled > 0 {
		fmt.Fprintf(a.out, "%s cannot be settled by it.\n", plural(p.Unsettled, "pool"))
	}
}

func newRulePreviewCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "preview SET {KEY=VALUE | KEY-}…",
		Short: "Show what a change of rules would do, pool by pool",
		Long: `Lists every pool in which an entitlement would change, from what to what, without changing anything and without holding anybody
up. What is held may change meanwhile.`,
		Example: "  bursar rule preview gold storage.gigabytes=200 support.phone-",
		Args:    ruleArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := parseRules(cmd, args)
			if err != nil {
				return err
			}
			p, err := a.previewRules(cmd.Context(), in)
			switch {
			case err != nil:
				return err
			case asJSON:
				return a.printJSON(p)
			}
			a.printRulePreview(p, 0)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

// confirmedPools is how many pools are shown before a change is confirmed.
const confirmedPools = 20

func newRuleChangeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "change SET {KEY=VALUE | KEY-}…",
		Short: "Change rules of a set",
		Long: `Shows what the change does to everybody who holds a product with the set, asks, and makes it: KEY=VALUE for what the set shall
give, KEY- for what it shall give no more. Where pools are left to be settled it follows their settling until all are, or are
parked: 'bursar parked' says why.`,
		Example: "  bursar rule change gold storage.gigabytes=200 support.phone-\n  bursar rule change gold storage.gigabytes=200 --dry-run",
		Args:    ruleArgs,
	}
	flags := changeFlagsOf(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		in, err := parseRules(cmd, args)
		if err == nil {
			err = flags.check(cmd)
		}
		if err != nil {
			return err
		}
		if err := a.validateRules(ctx, in); err != nil {
			return err
		}
		if flags.dryRun || !flags.yes {
			p, err := a.previewRules(ctx, in)
			switch {
			case err != nil:
				return err
			case flags.dryRun && flags.json:
				return a.printJSON(p)
			}
			a.printRulePreview(p, confirmedPools)
			if flags.dryRun {
				fmt.Fprintln(a.out, "Nothing was changed.")
				return nil
			}
			if agreed, err := a.confirm("Do this?", false); err != nil || !agreed {
				return err
			}
		}
		what := act{name: contract.ActRuleChange, input: in, object: in.Set, summary: "Change rules of set " + in.Set}
		return a.makeChange(ctx, what, flags)
	}
	return cmd
}
