package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows/contract"
)

func newGrantCommand(a *app) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "grant",
		Short: "Give products without a payment, until a time or for ever",
		Long: `A grant is a product given without a payment. On a ladder it has its place like anything else that is held: it waits behind a
higher tier, and resumes when that ends. What is changed of a grant makes another that goes on from it: the two are of one
line, whose last grant counts. Wherever a grant is named, any of its line will do, except to extend it.`,
	})
	cmd.AddCommand(newGrantIssueCommand(a), newGrantListCommand(a), newGrantShowCommand(a), newGrantExtendCommand(a),
		newGrantManageCommand(a), newGrantRevokeCommand(a), newGrantResumeCommand(a))
	return cmd
}

// checked is an act that can say what is wrong with it before it starts.
type checked interface {
	Check(ctx context.Context, q lockorder.Querier) error
}

// checkAct says what is wrong with an act, without Temporal.
func (a *app) checkAct(ctx context.Context, what checked) error {
	db, err := a.openDB(ctx)
	if err != nil {
		return err
	}
	return what.Check(ctx, db.Reader())
}

// timeFlag is the moment that a flag gives, nil where it is not given.
func timeFlag(cmd *cobra.Command, name, text string) (*time.Time, error) {
	if !cmd.Flags().Changed(name) {
		return nil, nil
	}
	t, err := parseTime(text)
	switch {
	case err != nil:
		return nil, usagef(cmd, "--%s: %w", name, err)
	case t.IsZero():
		return nil, usagef(cmd, "--%s is empty; write a moment like 2026-03-01T12:00:00Z or 2026-03-01", name)
	}
	return &t, nil
}

// grantID reads the id of a grant.
func grantID(cmd *cobra.Command, text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return uuid.Nil, usagef(cmd, "%q is not the id of a grant; 'bursar grant list' shows them", text)
	}
	return id, nil
}

func newGrantIssueCommand(a *app) *cobra.Command {
	var org, from, until, note string
	var unassigned bool
	var quantity int64
	cmd := &cobra.Command{
		Use:   "issue PRODUCT {--org ORG | --unassigned}",
		Short: "Give a product to an organisation",
		Long: `Gives a product to an organisation, from now on or from a moment to come, until a moment or for ever. With --unassigned the
grant names no organisation yet: it confers nothing until 'bursar grant manage --org' assigns it.`,
		Example: `  bursar grant issue gold --org acme --until 2027-01-01 --note "for the conference"
  bursar grant issue seats --org acme --quantity 5
  bursar grant issue gold --unassigned --until 2027-01-01`,
		Args: exactly("PRODUCT"),
	}
	flags := actFlagsOf(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if unassigned == (org != "") {
			return usagef(cmd, "say whom it is for: either --org ORG or --unassigned")
		}
		in := contract.GrantIssue{ID: uuid.New(), Organization: org, Product: args[0], Quantity: quantity, Note: note}
		var err error
		if in.From, err = timeFlag(cmd, "from", from); err != nil {
			return err
		}
		if in.Until, err = timeFlag(cmd, "until", until); err != nil {
			return err
		}
		ctx := cmd.Context()
		if in.Organization, err = a.grantee(ctx, org); err != nil {
			return err
		}
		if err := a.checkAct(ctx, entitlements.IssueGrant(in)); err != nil {
			return err
		}
		summary := fmt.Sprintf("Grant %s × %d to %s", in.Product, in.Quantity, orNobody(in.Organization))
		return a.finishAct(ctx, act{name: contract.ActGrantIssue, input: in, organization: in.Organization, object: in.ID.String(), summary: summary}, flags)
	}
	cmd.Flags().StringVar(&org, "org", "", "the organisation's slug or id, or a Stripe customer or subscription of its own")
	cmd.Flags().BoolVar(&unassigned, "unassigned", false, "for no organisation yet")
	cmd.Flags().Int64Var(&quantity, "quantity", 1, "how many times the product is given")
	cmd.Flags().StringVar(&from, "from", "", "when it begins (default: now)")
	cmd.Flags().StringVar(&until, "until", "", "from when it confers nothing any more (default: never)")
	cmd.Flags().StringVar(&note, "note", "", "why, for people")
	return cmd
}

// grantee returns the slug of the organisation that a grant is for, "" for none.
func (a *app) grantee(ctx context.Context, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	db, err := a.openDB(ctx)
	if err != nil {
		return "", err
	}
	org, err := findOrganization(ctx, db.Reader(), name)
	return org.Slug, err
}

func orNobody(organization string) string {
	if organization == "" {
		return "no organisation yet"
	}
	return organization
}

func newGrantExtendCommand(a *app) *cobra.Command {
	var until, note string
	var forever bool
	cmd := &cobra.Command{
		Use:   "extend GRANT {--until MOMENT | --forever}",
		Short: "Have a grant end later",
		Long: `Has a grant end later than it would, or never; it may be active or waiting. Another grant goes on from it, with its place on
the ladder. The grant named is the last of its line, so that nobody extends what somebody else has extended already.`,
		Example: "  bursar grant extend 6f1c3c1e-8f0e-4d39-a2e5-0d7f5a0a9b11 --until 2028-01-01",
		Args:    exactly("GRANT"),
	}
	flags := actFlagsOf(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		grant, err := grantID(cmd, args[0])
		if err != nil {
			return err
		}
		in := contract.GrantExtend{ID: uuid.New(), Grant: grant, Note: note}
		if in.Until, err = timeFlag(cmd, "until", until); err != nil {
			return err
		}
		if forever == (in.Until != nil) {
			return usagef(cmd, "say for how long: either --until MOMENT or --forever")
		}
		if err := a.checkAct(cmd.Context(), entitlements.ExtendGrant(in)); err != nil {
			return err
		}
		return a.finishGrantAct(cmd.Context(), act{name: contract.ActGrantExtend, input: in, summary: "Extend grant " + args[0]}, grant, flags)
	}
	cmd.Flags().StringVar(&until, "until", "", "the new end")
	cmd.Flags().BoolVar(&forever, "forever", false, "without an end")
	cmd.Flags().StringVar(&note, "note", "", "why, for people (default: what the grant says)")
	return cmd
}

