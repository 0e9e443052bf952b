package main

import (
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/workflows/contract"
)

func newOrgCommand(a *app) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "org",
		Short: "Create and list organisations",
		Long:  "Organisations are the members: each has a type, and a default pool that holds what it may use.",
	})
	cmd.AddCommand(newOrgCreateCommand(a), newOrgListCommand(a), newOrgTypesCommand(a))
	return cmd
}

func newOrgCreateCommand(a *app) *cobra.Command {
	var name, kind string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "create SLUG --name NAME --type TYPE",
		Short:   "Make an organisation; it holds its type's default at once",
		Long:    "Makes an organisation with its default pool, which holds the default product of its type from the start. SLUG is what it goes by in commands, and what a checkout's client_reference_id names: a-z, 0-9 and hyphens.",
		Example: `  bursar org create acme --name "Acme Ltd" --type club`,
		Args:    exactly("SLUG"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case name == "":
				return usagef(cmd, "--name is missing: what people call the organisation")
			case kind == "":
				return usagef(cmd, "--type is missing: one of those that 'bursar org types' lists")
			}
			ctx := cmd.Context()
			db, err := a.openDB(ctx)
			if err != nil {
				return err
			}
			if err := (entitlements.NewOrganization{Slug: args[0], Name: name, Type: kind}).Validate(ctx, db.Reader()); err != nil {
				return err
			}
			in := contract.OrganizationCreate{ID: uuid.New(), Pool: uuid.New(), Slug: args[0], Name: name, Type: kind}
			result, err := a.runAct(ctx, act{name: contract.ActOrganizationCreate, input: in, organization: args[0], summary: "Make organisation " + args[0]}, asJSON)
			if err != nil {
				return err
			}
			org, err := entitlements.FindOrganization(ctx, db.Reader(), in.ID.String())
			if err != nil {
				return fmt.Errorf("the organisation was made, but could not be read: %w", err)
			}
			report, err := entitlements.Effective(ctx, db.Reader(), org.ID, time.Time{})
			if err != nil {
				return fmt.Errorf("the organisation was made, but its entitlements could not be read: %w", err)
			}
			if asJSON {
				return a.printJSON(struct {
					Workflow string `json:"workflow"`
					organizationJSON
					Report entitlements.Report `json:"report"`
				}{result.Workflow, toJSON(org), report})
			}
			fmt.Fprintf(a.out, "Made %s (%s), type %s\n  id    %s\n  pool  %s\n\n", org.Slug, org.Name, org.Type, org.ID, org.DefaultPool)
			printReport(a.out, org, report)
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "what people call it")
	cmd.Flags().StringVar(&kind, "type", "", "its organisation type")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

// organizationJSON is an organisation for a program.
type organizationJSON struct {
	ID          uuid.UUID `json:"id"`
	Slug        string    `json:"slug"`
	Name        string    `json:"name"`
	Type        string    `json:"type"`
	DefaultPool uuid.UUID `json:"default_pool"`
}

func toJSON(o entitlements.Organization) organizationJSON { return organizationJSON(o) }

func newOrgListCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List organisations and what they hold",
		Example: `  bursar org list`,
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			db, err := a.openDB(ctx)
			if err != nil {
				return err
			}
			const page = 500
			type listed struct {
				organizationJSON
				CreatedAt  time.Time `json:"created_at"`
				Conferring string    `json:"conferring"`
			}
			all := []listed{}
			for after := ""; ; {
				orgs, err := entitlements.ListOrganizations(ctx, db.Reader(), after, page)
				if err != nil {
					return err
				}
				for _, o := range orgs {
					all = append(all, listed{toJSON(o.Organization), o.CreatedAt.UTC(), o.Conferring})
				}
				if len(orgs) < page {
					break
				}
				after = orgs[len(orgs)-1].Slug
			}
			if asJSON {
				return a.printJSON(all)
			}
			if len(all) == 0 {
				fmt.Fprintln(a.out, "There is no organisation yet: bursar org create makes one.")
				return nil
			}
			t := tableWriter("SLUG", "NAME", "TYPE", "CREATED", "HOLDS")
			for _, o := range all {
				holds := o.Conferring
				if holds == "" {
					holds = "nothing that confers"
				}
				t.AppendRow(table.Row{o.Slug, o.Name, o.Type, when(o.CreatedAt), holds})
			}
			render(a.out, t)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

func newOrgTypesCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "types",
		Short:   "List organisation types and their defaults",
		Long:    "Lists organisation types. The default is what an organisation of the type holds while nothing else does. Types are made by 'bursar catalog apply'.",
		Example: `  bursar org types`,
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			db, err := a.openDB(cmd.Context())
			if err != nil {
				return err
			}
			types, err := entitlements.ListOrganizationTypes(cmd.Context(), db.Reader())
			if err != nil {
				return err
			}
			if asJSON {
				type typeJSON struct {
					ID      uuid.UUID `json:"id"`
					Slug    string    `json:"slug"`
					Name    string    `json:"name"`
					Default string    `json:"default,omitempty"`
				}
				all := make([]typeJSON, len(types))
				for i, t := range types {
					all[i] = typeJSON(t)
				}
				return a.printJSON(all)
			}
			if len(types) == 0 {
				fmt.Fprintln(a.out, "There is no organisation type yet: bursar catalog apply makes them.")
				return nil
			}
			t := tableWriter("TYPE", "NAME", "DEFAULT")
			for _, ty := range types {
				standard := ty.Default
				if standard == "" {
					standard = "nothing"
				}
				t.AppendRow(table.Row{ty.Slug, ty.Name, standard})
			}
			render(a.out, t)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}
