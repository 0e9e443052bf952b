package billing

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// ErrInvalid is wrapped when an argument could never be stored: an id that is not one of Stripe's, a name that is not
// among those allowed.
var ErrInvalid = errors.New("not valid")

// ErrLinkedElsewhere is returned, as a pointer, when a customer is already linked to another organisation. Links never
// move: what was conferred through one would be left behind in the old organisation's pool.
type ErrLinkedElsewhere struct {
	Customer string
	// Organization is the organisation that the customer is linked to, Slug its slug.
	Organization uuid.UUID
	Slug         string
}

func (e *ErrLinkedElsewhere) Error() string {
	return fmt.Sprintf("customer %s is linked to organisation %s (%s), and a link never moves", e.Customer, e.Slug, e.Organization)
}

// Unreadable is returned, as a pointer, for a subscription as Stripe showed it that cannot be mirrored. Trying again
// helps only when Stripe shows something else.
type Unreadable struct {
	SubscriptionID string
	Why            string
}

func (e *Unreadable) Error() string {
	return fmt.Sprintf("subscription %s cannot be mirrored: %s", e.SubscriptionID, e.Why)
}

func isNoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
