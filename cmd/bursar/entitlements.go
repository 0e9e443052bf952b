package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/lockorder"
)

func newEntitlementsCommand(a *app) *cobra.Command {
	var at string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "entitlements ORG|CUSTOMER|SUBSCRIPTION",
		Short: "Show what an organisation may use, and why",
		Long: `Shows each entitlement of an organisation with its reason; what it holds that gives nothing, and why; what it has
nothing of, and what would give it; what it held last; and the parked work of its Stripe customers. The organisation is
named by slug or id, or by a Stripe customer or subscription that is its own.

With --at a moment in the past, values come from the ledger.`,
		Example: `  bursar entitlements acme
  bursar entitlements cus_NffrFeUfNV2Hib
  bursar entitlements acme --at 2026-03-01T12:00:00Z
  bursar entitlements acme --json`,
		Args: exactly("ORG"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			instant, err := parseTime(at)
			if err != nil {
				return usagef(cmd, "%w", err)
			}
			if instant.After(time.Now().Add(time.Minute)) {
				return usagef(cmd, "%s is in the future, and what will be paid then is not known", at)
			}
			db, err := a.openDB(ctx)
			if err != nil {
				return err
			}
			org, err := findOrganization(ctx, db.Reader(), args[0])
			if err != nil {
				return err
			}
			report, err := entitlements.Effective(ctx, db.Reader(), org.ID, instant)
			if err != nil {
				return err
			}
			customers, err := billing.ListCustomers(ctx, db.Reader(), &org.ID)
			if err != nil {
				return err
			}
			parked, err := billing.AllParked(ctx, db.Reader(), billing.ParkedFilter{Organization: &org.ID})
			if err != nil {
				return err
			}
			obligations, err := entitlements.ParkedObligations(ctx, db.Reader(), org.ID)
			if err != nil {
				return err
			}
			before, err := entitlements.LastEnded(ctx, db.Reader(), org.ID, lastEnded)
			if err != nil {
				return err
			}
			if asJSON {
				ids := make([]string, len(customers))
				for i, c := range customers {
					ids[i] = c.ID
				}
				return a.printJSON(struct {
					Organization organizationJSON `json:"organization"`
					entitlements.Report
					Before    []entitlements.Ended `json:"held_before"`
					Customers []string             `json:"customers"`
					Parked    []parkedJSON         `json:"parked"`
				}{toJSON(org), report, before, ids, parkedForPrograms(parked, obligations)})
			}
			printReport(a.out, org, report)
			if !report.Historical { // the rest is as it is now
				printBefore(a.out, before)
				printStripe(a.out, org, customers)
				if len(parked)+len(obligations) > 0 {
					fmt.Fprintln(a.out, "\nParked, and so not applied:")
					printParked(a.out, parked, obligations)
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "another moment than now: 2026-03-01T12:00:00Z, or 2026-03-01 for midnight UTC")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

// parseTime reads a moment; the empty string is the zero time.
func parseTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02 15:04:05Z", "2006-01-02"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no moment; write it like 2026-03-01T12:00:00Z or 2026-03-01", s)
}

// lastEnded is how many of the positions that are over are shown.
const lastEnded = 5

// findOrganization finds an organisation by its slug or id, or by a Stripe customer or subscription of its own.
func findOrganization(ctx context.Context, q lockorder.Querier, name string) (entitlements.Organization, error) {
	customer := name
	if strings.HasPrefix(name, "sub_") {
		known, found, err := billing.ReadSubscription(ctx, q, name)
		switch {
		case err != nil:
			return entitlements.Organization{}, err
		case !found || known.Customer == "":
			return entitlements.Organization{}, fmt.Errorf("subscription %s has not been read from Stripe; bursar parked lists what could not be applied", name)
		}
		customer = known.Customer
	}
	if !strings.HasPrefix(customer, "cus_") {
		return entitlements.FindOrganization(ctx, q, name)
	}
	id, linked, err := billing.Organization(ctx, q, customer)
	switch {
	case err != nil:
		return entitlements.Organization{}, err
	case !linked:
		return entitlements.Organization{}, fmt.Errorf("customer %s is linked to no organisation; link it: bursar customer link %s ORG", customer, customer)
	}
	return entitlements.FindOrganization(ctx, q, id.String())
}

// printBefore prints what is over, and why.
func printBefore(out io.Writer, ended []entitlements.Ended) {
	if len(ended) == 0 {
		return
	}
	fmt.Fprintln(out, "\nHeld before, the latest first:")
	t := tableWriter("PRODUCT", "HELD THROUGH", "SINCE", "UNTIL", "WHY IT ENDED")
	for _, e := range ended {
		t.AppendRow(table.Row{times(e.Position), through(e.Position), when(e.Since), when(e.EndedAt), endReason(e.EndReason)})
	}
	render(out, t)
}

// endReason says a stored word for a person.
func endReason(word string) string {
	switch word {
	case entitlements.EndSubscriptionEnded:
		return "the subscription is over"
	case entitlements.EndItemRemoved:
		return "its item was taken out of the subscription"
	case entitlements.EndProductChanged:
		return "its item changed to another product"
	case entitlements.EndMappingChanged:
		return "its price now stands for another product"
	case "tier_removed":
		return "its tier was removed"
	case "expired":
		return "the grant's time is over"
	case "revoked":
		return "the grant was revoked"
	case "extended":
		return "another grant goes on from it"
	}
	return word
}

// printReport prints what an organisation may use, and why, as tables.
func printReport(out io.Writer, org entitlements.Organization, r entitlements.Report) {
	fmt.Fprintf(out, "%s (%s), type %s, at %s\n\n", org.Slug, org.Name, org.Type, when(r.At))
	if len(r.Lines)+len(r.Missing) == 0 {
		fmt.Fprintln(out, "It may use nothing.")
	} else {
		pools := severalPools(r)
		t := tableWriter("KEY", "VALUE", "SINCE", "WHY")
		for _, line := range r.Lines {
			since := "not yet"
			if line.Since != nil {
				since = when(*line.Since)
			}
			key := line.Key
			if pools {
				key += " (pool " + line.Pool + ")"
			}
			t.AppendRow(table.Row{key, line.Value, since, why(line)})
		}
		for _, m := range r.Missing {
			t.AppendRow(table.Row{m.Key, "nothing", "", whyMissing(m, r.Held)})
		}
		render(out, t)
	}
	printHeld(out, r)
	printEnds(out, r)
}

// printHeld prints what is held and confers nothing, or, in the past, what was held.
func printHeld(out io.Writer, r entitlements.Report) {
	if len(r.Held) == 0 {
		return
	}
	heading := "Held but not conferring:"
	header := []string{"PRODUCT", "HELD THROUGH", "SINCE", "WHY NOT"}
	if r.Historical {
		heading = "Held then:"
		header[3] = "WHAT BECAME OF IT"
	}
	fmt.Fprintf(out, "\n%s\n", heading)
	t := tableWriter(header...)
	for _, h := range r.Held {
		note := whyNot(h, r.At)
		if r.Historical {
			note = "held still"
			if h.EndedAt != nil {
				note = fmt.Sprintf("ended %s (%s)", when(*h.EndedAt), h.EndReason)
			}
		}
		t.AppendRow(table.Row{times(h.Position), through(h.Position), when(h.Since), note})
	}
	render(out, t)
}

// printEnds prints the ends that are known, the first first.
func printEnds(out io.Writer, r entitlements.Report) {
	ends := map[uuid.UUID]entitlements.Position{}
	note := func(p entitlements.Position) {
		if p.Until != nil && p.Until.After(r.At) {
			ends[p.ID] = p
		}
	}
	for _, l := range r.Lines {
		for _, reason := range l.Reasons {
			note(reason.Position)
		}
	}
	for _, h := range r.Held {
		note(h.Position)
	}
	if len(ends) == 0 {
		return
	}
	fmt.Fprintln(out, "\nEnds that are known:")
	t := tableWriter("ENDS", "PRODUCT", "HELD THROUGH")
	for _, p := range slices.SortedFunc(maps.Values(ends), func(a, b entitlements.Position) int {
		return cmp.Or(a.Until.Compare(*b.Until), bytes.Compare(a.ID[:], b.ID[:]))
	}) {
		t.AppendRow(table.Row{when(*p.Until), times(p), through(p)})
	}
	render(out, t)
}

func severalPools(r entitlements.Report) bool {
	return slices.ContainsFunc(r.Lines, func(l entitlements.Line) bool { return l.Pool != r.Lines[0].Pool })
}

// why tells the reasons of a line, one below the other where there are several.
func why(line entitlements.Line) string {
	if line.Act != "" {
		s := "set by " + line.Act
		if line.Workflow != "" {
			s += " (workflow " + line.Workflow + ")"
		}
		return s
	}
	reasons := make([]string, len(line.Reasons))
	for i, r := range line.Reasons {
		s := times(r.Position) + ", " + through(r.Position) + place(r.Position)
		if r.Until != nil {
			s += "; until " + when(*r.Until)
		}
		if len(line.Reasons) > 1 || (r.Quantity > 1 && r.Contributes != line.Value) {
			s = r.Contributes.String() + " from " + s
		}
		reasons[i] = s
	}
	return strings.Join(reasons, "\n")
}

// times is "Gold membership", or "Seats × 3".
func times(p entitlements.Position) string {
	if p.Quantity > 1 {
		return fmt.Sprintf("%s × %d", p.ProductName, p.Quantity)
	}
	return p.ProductName
}

func through(p entitlements.Position) string {
	switch {
	case p.IsDueFloor():
		return "the default of its type, due since what was above it ended, and not written yet"
	case p.Source == "default":
		return "the default of its type"
	case p.Grant != nil:
		s := fmt.Sprintf("grant %s (%s)", p.Grant.ID, p.Grant.State)
		if p.Grant.Origin == "grandfathered" {
			s += ", kept when the default changed"
		}
		if p.Grant.Note != "" {
			s += fmt.Sprintf(", %q", p.Grant.Note)
		}
		return s
	case p.SubscriptionID == "":
		return p.Source
	case p.Status == "":
		return "subscription " + p.SubscriptionID
	}
	return fmt.Sprintf("subscription %s (%s)", p.SubscriptionID, p.Status)
}

func place(p entitlements.Position) string {
	switch {
	case p.Ladder == "":
		return ""
	case p.Rank == 0:
		return "; the floor of " + p.Ladder
	}
	return fmt.Sprintf("; tier %d of %s", p.Rank, p.Ladder)
}

func whyNot(h entitlements.Held, at time.Time) string {
	switch h.Why {
	case entitlements.WhySuspended:
		s := "suspended: Stripe shows its subscription as unpaid or paused"
		if h.OutrankedBy != nil {
			return s + "; and outranked by " + times(*h.OutrankedBy) + ", " + through(*h.OutrankedBy)
		}
		if h.Ladder != "" {
			s += "; it keeps its place on " + h.Ladder + ", so nothing below it there confers"
		}
		return s
	case entitlements.WhyOutranked:
		if h.OutrankedBy == nil {
			return "outranked on " + h.Ladder
		}
		if h.OutrankedBy.Product == h.Product {
			return "held twice: " + through(*h.OutrankedBy) + " has it too, and came first"
		}
		s := "outranked on " + h.Ladder + " by " + times(*h.OutrankedBy) + ", " + through(*h.OutrankedBy)
		if h.OutrankedBy.Status == "suspended" {
			s += ", which keeps its place though it confers nothing"
		}
		return s
	case entitlements.WhyNotInForce:
		if h.Until != nil && !h.Until.After(at) {
			return "over since " + when(*h.Until)
		}
		return "begins " + when(h.Since)
	case entitlements.WhyNoRules:
		return "its product carries no rule"
	case entitlements.WhyRemoved:
		return "its tier was removed, and nothing takes its place"
	}
	return h.Why
}

// whyMissing tells what would give a key that the organisation has nothing of.
func whyMissing(m entitlements.Missing, held []entitlements.Held) string {
	for _, h := range held {
		if slices.Contains(h.Keys, m.Key) {
			return fmt.Sprintf("%s would give it, but does not confer: see below", h.ProductName)
		}
	}
	if len(m.Products) == 0 {
		return "no product gives it"
	}
	return "it holds no product that gives it; these do: " + strings.Join(m.Products, ", ")
}

// printStripe prints which customers pay for the organisation.
func printStripe(out io.Writer, org entitlements.Organization, customers []billing.Customer) {
	fmt.Fprintln(out)
	if len(customers) == 0 {
		fmt.Fprintf(out, "No Stripe customer is linked to %s, so no subscription can reach it: bursar customer link CUSTOMER %s\n", org.Slug, org.Slug)
		return
	}
	ids := make([]string, len(customers))
	for i, c := range customers {
		ids[i] = c.ID
	}
	fmt.Fprintf(out, "Stripe: %s\n", strings.Join(ids, ", "))
}
