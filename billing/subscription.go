package billing

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bursarhq/bursar/billing/internal/billingdb"
	"github.com/bursarhq/bursar/lockorder"
)

// Mirrored is the mirror's row of a subscription: its last read. Times are UTC.
type Mirrored struct {
	ID string
	// Version rises with every reconcile that held the key.
	Version int64
	// Customer and Status are empty while Stripe has never shown the subscription.
	Customer, Status       string
	PeriodStart, PeriodEnd *time.Time
	TrialEnd               *time.Time
	CancelAt               *time.Time
	CancelAtPeriodEnd      bool
	CanceledAt, EndedAt    *time.Time
	Created                *time.Time
	// ReconciledAt is when a reconcile last held the key.
	ReconciledAt time.Time
}

// Version returns the version of a subscription's mirror, 0 when there is no row. Note it before reading Stripe, and
// compare it under the subscription's key, in a statement of its own: where it moved, what was read may be older
// than what stands.
func Version(ctx context.Context, q lockorder.Querier, subscriptionID string) (int64, error) {
	version, err := billingdb.New(q).ReadVersion(ctx, subscriptionID)
	if err != nil {
		return 0, fmt.Errorf("reading the version of subscription %s: %w", subscriptionID, err)
	}
	return version, nil
}

// HandVersion hands the read of Version to the opening of a transaction that declares the subscription's key; version is
// set once it has run, before the transaction's function does.
func HandVersion(h *lockorder.Handed, subscriptionID string, version *int64) {
	h.Queue(billingdb.ReadVersion, subscriptionID).QueryRow(func(row pgx.Row) error {
		if err := row.Scan(version); err != nil {
			return fmt.Errorf("reading the version of subscription %s: %w", subscriptionID, err)
		}
		return nil
	})
}

// ReadSubscription returns a subscription's mirror, and false when there is no row.
func ReadSubscription(ctx context.Context, q lockorder.Querier, subscriptionID string) (Mirrored, bool, error) {
	row, err := billingdb.New(q).ReadSubscription(ctx, subscriptionID)
	switch {
	case isNoRows(err):
		return Mirrored{}, false, nil
	case err != nil:
		return Mirrored{}, false, fmt.Errorf("reading the mirror of subscription %s: %w", subscriptionID, err)
	}
	return Mirrored{
		ID: row.ID, Version: row.Version, Customer: deref(row.CustomerID), Status: deref(row.Status),
		PeriodStart: utc(row.CurrentPeriodStart), PeriodEnd: utc(row.CurrentPeriodEnd), TrialEnd: utc(row.TrialEnd),
		CancelAt: utc(row.CancelAt), CancelAtPeriodEnd: row.CancelAtPeriodEnd, CanceledAt: utc(row.CanceledAt),
		EndedAt: utc(row.EndedAt), Created: utc(row.StripeCreatedAt), ReconciledAt: row.ReconciledAt.UTC(),
	}, true, nil
}

// Record makes the mirror what one read of Stripe showed: the row, its items, and the current period of each item. It
// returns the new version, and whether anything besides it changed. The caller holds the subscription's key, has
// compared the version under it, and has taken all its locks: the transaction's time is read here.
func Record(ctx context.Context, tx *lockorder.Tx, seen Seen) (version int64, changed bool, err error) {
	if err := tx.Require(lockorder.SubscriptionKey(seen.ID)); err != nil {
		return 0, false, err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return 0, false, err
	}
	known, _, err := ReadSubscription(ctx, tx, seen.ID)
	if err != nil {
		return 0, false, err
	}
	next := merge(known, seen)
	q := billingdb.New(tx)
	version, err = q.WriteSubscription(ctx, billingdb.WriteSubscriptionParams{
		ID: next.ID, CustomerID: &next.Customer, Status: &next.Status,
		CurrentPeriodStart: next.PeriodStart, CurrentPeriodEnd: next.PeriodEnd, TrialEnd: next.TrialEnd,
		CancelAt: next.CancelAt, CancelAtPeriodEnd: next.CancelAtPeriodEnd, CanceledAt: next.CanceledAt,
		EndedAt: next.EndedAt, StripeCreatedAt: next.Created, ReconciledAt: now,
	})
	if err != nil {
		return 0, false, fmt.Errorf("writing the mirror of subscription %s: %w", seen.ID, err)
	}
	items, err := recordItems(ctx, q, seen, now)
	if err != nil {
		return 0, false, err
	}
	periods, err := recordPeriods(ctx, tx, seen.ID, itemIDs(seen.Items), seen.PeriodStart, seen.PeriodEnd)
	if err != nil {
		return 0, false, err
	}
	return version, !same(known, next) || items || periods, nil
}

