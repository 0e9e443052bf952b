package activities

import (
	"context"
	"fmt"
	"slices"

	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/lockpath"
	"github.com/bursarhq/bursar/lockorder"
)

// Operator are the acts of a person. Commands call them directly and get errors as they are; where one runs as an activity, its
// errors are translated.
type Operator struct {
	DB *lockorder.DB
}

// NewOrganizationRequest is the input of CreateOrganization.
type NewOrganizationRequest struct {
	// Slug, Name and Type are as in entitlements.NewOrganization.
	Slug string `json:"slug"`
	Name string `json:"name"`
	Type string `json:"type"`
}

// CreateOrganization makes an organisation with its default pool, which then holds the default of the organisation's
// type. Errors wrap entitlements.ErrInvalid, ErrExists or ErrNotFound.
//
// Running it twice is safe: the slug is unique, so a second run changes nothing and answers that it exists.
func (o *Operator) CreateOrganization(ctx context.Context, request NewOrganizationRequest) (entitlements.Organization, error) {
	var made entitlements.Organization
	err := o.DB.Run(ctx, lockpath.OrganizationCreate.Spec(),
		func(ctx context.Context, tx *lockorder.Tx) (err error) {
			act := entitlements.Act{Name: "organization-create", Workflow: workflowID(ctx)}
			made, err = entitlements.CreateOrganization(ctx, tx, act, entitlements.NewOrganization{Slug: request.Slug, Name: request.Name, Type: request.Type})
			return err
		})
	if err != nil {
		return entitlements.Organization{}, translateInActivity(ctx, err)
	}
	return made, nil
}

// LinkCustomerRequest is the input of LinkCustomer.
type LinkCustomerRequest struct {
	// Customer is Stripe's id of the customer.
	Customer string `json:"customer"`
	// Organization is the organisation's slug or id.
	Organization string `json:"organization"`
}

// LinkCustomerResult says what LinkCustomer did.
type LinkCustomerResult struct {
	// Linked is false when the link stood already.
	Linked       bool                      `json:"linked"`
	Organization entitlements.Organization `json:"organization"`
	// Freed is the parked work that waits for this link: it is due now, and is tried again by the next run of ParkedRetry.
	Freed []billing.Parked `json:"freed,omitempty"`
}

// LinkCustomer links a Stripe customer to an organisation. Errors wrap billing.ErrInvalid or entitlements.ErrNotFound, or
// are a *billing.ErrLinkedElsewhere: links never move.
//
// Running it twice is safe: the same link again changes nothing.
func (o *Operator) LinkCustomer(ctx context.Context, request LinkCustomerRequest) (LinkCustomerResult, error) {
	result, err := o.linkCustomer(ctx, request)
	return result, translateInActivity(ctx, err)
}

func (o *Operator) linkCustomer(ctx context.Context, request LinkCustomerRequest) (LinkCustomerResult, error) {
	if err := billing.CheckCustomerID(request.Customer); err != nil {
		return LinkCustomerResult{}, err
	}
	org, err := reading(ctx, func(ctx context.Context) (entitlements.Organization, error) {
		return entitlements.FindOrganization(ctx, o.DB.Reader(), request.Organization)
	})
	if err != nil {
		return LinkCustomerResult{}, err
	}
	result := LinkCustomerResult{Organization: org}
	err = o.DB.Run(ctx, lockpath.CustomerLink.Spec(), func(ctx context.Context, tx *lockorder.Tx) (err error) {
		result.Linked, err = billing.LinkCustomer(ctx, tx, request.Customer, org.ID, billing.ByOperator)
		return err
	})
	if err != nil {
		return LinkCustomerResult{}, err
	}
	parked, err := o.allParked(ctx, billing.ParkedFilter{Customer: request.Customer})
	if err != nil {
		return LinkCustomerResult{}, fmt.Errorf("the link stands, but what it frees could not be read: %w", err)
	}
	result.Freed = slices.DeleteFunc(parked, func(p billing.Parked) bool { return p.WaitingCustomer != request.Customer })
	return result, nil
}

func (o *Operator) allParked(ctx context.Context, filter billing.ParkedFilter) ([]billing.Parked, error) {
	return reading(ctx, func(ctx context.Context) ([]billing.Parked, error) {
		return billing.AllParked(ctx, o.DB.Reader(), filter)
	})
}

// RetryRequest is the input of RequestRetry.
type RetryRequest struct {
	// Objects are ids of parked objects, or of the subscriptions that parked checkouts belong to.
	Objects []string `json:"objects,omitempty"`
	// All asks for everything that is parked; Objects is empty then.
	All bool `json:"all,omitempty"`
}

// RetryResult says what RequestRetry asked for.
type RetryResult struct {
	// Requested are the parked objects that will be tried again by the next run of ParkedRetry.
	Requested []billing.ParkedKey `json:"requested,omitempty"`
}

// RequestRetry asks for another try of parked objects. When one of the ids names nothing that is parked, nothing is
// asked for, and the error wraps entitlements.ErrNotFound.
//
// Running it twice is safe: it writes when a retry was last asked for, and a request that was handed on meanwhile leads to
// one more read of Stripe.
func (o *Operator) RequestRetry(ctx context.Context, request RetryRequest) (RetryResult, error) {
	result, err := o.requestRetry(ctx, request)
	return result, translateInActivity(ctx, err)
}

func (o *Operator) requestRetry(ctx context.Context, request RetryRequest) (RetryResult, error) {
	var filters []billing.ParkedFilter
	switch {
	case request.All && len(request.Objects) > 0:
		return RetryResult{}, fmt.Errorf("%w: name objects or ask for all, not both", billing.ErrInvalid)
	case request.All:
		filters = append(filters, billing.ParkedFilter{})
	case len(request.Objects) == 0:
		return RetryResult{}, fmt.Errorf("%w: no object is named", billing.ErrInvalid)
	}
	for _, id := range request.Objects {
		if id == "" {
			return RetryResult{}, fmt.Errorf("%w: an empty id was given", billing.ErrInvalid)
		}
		filters = append(filters, billing.ParkedFilter{Object: id})
	}
	var keys []billing.ParkedKey // each once: an id may name an object and its subscription
	for _, filter := range filters {
		found, err := o.allParked(ctx, filter)
		if err != nil {
			return RetryResult{}, err
		}
		if len(found) == 0 && !request.All {
			return RetryResult{}, fmt.Errorf("nothing is parked under %s; bursar parked lists what is: %w", filter.Object, entitlements.ErrNotFound)
		}
		for _, p := range found {
			if !slices.Contains(keys, p.ParkedKey) {
				keys = append(keys, p.ParkedKey)
			}
		}
	}
	for chunk := range slices.Chunk(keys, billing.PageSize) {
		err := o.DB.Run(ctx, lockpath.ParkedRetryRequest.Spec(), func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := billing.RequestRetry(ctx, tx, chunk...)
			return err
		})
		if err != nil {
			return RetryResult{}, err
		}
	}
	return RetryResult{Requested: keys}, nil
}
