package entitlements

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// ErrGrantMoved is wrapped when another transaction changed a line of grants while this one waited for it, in a way that asks
// for other locks. Nothing was done; trying again is right.
var ErrGrantMoved = errors.New("the line of grants has changed meanwhile")

// States of a grant. The first three are open, and one grant of a line at most is; in the others it is over.
const (
	GrantWaiting  = "waiting"  // it has not conferred yet
	GrantActive   = "active"   // it confers
	GrantReplaced = "replaced" // it has conferred, and is displaced now
	GrantExtended = "extended" // another grant goes on from it
	GrantExpired  = "expired"
	GrantRevoked  = "revoked"
)

// GrantStates returns the states of a grant, the open ones first.
func GrantStates() []string {
	return []string{GrantWaiting, GrantActive, GrantReplaced, GrantExtended, GrantExpired, GrantRevoked}
}

// Grant is a product given without a payment. Times are UTC.
type Grant struct {
	ID uuid.UUID `json:"id"`
	// Line is the first grant of its line, Extends the one that it goes on from, nil for the first.
	Line    uuid.UUID  `json:"line"`
	Extends *uuid.UUID `json:"extends,omitempty"`
	// Organization is the slug, "" while it names none; Pool the name of the pool.
	Organization string `json:"organization,omitempty"`
	Pool         string `json:"pool,omitempty"`
	// Product is the slug of what is held; of a grant that is over, of what was given.
	Product  string `json:"product"`
	Quantity int64  `json:"quantity"`
	// State is one of the Grant… words.
	State    string    `json:"state"`
	StartsAt time.Time `json:"starts_at"`
	// EndsAt is from when it confers nothing any more, nil for never.
	EndsAt *time.Time `json:"ends_at,omitempty"`
	// Origin is "operator" or "grandfathered".
	Origin string `json:"origin"`
	Note   string `json:"note,omitempty"`
	// BegunAt is when its pool was settled with its time having come, ConferredAt when it first conferred; nil before.
	BegunAt     *time.Time `json:"begun_at,omitempty"`
	ConferredAt *time.Time `json:"conferred_at,omitempty"`
	// The act that issued it, and the one that closed it; the workflow is empty where there was none.
	IssuedAt       time.Time  `json:"issued_at"`
	IssuedAct      string     `json:"issued_act"`
	IssuedWorkflow string     `json:"issued_workflow,omitempty"`
	ClosedAt       *time.Time `json:"closed_at,omitempty"`
	ClosedAct      string     `json:"closed_act,omitempty"`
	ClosedWorkflow string     `json:"closed_workflow,omitempty"`
	// Attempts counts the failures of the sweep to begin or expire it; LastError is why the last failed, at LastTriedAt.
	Attempts    int        `json:"attempts,omitempty"`
	LastError   string     `json:"last_error,omitempty"`
	LastTriedAt *time.Time `json:"last_tried_at,omitempty"`
}

// Open says that the grant is not over.
func (g Grant) Open() bool {
	return g.State == GrantWaiting || g.State == GrantActive || g.State == GrantReplaced
}

func grantOf(r entitlementsdb.ListLineRow) Grant {
	return Grant{
		ID: r.ID, Line: r.Line, Extends: r.Extends, Organization: r.Organization, Pool: r.Pool, Product: r.Product, Quantity: r.Quantity, State: r.State,
		StartsAt: r.StartsAt.UTC(), EndsAt: utc(r.EndsAt), Origin: r.Origin, Note: r.Note, BegunAt: utc(r.BegunAt), ConferredAt: utc(r.ConferredAt),
		IssuedAt: r.IssuedAt.UTC(), IssuedAct: r.IssuedAct, IssuedWorkflow: r.IssuedWorkflow,
		ClosedAt: utc(r.ClosedAt), ClosedAct: deref(r.ClosedAct), ClosedWorkflow: deref(r.ClosedWorkflow),
		Attempts: int(r.Attempts), LastError: deref(r.LastError), LastTriedAt: utc(r.LastTriedAt),
	}
}

// GrantFilter says which grants are listed; the zero filter is all.
type GrantFilter struct {
	Organization *uuid.UUID
	// States are Grant… words, empty for all.
	States []string
	// Overdue keeps those that the sweep should have begun or expired by now.
	Overdue bool
}