// RaiseVersion raises the version of a subscription and leaves the rest of its mirror as it was: for a reconcile that
// held the key and could not apply what it read. It makes a row without a status where there is none, and returns
// the new version. The caller holds the subscription's key and all other locks it wants.
func RaiseVersion(ctx context.Context, tx *lockorder.Tx, subscriptionID string) (int64, error) {
	if err := tx.Require(lockorder.SubscriptionKey(subscriptionID)); err != nil {
		return 0, err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return 0, err
	}
	version, err := billingdb.New(tx).RaiseVersion(ctx, billingdb.RaiseVersionParams{ID: subscriptionID, ReconciledAt: now})
	if err != nil {
		return 0, fmt.Errorf("raising the version of subscription %s: %w", subscriptionID, err)
	}
	return version, nil
}

// Event is a Stripe event that led to a reconcile.
type Event struct{ ID, Type string }

// RecordEvents keeps which events led to the reconcile that made the version; an event that led to an earlier one
// keeps that. Events without an id are left out. The caller holds the subscription's key, and the mirror's row exists.
func RecordEvents(ctx context.Context, tx *lockorder.Tx, subscriptionID string, version int64, events []Event) error {
	if err := tx.Require(lockorder.SubscriptionKey(subscriptionID)); err != nil {
		return err
	}
	params := billingdb.WriteEventsParams{SubscriptionID: subscriptionID, Version: version}
	for _, e := range events {
		if e.ID != "" {
			params.EventIds, params.EventTypes = append(params.EventIds, e.ID), append(params.EventTypes, e.Type)
		}
	}
	if len(params.EventIds) == 0 {
		return nil
	}
	var err error
	if params.SeenAt, err = tx.Now(ctx); err != nil {
		return err
	}
	if err := billingdb.New(tx).WriteEvents(ctx, params); err != nil {
		return fmt.Errorf("keeping the events of subscription %s: %w", subscriptionID, err)
	}
	return nil
}

// merge returns the mirror after a read. A known value is not overwritten by a missing one, except where none is itself
// what Stripe says: a cancellation that was taken back, an end that a subscription which goes on does not have.
func merge(known Mirrored, seen Seen) Mirrored {
	next := Mirrored{
		ID: seen.ID, Customer: seen.Customer, Status: seen.Status,
		PeriodStart: seen.PeriodStart, PeriodEnd: seen.PeriodEnd,
		TrialEnd: or(seen.TrialEnd, known.TrialEnd),
		CancelAt: seen.CancelAt, CancelAtPeriodEnd: seen.CancelAtPeriodEnd, CanceledAt: seen.CanceledAt, EndedAt: seen.EndedAt,
		Created: or(seen.Created, known.Created),
	}
	if next.PeriodStart == nil {
		next.PeriodStart, next.PeriodEnd = known.PeriodStart, known.PeriodEnd
	}
	if seen.Standing == Ends {
		next.CanceledAt, next.EndedAt = or(seen.CanceledAt, known.CanceledAt), or(seen.EndedAt, known.EndedAt)
	}
	return next
}

// same tells whether two rows mirror one state.
func same(a, b Mirrored) bool {
	return a.ID == b.ID && a.Customer == b.Customer && a.Status == b.Status && a.CancelAtPeriodEnd == b.CancelAtPeriodEnd &&
		equal(a.PeriodStart, b.PeriodStart) && equal(a.PeriodEnd, b.PeriodEnd) && equal(a.TrialEnd, b.TrialEnd) &&
		equal(a.CancelAt, b.CancelAt) && equal(a.CanceledAt, b.CanceledAt) && equal(a.EndedAt, b.EndedAt) && equal(a.Created, b.Created)
}

func recordItems(ctx context.Context, q *billingdb.Queries, seen Seen, now time.Time) (changed bool, err error) {
	shown := itemIDs(seen.Items)
	removed, err := q.RemoveItems(ctx, billingdb.RemoveItemsParams{SubscriptionID: seen.ID, RemovedAt: now, Shown: shown})
	if err != nil {
		return false, fmt.Errorf("marking removed items of subscription %s: %w", seen.ID, err)
	}
	params := billingdb.WriteItemsParams{SubscriptionID: seen.ID, Ids: shown}
	for _, i := range seen.Items {
		params.Prices = append(params.Prices, i.Price)
		params.Products = append(params.Products, i.Product)
		params.Quantities = append(params.Quantities, i.Quantity)
	}
	written, err := q.WriteItems(ctx, params)
	if err != nil {
		return false, fmt.Errorf("writing the items of subscription %s: %w", seen.ID, err)
	}
	return removed+written > 0, nil
}

// itemIDs returns the ids of items; never nil, since SQL takes nil for NULL.
func itemIDs(items []Item) []string {
	ids := make([]string, 0, len(items))
	for _, i := range items {
		ids = append(ids, i.ID)
	}
	return ids
}

func or(a, b *time.Time) *time.Time {
	if a != nil {
		return a
	}
	return b
}

func equal(a, b *time.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(*b)
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func pointer(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
