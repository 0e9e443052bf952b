package billing

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/billing/internal/billingdb"
	"github.com/bursarhq/bursar/lockorder"
)

// ParkedKind says what kind of object is parked.
type ParkedKind string

const (
	// ParkedSubscription: a subscription that could not be applied as a whole.
	ParkedSubscription ParkedKind = "subscription"
	// ParkedCheckout: a checkout session whose customer could not be linked.
	ParkedCheckout ParkedKind = "checkout"
)

// Reason says why something is parked.
type Reason string

// The reasons. They are stored and shown, and go into results of workflows.
const (
	ReasonUnknownCustomer     Reason = "unknown_customer"     // the customer is linked to no organisation
	ReasonUnmappedPrice       Reason = "unmapped_price"       // a price stands for no product
	ReasonNotFound            Reason = "not_found"            // Stripe knows no such object
	ReasonLivemodeMismatch    Reason = "livemode_mismatch"    // a test object where live ones are expected, or the reverse
	ReasonUnknownOrganization Reason = "unknown_organization" // the checkout names an organisation that does not exist
	ReasonConflictingLink     Reason = "conflicting_link"     // the checkout names another organisation than the customer is linked to
	ReasonFailed              Reason = "failed"               // applying it failed, and trying again would too
)

// ParkedKey names one parked object.
type ParkedKey struct {
	Kind     ParkedKind
	ObjectID string
}

// Lock is the lock of the object's row.
func (k ParkedKey) Lock() lockorder.Lock {
	return lockorder.ParkedWorkRow(string(k.Kind), k.ObjectID)
}

// Work is what is to be parked.
type Work struct {
	Kind     ParkedKind
	ObjectID string
	Reason   Reason
	// Detail is one sentence for the operator: what is wrong, and what would free it.
	Detail string
	// SubscriptionID is the subscription to reconcile when it is tried again.
	SubscriptionID string
	// WaitingCustomer is the customer whose link would free it, or empty.
	WaitingCustomer string
	// WaitingOrganization is the organisation, by slug or id, whose making would free it, or empty.
	WaitingOrganization string
	// WaitingItems are the items whose prices are not mapped: a mapping of any of them makes it due.
	WaitingItems []Item
}

