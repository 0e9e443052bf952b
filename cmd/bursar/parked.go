package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/entitlements"
)

func newParkedCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "parked",
		Short: "List what could not be done, why, and what would free it",
		Long: `Lists parked work: subscriptions and checkouts that could not be applied as a whole, and obligations: pools that a change of rules,
ladders, defaults or the catalogue could not reach. What waits for a link or a mapping is tried again by itself once that is
made; anything else by 'bursar parked retry'.`,
		Example: `  bursar parked
  bursar parked retry sub_1PqRsT2eZvKYlo2C`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			db, err := a.openDB(cmd.Context())
			if err != nil {
				return err
			}
			parked, err := billing.AllParked(cmd.Context(), db.Reader(), billing.ParkedFilter{})
			if err != nil {
				return err
			}
			obligations, err := entitlements.ParkedObligations(cmd.Context(), db.Reader(), uuid.Nil)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(parkedForPrograms(parked, obligations))
			}
			if len(parked)+len(obligations) == 0 {
				fmt.Fprintln(a.out, "Nothing is parked.")
				return nil
			}
			printParked(a.out, parked, obligations)
			return nil
		},
	}
	listParked := cmd.RunE
	group(cmd).RunE = listParked
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	cmd.AddCommand(newParkedRetryCommand(a))
	return cmd
}

func newParkedRetryCommand(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "retry {ID… | --all}",
		Short: "Try parked work again",
		Long: `Asks for another try of parked objects, by their own id or their subscription's, of obligations by the id of their change, their
pool or its organisation, or of all. The worker takes it up at its next look: within a minute, unless set otherwise.`,
		Example: `  bursar parked retry sub_1PqRsT2eZvKYlo2C
  bursar parked retry --all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case all && len(args) > 0:
				return usagef(cmd, "give ids or --all, not both")
			case !all && len(args) == 0:
				return usagef(cmd, "which one? give the ids that 'bursar parked' lists, or --all")
			}
			db, err := a.openDB(cmd.Context())
			if err != nil {
				return err
			}
			return a.retryParked(cmd.Context(), &activities.Operator{DB: db}, args, all)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "everything that is parked")
	return cmd
}

// retryParked asks for another try. Ids that are UUIDs are those of changes and pools, all others are Stripe's.
func (a *app) retryParked(ctx context.Context, operator *activities.Operator, ids []string, all bool) error {
	var objects []string
	var owed []uuid.UUID
	for _, id := range ids {
		if parsed, err := uuid.Parse(id); err == nil {
			owed = append(owed, parsed)
		} else {
			objects = append(objects, id)
		}
	}
	var requested []billing.ParkedKey
	if all || len(objects) > 0 {
		result, err := operator.RequestRetry(ctx, activities.RetryRequest{Objects: objects, All: all})
		if err != nil {
			return err
		}
		requested = result.Requested
	}
	var reopened activities.ReopenResult
	if all || len(owed) > 0 {
		var err error
		if reopened, err = operator.ReopenObligations(ctx, owed); err != nil {
			return err
		}
	}
	for _, key := range requested {
		fmt.Fprintf(a.out, "%s %s\n", key.Kind, key.ObjectID)
	}
	if n := len(requested); n > 0 {
		fmt.Fprintf(a.out, "%s will be tried again by the worker shortly.\n", plural(n, "parked object"))
	}
	if n := reopened.Reopened; n > 0 {
		fmt.Fprintf(a.out, "%s will be settled again.\n", plural(n, "parked pool"))
		for _, change := range reopened.Changes {
			fmt.Fprintln(a.out, a.startDrain(ctx, change.String()))
		}
	}
	if len(requested)+reopened.Reopened == 0 {
		fmt.Fprintln(a.out, "Nothing is parked.")
	}
	return nil
}

func printParked(out io.Writer, parked []billing.Parked, obligations []entitlements.ParkedObligation) {
	t := tableWriter("PARKED", "ORGANISATION", "REASON", "SINCE", "TRIES", "WHAT WOULD FREE IT")
	for _, p := range parked {
		org := p.Organization
		if org == "" {
			org = "unknown"
		}
		detail := p.Detail
		if p.RetryRequestedAt != nil {
			detail += " (another try is under way)"
		}
		t.AppendRow(table.Row{string(p.Kind) + " " + p.ObjectID, org, p.Reason, when(p.ParkedAt), p.Attempts, detail})
	}
	for _, o := range obligations {
		t.AppendRow(table.Row{kindObligation + " " + o.Pool.String(), o.Organization, reasonUnsettled, when(o.LastTriedAt), o.Attempts, obligationDetail(o)})
	}
	render(out, t)
}

// What a parked obligation is called beside what billing parks.
const (
	kindObligation  = "obligation"
	reasonUnsettled = "unsettled"
)

func obligationDetail(o entitlements.ParkedObligation) string {
	return fmt.Sprintf("%s (change %s). Mend what stands in the way, then run: bursar parked retry %s. The last try failed: %s", o.Summary, o.Change, o.Change, o.Reason)
}

// parkedJSON is a parked object for a program.
type parkedJSON struct {
	Kind            string     `json:"kind"`
	Object          string     `json:"object"`
	Subscription    string     `json:"subscription,omitempty"`
	Change          string     `json:"change,omitempty"`
	Reason          string     `json:"reason"`
	Detail          string     `json:"detail"`
	Customer        string     `json:"customer,omitempty"`
	Organization    string     `json:"organization,omitempty"`
	WaitingCustomer string     `json:"waiting_customer,omitempty"`
	WaitingPrices   []string   `json:"waiting_prices,omitempty"`
	WaitingProducts []string   `json:"waiting_products,omitempty"`
	Attempts        int        `json:"attempts"`
	ParkedAt        time.Time  `json:"parked_at"`
	LastTriedAt     time.Time  `json:"last_tried_at"`
	RetryRequested  *time.Time `json:"retry_requested_at,omitempty"`
}

func parkedForPrograms(parked []billing.Parked, obligations []entitlements.ParkedObligation) []parkedJSON {
	all := make([]parkedJSON, 0, len(parked)+len(obligations))
	for _, p := range parked {
		all = append(all, parkedJSON{
			Kind: string(p.Kind), Object: p.ObjectID, Subscription: p.SubscriptionID, Reason: string(p.Reason), Detail: p.Detail,
			Customer: p.Customer, Organization: p.Organization, WaitingCustomer: p.WaitingCustomer,
			WaitingPrices: p.WaitingPrices, WaitingProducts: p.WaitingProducts, Attempts: p.Attempts,
			ParkedAt: p.ParkedAt, LastTriedAt: p.LastTriedAt, RetryRequested: p.RetryRequestedAt,
		})
	}
	for _, o := range obligations {
		all = append(all, parkedJSON{
			Kind: kindObligation, Object: o.Pool.String(), Change: o.Change.String(), Reason: reasonUnsettled, Detail: obligationDetail(o),
			Organization: o.Organization, Attempts: o.Attempts, ParkedAt: o.LastTriedAt, LastTriedAt: o.LastTriedAt,
		})
	}
	return all
}