// Check says what is wrong with the filter.
func (f GrantFilter) Check() error {
	for _, s := range f.States {
		if !slices.Contains(GrantStates(), s) {
			return fmt.Errorf("%w: no state of a grant is called %q; they are %s", ErrInvalid, s, strings.Join(GrantStates(), ", "))
		}
	}
	return nil
}

// grantPage is how many grants are read at once.
const grantPage = 500

// ListGrants returns the grants that a filter keeps, the first issued first.
func ListGrants(ctx context.Context, q lockorder.Querier, f GrantFilter) ([]Grant, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	params := entitlementsdb.ListGrantsParams{OrganizationID: f.Organization, States: append([]string{}, f.States...), Overdue: f.Overdue, Most: grantPage}
	all := []Grant{}
	for {
		rows, err := entitlementsdb.New(q).ListGrants(ctx, params)
		if err != nil {
			return nil, fmt.Errorf("reading the grants: %w", err)
		}
		for _, r := range rows {
			all = append(all, grantOf(entitlementsdb.ListLineRow(r)))
		}
		if len(rows) < grantPage {
			return all, nil
		}
		last := rows[len(rows)-1]
		params.AfterAt, params.AfterID = last.IssuedAt, last.ID
	}
}

// GrantLine returns all grants of the line that a grant belongs to, in their order: each goes on from the one before. A grant
// that does not exist wraps ErrNotFound.
func GrantLine(ctx context.Context, q lockorder.Querier, grant uuid.UUID) ([]Grant, error) {
	db := entitlementsdb.New(q)
	g, err := db.GetGrant(ctx, grant)
	switch {
	case isNoRows(err):
		return nil, missingGrant(grant)
	case err != nil:
		return nil, fmt.Errorf("reading grant %s: %w", grant, err)
	}
	rows, err := db.ListLine(ctx, g.Line)
	if err != nil {
		return nil, fmt.Errorf("reading the line of grant %s: %w", grant, err)
	}
	all := make([]Grant, len(rows))
	for i, r := range rows {
		all[i] = grantOf(r)
	}
	return all, nil
}

// readGrant returns one grant that exists.
func readGrant(ctx context.Context, q lockorder.Querier, grant uuid.UUID) (Grant, error) {
	all, err := GrantLine(ctx, q, grant)
	if err != nil {
		return Grant{}, err
	}
	return all[slices.IndexFunc(all, func(g Grant) bool { return g.ID == grant })], nil
}

func missingGrant(grant uuid.UUID) error {
	return &notFoundError{what: "grant", asked: grant.String(), hint: "bursar grant list shows them"}
}

// GrantOutcome is what an act on a grant did.
type GrantOutcome struct {
	// Grant is the grant as it stands after the act: of an extension, the new one.
	Grant Grant `json:"grant"`
	// Repeated is true where the act had been done before: nothing was done now.
	Repeated bool `json:"repeated,omitempty"`
	// Entitlements is how many entitlements changed.
	Entitlements int `json:"entitlements"`
	did          string
}

// Sentence tells a person what the act did.
func (o GrantOutcome) Sentence() string {
	g := o.Grant
	what := g.Product
	if g.Quantity > 1 {
		what = fmt.Sprintf("%s × %d", g.Product, g.Quantity)
	}
	whom := g.Organization
	if whom == "" {
		whom = "no organisation yet"
	}
	s := fmt.Sprintf("%s grant %s: %s for %s, %s, %s", o.did, g.ID, what, whom, span(g), g.State)
	if o.Repeated {
		return s + "; it was done before"
	}
	switch o.Entitlements {
	case 0:
		return s + "; no entitlement changed"
	case 1:
		return s + "; 1 entitlement changed"
	}
	return fmt.Sprintf("%s; %d entitlements changed", s, o.Entitlements)
}

// span tells the bounds of a grant.
func span(g Grant) string {
	end := "without an end"
	if g.EndsAt != nil {
		end = "until " + g.EndsAt.Format(time.RFC3339)
	}
	return "from " + g.StartsAt.Format(time.RFC3339) + " " + end
}
