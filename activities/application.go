package activities

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows/contract"
)

// application is one read of a subscription being applied.
type application struct {
	tx   *lockorder.Tx
	seen billing.Seen
	act  entitlements.Act

	linked   bool // the customer is linked to org
	org      entitlements.Organization
	mapped   []billing.Mapped
	unmapped []billing.Item
	changes  entitlements.Changes
}

func (a *application) parkedKey() billing.ParkedKey {
	return billing.ParkedKey{Kind: billing.ParkedSubscription, ObjectID: a.seen.ID}
}

// prepare finds out what the read is about and takes all locks that applying it needs: the pools, with what they are owed, then the parked row.
// Links, mappings and the pools of the subscription do not move under the locks held here: a link never does, mappings wait for the
// rendezvous, and positions of a subscription change under its key or the exclusive rendezvous only.
func (a *application) prepare(ctx context.Context) error {
	organization, linked, err := billing.Organization(ctx, a.tx, a.seen.Customer)
	if err != nil {
		return err
	}
	if a.linked = linked; linked {
		if a.org, err = entitlements.FindOrganization(ctx, a.tx, organization.String()); err != nil {
			return err
		}
	}
	held := slices.DeleteFunc(slices.Clone(a.seen.Items), func(i billing.Item) bool { return i.Quantity == 0 })
	if a.mapped, a.unmapped, err = billing.MapItems(ctx, a.tx, held); err != nil {
		return err
	}
	if a.seen.Standing != billing.Pending {
		pools, err := entitlements.PoolsOfSubscription(ctx, a.tx, a.seen.ID)
		if err != nil {
			return err
		}
		if a.linked {
			pools = append(pools, a.org.DefaultPool)
		}
		if err := entitlements.LockPools(ctx, a.tx, pools...); err != nil {
			return err
		}
	}
	_, err = a.tx.LockExisting(ctx, a.parkedKey().Lock())
	return err
}

// converge makes positions and entitlements follow.
func (a *application) converge(ctx context.Context) (err error) {
	switch a.seen.Standing {
	case billing.Confers, billing.Suspends:
		if !a.linked {
			return nil // there is no pool to confer into; it is parked
		}
		sub := entitlements.Subscription{ID: a.seen.ID, Pool: a.org.DefaultPool, Suspended: a.seen.Standing == billing.Suspends}
		for _, m := range a.mapped {
			sub.Items = append(sub.Items, entitlements.Item{ID: m.ID, Product: m.ProductID, Quantity: m.Quantity})
		}
		for _, i := range a.unmapped {
			sub.Keep = append(sub.Keep, i.ID)
		}
		a.changes, err = entitlements.ConvergeSubscription(ctx, a.tx, a.act, sub)
	case billing.Ends:
		a.changes, err = entitlements.EndSubscription(ctx, a.tx, a.act, a.seen.ID, entitlements.EndSubscriptionEnded)
	case billing.Pending:
	}
	return err
}

// park returns what remains to be parked, nil when everything could be applied. A subscription that is over, or
// not paid yet, needs neither link nor mapping; one that is suspended does, since it keeps its place on its ladders.
func (a *application) park() *billing.Work {
	work := &billing.Work{Kind: billing.ParkedSubscription, ObjectID: a.seen.ID, SubscriptionID: a.seen.ID}
	var details []string
	holds := a.seen.Standing == billing.Confers || a.seen.Standing == billing.Suspends
	if !a.linked && holds {
		work.Reason, work.WaitingCustomer = billing.ReasonUnknownCustomer, a.seen.Customer
		details = append(details, fmt.Sprintf("Customer %s is linked to no organisation, so nothing was conferred; link it: bursar customer link %s ORGANISATION", a.seen.Customer, a.seen.Customer))
	}
	if len(a.unmapped) > 0 && holds {
		if work.Reason == "" {
			work.Reason = billing.ReasonUnmappedPrice
		}
		work.WaitingItems = a.unmapped
		names := make([]string, 0, len(a.unmapped))
		for _, i := range a.unmapped {
			names = append(names, fmt.Sprintf("%s (Stripe product %s)", i.Price, i.Product))
		}
		slices.Sort(names)
		details = append(details, fmt.Sprintf("No product is mapped to %s; what is held through it stays as it is. Map it in the catalogue: bursar catalog apply FILE", strings.Join(slices.Compact(names), ", ")))
	}
	if work.Reason == "" {
		return nil
	}
	work.Detail = strings.Join(details, ". ")
	return work
}

// result tells what was done.
func (a *application) result(version int64, mirrored bool) contract.ReconcileResult {
	outcome := contract.OutcomeUnchanged
	if mirrored || a.changes.Any() {
		outcome = contract.OutcomeApplied
	}
	return contract.ReconcileResult{
		Outcome: outcome, Status: a.seen.Status, Organization: a.org.Slug, Version: version,
		Conferred: a.changes.Conferred, Changed: a.changes.Changed, Ended: a.changes.Ended, Entitlements: a.changes.Entitlements,
		Detail: a.sentence(),
	}
}

// sentence says for a person what stands now: "Acme: gold × 1 active; 3 entitlements changed".
func (a *application) sentence() string {
	who := a.org.Name
	if !a.linked {
		who = "Customer " + a.seen.Customer
	}
	var what string
	switch a.seen.Standing {
	case billing.Confers:
		held := make([]string, 0, len(a.mapped))
		for _, m := range a.mapped {
			held = append(held, fmt.Sprintf("%s × %d", m.ProductSlug, m.Quantity))
		}
		if len(held) == 0 {
			held = append(held, "nothing held")
		}
		what = strings.Join(held, ", ") + " " + a.seen.Status
	case billing.Suspends:
		what = fmt.Sprintf("suspended (%s)", a.seen.Status)
	case billing.Ends:
		what = fmt.Sprintf("ended (%s)", a.seen.Status)
	case billing.Pending:
		what = fmt.Sprintf("not paid yet (%s)", a.seen.Status)
	}
	what += a.removedTiers()
	switch n := a.changes.Entitlements; n {
	case 0:
		return fmt.Sprintf("%s: %s; no entitlement changed", who, what)
	case 1:
		return fmt.Sprintf("%s: %s; 1 entitlement changed", who, what)
	default:
		return fmt.Sprintf("%s: %s; %d entitlements changed", who, what, n)
	}
}

// removedTiers says which items hold something else than what is paid for, or nothing.
func (a *application) removedTiers() string {
	var parts []string
	if n := a.changes.Succeeded; n > 0 {
		parts = append(parts, fmt.Sprintf("%d held as what stands in place of a removed tier", n))
	}
	if n := a.changes.Withheld; n > 0 {
		parts = append(parts, fmt.Sprintf("%d not held, the tier having been removed with nothing in its place", n))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

func mode(live bool) string {
	if live {
		return "live"
	}
	return "test"
}

// longestDetail bounds what is kept of a failure's text, in bytes.
const longestDetail = 4000

// storable makes a text one that the table can hold: not empty, not endless, valid for PostgreSQL.
func storable(text string) string {
	text = strings.TrimSpace(strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "�"))
	if text == "" {
		return "The reconcile failed without saying why; see its workflow."
	}
	if len(text) > longestDetail {
		text = strings.ToValidUTF8(text[:longestDetail], "") + " …"
	}
	return text
}