func newGrantManageCommand(a *app) *cobra.Command {
	var org, until, note string
	var forever bool
	var quantity int64
	cmd := &cobra.Command{
		Use:   "manage GRANT [--until MOMENT | --forever] [--quantity N] [--org ORG]",
		Short: "Change a grant's end or quantity, or say whom it is for",
		Long: `Changes what a grant gives from now on: its end, earlier or later, its quantity, or, where it names no organisation yet, whom it
is for. Another grant goes on from it, with its place on the ladder.`,
		Example: `  bursar grant manage 6f1c3c1e-8f0e-4d39-a2e5-0d7f5a0a9b11 --quantity 10
  bursar grant manage 6f1c3c1e-8f0e-4d39-a2e5-0d7f5a0a9b11 --org acme`,
		Args: exactly("GRANT"),
	}
	flags := actFlagsOf(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		grant, err := grantID(cmd, args[0])
		if err != nil {
			return err
		}
		ctx := cmd.Context()
		in := contract.GrantManage{ID: uuid.New(), Grant: grant, Forever: forever, Note: note}
		if in.Until, err = timeFlag(cmd, "until", until); err != nil {
			return err
		}
		if cmd.Flags().Changed("quantity") {
			in.Quantity = &quantity
		}
		if in.Organization, err = a.grantee(ctx, org); err != nil {
			return err
		}
		if err := a.checkAct(ctx, entitlements.ManageGrant(in)); err != nil {
			return err
		}
		return a.finishGrantAct(ctx, act{name: contract.ActGrantManage, input: in, organization: in.Organization, summary: "Change grant " + args[0]}, grant, flags)
	}
	cmd.Flags().StringVar(&until, "until", "", "the new end")
	cmd.Flags().BoolVar(&forever, "forever", false, "without an end")
	cmd.Flags().Int64Var(&quantity, "quantity", 0, "the new quantity")
	cmd.Flags().StringVar(&org, "org", "", "whom it is for, where it names no organisation yet")
	cmd.Flags().StringVar(&note, "note", "", "why, for people (default: what the grant says)")
	return cmd
}

func newGrantRevokeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "revoke GRANT",
		Short:   "End a grant now",
		Long:    "Ends a grant now, for good: what it displaced resumes, and the floor returns where its ladder falls vacant. It shows the grant and asks first.",
		Example: "  bursar grant revoke 6f1c3c1e-8f0e-4d39-a2e5-0d7f5a0a9b11",
		Args:    exactly("GRANT"),
	}
	flags := actFlagsOf(cmd, true)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if flags.json && !flags.yes {
			return usagef(cmd, "--json asks nothing, so it needs --yes")
		}
		grant, err := grantID(cmd, args[0])
		if err != nil {
			return err
		}
		ctx := cmd.Context()
		in := contract.GrantRevoke{Grant: grant}
		if err := a.checkAct(ctx, entitlements.RevokeGrant(in)); err != nil {
			return err
		}
		head, err := a.headOf(ctx, grant)
		if err != nil {
			return err
		}
		if !flags.yes {
			printGrants(a.out, []entitlements.Grant{head})
			if agreed, err := a.confirm("Revoke this?", false); err != nil || !agreed {
				return err
			}
		}
		return a.finishGrantAct(ctx, act{name: contract.ActGrantRevoke, input: in, summary: "Revoke grant " + args[0]}, grant, flags)
	}
	return cmd
}

func newGrantResumeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume GRANT",
		Short: "Settle the pool of a grant",
		Long: `Makes the state of a grant, and what its organisation may use, what they should be. Grants resume by themselves whenever
something changes in their pool: this is for when somebody doubts it, and changes nothing where all is right.`,
		Example: "  bursar grant resume 6f1c3c1e-8f0e-4d39-a2e5-0d7f5a0a9b11",
		Args:    exactly("GRANT"),
	}
	flags := actFlagsOf(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		grant, err := grantID(cmd, args[0])
		if err != nil {
			return err
		}
		in := contract.GrantResume{Grant: grant}
		if err := a.checkAct(cmd.Context(), entitlements.ResumeGrant(in)); err != nil {
			return err
		}
		return a.finishGrantAct(cmd.Context(), act{name: contract.ActGrantResume, input: in, summary: "Resume grant " + args[0]}, grant, flags)
	}
	return cmd
}

// finishGrantAct runs an act on a line of grants, under the organisation that it is for and the line's id.
func (a *app) finishGrantAct(ctx context.Context, what act, grant uuid.UUID, flags *actFlags) error {
	head, err := a.headOf(ctx, grant)
	if err != nil {
		return err
	}
	if what.organization == "" {
		what.organization = head.Organization
	}
	what.object = head.Line.String()
	return a.finishAct(ctx, what, flags)
}

// headOf returns the last grant of a line.
func (a *app) headOf(ctx context.Context, grant uuid.UUID) (entitlements.Grant, error) {
	db, err := a.openDB(ctx)
	if err != nil {
		return entitlements.Grant{}, err
	}
	line, err := entitlements.GrantLine(ctx, db.Reader(), grant)
	if err != nil {
		return entitlements.Grant{}, err
	}
	return line[len(line)-1], nil
}
