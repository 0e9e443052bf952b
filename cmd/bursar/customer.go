package main

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/entitlements"
)

func newCustomerCommand(a *app) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "customer",
		Short: "Link Stripe customers to organisations",
		Long:  "A Stripe customer pays for one organisation. A checkout that names the organisation links it by itself; this is for all others.",
	})
	cmd.AddCommand(newCustomerLinkCommand(a), newCustomerListCommand(a))
	return cmd
}

func newCustomerLinkCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "link CUSTOMER ORG",
		Short: "Link a Stripe customer to the organisation that it pays for",
		Long: `Links a Stripe customer to an organisation, named by slug or id. Subscriptions that waited for the link are tried
again by the worker shortly. A link never moves: linking a customer that belongs to another organisation is refused.`,
		Example: `  bursar customer link cus_NffrFeUfNV2Hib acme`,
		Args:    exactly("CUSTOMER", "ORG"),
		RunE: func(cmd *cobra.Command, args []string) error {
			db, err := a.openDB(cmd.Context())
			if err != nil {
				return err
			}
			operator := &activities.Operator{DB: db}
			result, err := operator.LinkCustomer(cmd.Context(), activities.LinkCustomerRequest{Customer: args[0], Organization: args[1]})
			if err != nil {
				return err
			}
			if asJSON {
				freed := []string{}
				for _, p := range result.Freed {
					freed = append(freed, p.ObjectID)
				}
				return a.printJSON(struct {
					Linked       bool             `json:"linked"`
					Customer     string           `json:"customer"`
					Organization organizationJSON `json:"organization"`
					Freed        []string         `json:"freed"`
				}{result.Linked, args[0], toJSON(result.Organization), freed})
			}
			if result.Linked {
				fmt.Fprintf(a.out, "Linked %s to %s (%s).\n", args[0], result.Organization.Slug, result.Organization.Name)
			} else {
				fmt.Fprintf(a.out, "Nothing to do: %s is linked to %s already.\n", args[0], result.Organization.Slug)
			}
			for _, p := range result.Freed {
				fmt.Fprintf(a.out, "Freed: %s %s, which will be tried again by the worker shortly.\n", p.Kind, p.ObjectID)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

func newCustomerListCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list [ORG]",
		Short: "List linked Stripe customers",
		Example: `  bursar customer list
  bursar customer list acme`,
		Args: between(0, "ORG"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			db, err := a.openDB(ctx)
			if err != nil {
				return err
			}
			var of *uuid.UUID
			if len(args) > 0 {
				org, err := entitlements.FindOrganization(ctx, db.Reader(), args[0])
				if err != nil {
					return err
				}
				of = &org.ID
			}
			customers, err := billing.ListCustomers(ctx, db.Reader(), of)
			if err != nil {
				return err
			}
			if asJSON {
				all := make([]customerJSON, len(customers))
				for i, c := range customers {
					all[i] = customerJSON{c.ID, c.OrganizationSlug, c.LinkedAt, string(c.LinkedBy)}
				}
				return a.printJSON(all)
			}
			if len(customers) == 0 {
				fmt.Fprintln(a.out, "No Stripe customer is linked: bursar customer link does it.")
				return nil
			}
			t := tableWriter("CUSTOMER", "ORGANISATION", "LINKED", "BY")
			for _, c := range customers {
				t.AppendRow(table.Row{c.ID, c.OrganizationSlug, when(c.LinkedAt), c.LinkedBy})
			}
			render(a.out, t)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

// customerJSON is a linked customer for a program.
type customerJSON struct {
	Customer     string    `json:"customer"`
	Organization string    `json:"organization"`
	LinkedAt     time.Time `json:"linked_at"`
	LinkedBy     string    `json:"linked_by"`
}
