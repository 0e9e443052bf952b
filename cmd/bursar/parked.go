package main

import (
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/billing"
)

func newParkedCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "parked",
		Short: "List what could not be done, why, and what would free it",
		Long: `Lists parked work: subscriptions and checkouts that could not be applied as a whole. What waits for a link or a mapping is
tried again by itself once that is made; anything else by 'bursar parked retry'.`,
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
			if asJSON {
				return a.printJSON(parkedForPrograms(parked))
			}
			if len(parked) == 0 {
				fmt.Fprintln(a.out, "Nothing is parked.")
				return nil
			}
			printParked(a.out, parked)
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
		Long:  "Asks for another try of parked objects, by their own id or their subscription's, or of all. The worker takes it up at its next look, every 30 seconds unless set otherwise.",
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
			operator := &activities.Operator{DB: db}
			result, err := operator.RequestRetry(cmd.Context(), activities.RetryRequest{Objects: args, All: all})
			if err != nil {
				return err
			}
			for _, key := range result.Requested {
				fmt.Fprintf(a.out, "%s %s\n", key.Kind, key.ObjectID)
			}
			if n := len(result.Requested); n > 0 {
				fmt.Fprintf(a.out, "%s will be tried again by the worker shortly.\n", plural(n, "parked object"))
			} else {
				fmt.Fprintln(a.out, "Nothing is parked.")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "everything that is parked")
	return cmd
}

func printParked(out io.Writer, parked []billing.Parked) {
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
	render(out, t)
}

// parkedJSON is a parked object for a program.
type parkedJSON struct {
	Kind            string     `json:"kind"`
	Object          string     `json:"object"`
	Subscription    string     `json:"subscription,omitempty"`
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

func parkedForPrograms(parked []billing.Parked) []parkedJSON {
	all := make([]parkedJSON, len(parked))
	for i, p := range parked {
		all[i] = parkedJSON{
			Kind: string(p.Kind), Object: p.ObjectID, Subscription: p.SubscriptionID, Reason: string(p.Reason), Detail: p.Detail,
			Customer: p.Customer, Organization: p.Organization, WaitingCustomer: p.WaitingCustomer,
			WaitingPrices: p.WaitingPrices, WaitingProducts: p.WaitingProducts, Attempts: p.Attempts,
			ParkedAt: p.ParkedAt, LastTriedAt: p.LastTriedAt, RetryRequested: p.RetryRequestedAt,
		}
	}
	return all
}
