package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/workflows/contract"
)

// shownChanges is how many changes are listed.
const shownChanges = 20

func newRuleStatusCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status [CHANGE]",
		Short: "Show how far the last changes are, or one of them",
		Long: `A change that reaches many pools leaves them owed, and its workflow settles them one after another. Shows, of the last ` + fmt.Sprint(shownChanges) + ` changes of rules,
ladders, defaults and the catalogue or of the one named, how many pools it owed, how many are settled, and how many are parked.`,
		Example: "  bursar rule status\n  bursar rule status 9b2f1c1e-1d1b-4c5e-9a43-2f7f5b0f7a10",
		Args:    between(0, "CHANGE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			var id uuid.UUID
			if len(args) == 1 {
				var err error
				if id, err = uuid.Parse(args[0]); err != nil {
					return usagef(cmd, "%q is not the id of a change; 'bursar rule status' lists the last ones", args[0])
				}
			}
			db, err := a.openDB(ctx)
			if err != nil {
				return err
			}
			if id != uuid.Nil {
				p, err := entitlements.Progress(ctx, db.Reader(), id)
				switch {
				case err != nil:
					return err
				case asJSON:
					return a.printJSON(p)
				}
				a.printProgress(p)
				return nil
			}
			list, err := entitlements.RecentChanges(ctx, db.Reader(), shownChanges)
			switch {
			case err != nil:
				return err
			case asJSON:
				return a.printJSON(list)
			case len(list) == 0:
				fmt.Fprintln(a.out, "Nothing was changed yet.")
				return nil
			}
			t := tableWriter("CHANGE", "COMMITTED", "OWED", "SETTLED", "OPEN", "PARKED", "WHAT")
			for _, p := range list {
				t.AppendRow([]any{p.ID, when(p.CommittedAt), p.Owed, p.Settled, p.Open, p.Parked, p.Summary})
			}
			render(a.out, t)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

func (a *app) printProgress(p entitlements.ChangeProgress) {
	fmt.Fprintf(a.out, "%s\n  committed %s by %s", p.Summary, when(p.CommittedAt), p.Act)
	if p.Workflow != "" {
		fmt.Fprintf(a.out, " of workflow %s", p.Workflow)
	}
	fmt.Fprintln(a.out)
	if p.Owed == 0 {
		fmt.Fprintln(a.out, "  it settled every pool that it reached itself")
		return
	}
	fmt.Fprintf(a.out, "  owed %s: %d settled, %d open, %d parked\n  drained by workflow %s\n",
		plural(p.Owed, "pool"), p.Settled, p.Open, p.Parked, contract.RuleChangeDrainWorkflowID(p.ID.String()))
	if p.Parked > 0 {
		fmt.Fprintf(a.out, "  why they are parked: bursar parked; to try again: bursar parked retry %s\n", p.ID)
	}
}

const (
	// followEvery is how often the progress of a drain is looked at.
	followEvery = 500 * time.Millisecond
	// followStalled is after how long without progress a person is told.
	followStalled = 20 * time.Second
)

// followDrain tells how far the drain of a change is until nothing is open, and returns what became of it. Stopped, it leaves the
// drain to itself. With quiet nothing is printed on out.
func (a *app) followDrain(ctx context.Context, change string, quiet bool) (entitlements.ChangeProgress, error) {
	id, err := uuid.Parse(change)
	if err != nil {
		return entitlements.ChangeProgress{}, err
	}
	db, err := a.openDB(ctx)
	if err != nil {
		return entitlements.ChangeProgress{}, err
	}
	workflow := contract.RuleChangeDrainWorkflowID(change)
	if !quiet {
		fmt.Fprintf(a.out, "Workflow %s settles what is owed\n", workflow)
	}
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	told, moved, left := -1, time.Now(), -1
	for {
		p, err := entitlements.Progress(ctx, db.Reader(), id)
		if err != nil {
			return p, fmt.Errorf("%w; %s goes on by itself: bursar rule status %s", err, workflow, change)
		}
		if p.Open != left {
			left, moved = p.Open, time.Now()
		}
		// A line for each tenth, so that a log is not filled by it.
		if tenth := (p.Owed - p.Open) * 10 / max(p.Owed, 1); tenth != told && !quiet {
			fmt.Fprintf(a.out, "  %d of %d settled\n", p.Settled, p.Owed)
			told = tenth
		}
		if p.Open == 0 {
			if p.Parked > 0 && !quiet {
				fmt.Fprintf(a.out, "%s could not be settled and %s parked: bursar parked says why\n", plural(p.Parked, "pool"), map[bool]string{true: "is", false: "are"}[p.Parked == 1])
			}
			return p, nil
		}
		if time.Since(moved) >= followStalled {
			fmt.Fprintf(a.err, "bursar: nothing was settled for %s; does a 'bursar worker' run? The Temporal UI shows %s\n", followStalled, workflow)
			moved = time.Now()
		}
		select {
		case <-ctx.Done():
			return p, fmt.Errorf("stopped following; %s goes on by itself: bursar rule status %s", workflow, change)
		case <-tick.C:
		}
	}
}