// Park parks an object, or says anew why it is parked: then it counts one more attempt, and a retry that was requested
// stays requested until it has been handed on. The caller holds the key of the subscription and, if it exists, the
// object's row.
func Park(ctx context.Context, tx *lockorder.Tx, w Work) error {
	if err := tx.Require(lockorder.SubscriptionKey(w.SubscriptionID)); err != nil {
		return err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	params := billingdb.WriteParkedParams{
		Kind: string(w.Kind), ObjectID: w.ObjectID, Reason: string(w.Reason), Detail: w.Detail,
		SubscriptionID: w.SubscriptionID, WaitingCustomer: pointer(w.WaitingCustomer),
		WaitingPrices: []string{}, WaitingProducts: []string{}, WaitingOrganization: pointer(w.WaitingOrganization), At: now,
	}
	items := slices.Clone(w.WaitingItems)
	slices.SortFunc(items, func(a, b Item) int { return cmp.Or(cmp.Compare(a.Price, b.Price), cmp.Compare(a.Product, b.Product)) })
	for n, i := range items {
		if n == 0 || i.Price != items[n-1].Price || i.Product != items[n-1].Product {
			params.WaitingPrices = append(params.WaitingPrices, i.Price)
			params.WaitingProducts = append(params.WaitingProducts, i.Product)
		}
	}
	if err := billingdb.New(tx).WriteParked(ctx, params); err != nil {
		return fmt.Errorf("parking %s %s: %w", w.Kind, w.ObjectID, err)
	}
	return nil
}

// Resolve marks a parked object as done, and returns whether it was open. The caller holds the object's row, if it
// exists.
func Resolve(ctx context.Context, tx *lockorder.Tx, key ParkedKey) (bool, error) {
	now, err := tx.Now(ctx)
	if err != nil {
		return false, err
	}
	n, err := billingdb.New(tx).ResolveParked(ctx, billingdb.ResolveParkedParams{Kind: string(key.Kind), ObjectID: key.ObjectID, At: now})
	if err != nil {
		return false, fmt.Errorf("resolving parked %s %s: %w", key.Kind, key.ObjectID, err)
	}
	return n > 0, nil
}

// Parked is an open parked object. Times are UTC.
type Parked struct {
	ParkedKey
	Reason Reason
	// Detail is one sentence for the operator.
	Detail string
	// SubscriptionID is the subscription that is reconciled when it is tried again.
	SubscriptionID string
	// WaitingCustomer is the customer whose link would free it, or empty.
	WaitingCustomer string
	// WaitingPrices and WaitingProducts are Stripe's ids of what is not mapped, pair by pair.
	WaitingPrices, WaitingProducts []string
	// Attempts counts how often it was parked without being resolved in between.
	Attempts              int
	ParkedAt, LastTriedAt time.Time
	// RetryRequestedAt is when another try was asked for that has not been handed on yet, or nil.
	RetryRequestedAt *time.Time
	// Customer is who pays, as far as it is known.
	Customer string
	// Organization is the slug of the organisation that the customer is linked to, or empty.
	Organization string
}

// ParkedFilter chooses among open parked objects. The zero filter chooses all.
type ParkedFilter struct {
	// Organization chooses what concerns the customers of one organisation.
	Organization *uuid.UUID
	// Customer chooses what concerns one customer.
	Customer string
	// Object chooses by the object's id, or by the id of its subscription.
	Object string
}

// PageSize is how many parked objects one page holds at most.
const PageSize = 200

// ListParked returns one page of open parked objects, by kind and id, beginning after the key given; the zero key begins
// at the start. A page of fewer than PageSize is the last.
func ListParked(ctx context.Context, q lockorder.Querier, filter ParkedFilter, after ParkedKey) ([]Parked, error) {
	rows, err := billingdb.New(q).ListParked(ctx, billingdb.ListParkedParams{
		OrganizationID: filter.Organization, CustomerID: pointer(filter.Customer), ObjectID: pointer(filter.Object),
		AfterKind: string(after.Kind), AfterObject: after.ObjectID, PageSize: PageSize,
	})
	if err != nil {
		return nil, fmt.Errorf("listing parked work: %w", err)
	}
	parked := make([]Parked, 0, len(rows))
	for _, r := range rows {
		parked = append(parked, Parked{
			ParkedKey: ParkedKey{ParkedKind(r.Kind), r.ObjectID}, Reason: Reason(r.Reason), Detail: r.Detail,
			SubscriptionID: r.SubscriptionID, WaitingCustomer: deref(r.WaitingCustomer),
			WaitingPrices: r.WaitingPrices, WaitingProducts: r.WaitingProducts, Attempts: int(r.Attempts),
			ParkedAt: r.ParkedAt.UTC(), LastTriedAt: r.LastTriedAt.UTC(), RetryRequestedAt: utc(r.RetryRequestedAt),
			Customer: cmp.Or(deref(r.WaitingCustomer), deref(r.MirrorCustomer)), Organization: deref(r.OrganizationSlug),
		})
	}
	return parked, nil
}

// AllParked returns all open parked objects that the filter chooses, by kind and id.
func AllParked(ctx context.Context, q lockorder.Querier, filter ParkedFilter) ([]Parked, error) {
	var all []Parked
	after := ParkedKey{}
	for {
		page, err := ListParked(ctx, q, filter, after)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < PageSize {
			return all, nil
		}
		after = page[len(page)-1].ParkedKey
	}
}

// Due is a parked object that is to be tried again.
type Due struct {
	ParkedKey
	// SubscriptionID is the subscription to reconcile.
	SubscriptionID string
	// RequestedAt is when the retry was asked for, nil when it is due for another reason: its customer is linked now, one
	// of its prices mapped, or its organisation made.
	RequestedAt *time.Time
}

// ListDue returns one page of at most limit parked objects that are due, by kind and id, beginning after the key given;
// the zero key begins at the start. What is due is told from the tables as they are at that moment.
func ListDue(ctx context.Context, q lockorder.Querier, after ParkedKey, limit int) ([]Due, error) {
	rows, err := billingdb.New(q).ListDue(ctx, billingdb.ListDueParams{AfterKind: string(after.Kind), AfterObject: after.ObjectID, PageSize: int32(limit)})
	if err != nil {
		return nil, fmt.Errorf("listing parked work that is due: %w", err)
	}
	due := make([]Due, 0, len(rows))
	for _, r := range rows {
		due = append(due, Due{ParkedKey: ParkedKey{ParkedKind(r.Kind), r.ObjectID}, SubscriptionID: r.SubscriptionID, RequestedAt: r.RetryRequestedAt})
	}
	return due, nil
}

// RequestRetry asks for another try of parked objects, and returns how many of them were open. It locks their rows, so the
// transaction must not have read its time.
func RequestRetry(ctx context.Context, tx *lockorder.Tx, keys ...ParkedKey) (int, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	if err := lockParked(ctx, tx, keys); err != nil {
		return 0, err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return 0, err
	}
	params := billingdb.RequestRetriesParams{At: now}
	for _, k := range keys {
		params.Kinds, params.ObjectIds = append(params.Kinds, string(k.Kind)), append(params.ObjectIds, k.ObjectID)
	}
	n, err := billingdb.New(tx).RequestRetries(ctx, params)
	if err != nil {
		return 0, fmt.Errorf("requesting retries: %w", err)
	}
	return int(n), nil
}

// HandedOn says that the retries requested of these objects have been handed on to something that does not forget
// them. A request made since they were listed stays. It locks the rows of those that carry a request, so the
// transaction must not have read its time.
func HandedOn(ctx context.Context, tx *lockorder.Tx, due []Due) error {
	params := billingdb.ClearRetryRequestsParams{}
	var keys []ParkedKey
	for _, d := range due {
		if d.RequestedAt != nil {
			keys = append(keys, d.ParkedKey)
			params.Kinds, params.ObjectIds = append(params.Kinds, string(d.Kind)), append(params.ObjectIds, d.ObjectID)
			params.RequestedAt = append(params.RequestedAt, *d.RequestedAt)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	if err := lockParked(ctx, tx, keys); err != nil {
		return err
	}
	if _, err := billingdb.New(tx).ClearRetryRequests(ctx, params); err != nil {
		return fmt.Errorf("clearing requested retries: %w", err)
	}
	return nil
}

func lockParked(ctx context.Context, tx *lockorder.Tx, keys []ParkedKey) error {
	locks := make([]lockorder.Lock, 0, len(keys))
	for _, k := range keys {
		locks = append(locks, k.Lock())
	}
	_, err := tx.LockExisting(ctx, locks...)
	return err
}
