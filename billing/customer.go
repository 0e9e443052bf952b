package billing

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/billing/internal/billingdb"
	"github.com/bursarhq/bursar/lockorder"
)

// LinkedBy says who linked a customer.
type LinkedBy string

const (
	// ByOperator: a person said so.
	ByOperator LinkedBy = "operator"
	// ByCheckout: a completed checkout named the organisation.
	ByCheckout LinkedBy = "checkout"
)

// Customer is a linked Stripe customer.
type Customer struct {
	ID           string
	Organization uuid.UUID
	// OrganizationSlug is the organisation's slug.
	OrganizationSlug string
	// LinkedAt is in UTC.
	LinkedAt time.Time
	LinkedBy LinkedBy
}

// CheckCustomerID answers an error that wraps ErrInvalid unless id looks like Stripe's id of a customer.
func CheckCustomerID(id string) error {
	if !customerID.MatchString(id) {
		return fmt.Errorf("%w: %q is not the id of a Stripe customer (cus_…)", ErrInvalid, id)
	}
	return nil
}

// Organization returns the organisation that a customer is linked to, and false when it is linked to none.
func Organization(ctx context.Context, q lockorder.Querier, customer string) (id uuid.UUID, ok bool, err error) {
	row, err := billingdb.New(q).ReadLink(ctx, customer)
	switch {
	case isNoRows(err):
		return uuid.Nil, false, nil
	case err != nil:
		return uuid.Nil, false, fmt.Errorf("reading the link of customer %s: %w", customer, err)
	}
	return row.OrganizationID, true, nil
}

// ListCustomers returns the linked customers, by id: all, or those of one organisation.
func ListCustomers(ctx context.Context, q lockorder.Querier, organization *uuid.UUID) ([]Customer, error) {
	rows, err := billingdb.New(q).ListCustomers(ctx, organization)
	if err != nil {
		return nil, fmt.Errorf("listing customers: %w", err)
	}
	customers := make([]Customer, 0, len(rows))
	for _, r := range rows {
		customers = append(customers, Customer{
			ID: r.ID, Organization: r.OrganizationID, OrganizationSlug: r.OrganizationSlug,
			LinkedAt: r.LinkedAt.UTC(), LinkedBy: LinkedBy(r.LinkedBy),
		})
	}
	return customers, nil
}

// LinkCustomer links a customer to an organisation. The same link again changes nothing; another one is refused with
// an *ErrLinkedElsewhere. It takes the customer's row, so the transaction must hold no pool yet, and must not have read
// its time.
func LinkCustomer(ctx context.Context, tx *lockorder.Tx, customer string, organization uuid.UUID, by LinkedBy) (changed bool, err error) {
	if err := CheckCustomerID(customer); err != nil {
		return false, err
	}
	if by != ByOperator && by != ByCheckout {
		return false, fmt.Errorf("%w: a customer is linked by the operator or by a checkout, not by %q", ErrInvalid, by)
	}
	missing, err := tx.LockExisting(ctx, lockorder.CustomerRow(customer))
	if err != nil {
		return false, err
	}
	if len(missing) > 0 {
		// It waits for another transaction that makes the same link.
		made := billingdb.New(tx.MayWait("stripe.customers.id", customer))
		added, err := made.AddLink(ctx, billingdb.AddLinkParams{ID: customer, OrganizationID: organization, LinkedBy: string(by)})
		if err != nil {
			return false, fmt.Errorf("linking customer %s: %w", customer, err)
		}
		if err := tx.Lock(ctx, missing...); err != nil {
			return false, err
		}
		if added > 0 {
			return true, nil
		}
	}
	// It stood before, or was made while the insert waited. Read in a statement of its own, which sees both.
	row, err := billingdb.New(tx).ReadLink(ctx, customer)
	switch {
	case err != nil:
		return false, fmt.Errorf("reading the link of customer %s: %w", customer, err)
	case row.OrganizationID != organization:
		return false, &ErrLinkedElsewhere{Customer: customer, Organization: row.OrganizationID, Slug: row.OrganizationSlug}
	}
	return false, nil
}
