package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/lockorder"
)

// changeFlags are what the commands take that change what products give.
type changeFlags struct {
	*actFlags
	dryRun, noWait bool
}

func changeFlagsOf(cmd *cobra.Command) *changeFlags {
	f := &changeFlags{actFlags: actFlagsOf(cmd, true)}
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would change, and change nothing")
	cmd.Flags().BoolVar(&f.noWait, "no-wait", false, "do not follow the settling of what is owed")
	return f
}

// check says what is wrong with the flags together.
func (f *changeFlags) check(cmd *cobra.Command) error {
	if f.json && !f.yes && !f.dryRun {
		return usagef(cmd, "--json asks nothing, so it needs --yes or --dry-run")
	}
	return nil
}

// validator is a request that says what would be refused.
type validator interface {
	Validate(ctx context.Context, q lockorder.Querier) error
}

// finishChange shows what a change does, asks, and has it made. What would be refused is told before anything starts.
func (a *app) finishChange(cmd *cobra.Command, flags *changeFlags, what act, request validator, preview func(*activities.Operator) (entitlements.Outcome, error)) error {
	if err := flags.check(cmd); err != nil {
		return err
	}
	ctx := cmd.Context()
	db, err := a.openDB(ctx)
	if err != nil {
		return err
	}
	if err := request.Validate(ctx, db.Reader()); err != nil {
		return err
	}
	if flags.dryRun || !flags.yes {
		shown, err := preview(&activities.Operator{DB: db})
		switch {
		case err != nil:
			return err
		case flags.json:
			return a.printJSON(shown)
		}
		a.printOutcome(shown)
		if flags.dryRun {
			fmt.Fprintln(a.out, "Nothing was changed.")
			return nil
		}
		if agreed, err := a.confirm("Do this?", false); err != nil || !agreed {
			return err
		}
	}
	return a.makeChange(ctx, what, flags)
}

// makeChange is finishAct, and follows the settling of what the change owes unless it is told not to.
func (a *app) makeChange(ctx context.Context, what act, flags *changeFlags) error {
	if flags.noWait {
		return a.finishAct(ctx, what, flags.actFlags)
	}
	result, err := a.runAct(ctx, what, flags.json)
	if err != nil {
		return err
	}
	if !flags.json {
		fmt.Fprintln(a.out, result.Detail)
	}
	out := struct {
		acted
		Progress *entitlements.ChangeProgress `json:"progress,omitempty"`
	}{acted: result}
	if change := result.Change; change != nil && change.Owed > 0 {
		progress, err := a.followDrain(ctx, change.ID, flags.json)
		if err != nil {
			return err
		}
		out.Progress = &progress
	}
	if flags.json {
		return a.printJSON(out)
	}
	return nil
}

// printOutcome shows what a change does.
func (a *app) printOutcome(o entitlements.Outcome) {
	fmt.Fprintf(a.out, "%s\n", o.Summary)
	switch {
	case o.Pools == 0:
		fmt.Fprintln(a.out, "No pool holds anything that it reaches.")
	case o.Owed > 0:
		fmt.Fprintf(a.out, "It reaches %s, settled one after another once it is committed.\n", plural(o.Owed, "pool"))
	default:
		fmt.Fprintf(a.out, "It reaches %s, settled with it", plural(o.Pools, "pool"))
		a.printEffects(o.Effects)
	}
}

// printEffects ends the sentence with the entitlements that change.
func (a *app) printEffects(effects []entitlements.Effect) {
	if len(effects) == 0 {
		fmt.Fprintln(a.out, "; no entitlement changes.")
		return
	}
	fmt.Fprintf(a.out, "; entitlements change in %d of them:\n\n", len(effects))
	t := tableWriter("ORGANISATION", "POOL", "KEY", "FROM", "TO")
	for _, e := range effects {
		for _, c := range e.Changes {
			t.AppendRow([]any{e.Organization, e.Pool, c.Key, c.From, c.To})
		}
	}
	render(a.out, t)
}
