package entitlements

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// MaxNote is how many characters the note of a grant may have.
const MaxNote = 1000

// EndGrantExtended and the others say why the position of a grant ended.
const (
	EndGrantExtended = GrantExtended
	EndGrantExpired  = GrantExpired
	EndGrantRevoked  = GrantRevoked
)

// IssueGrant is a product to be given.
type IssueGrant struct {
	// ID is the new grant's, given by who asks, so that asking again makes no second one.
	ID uuid.UUID `json:"id"`
	// Organization is a slug or id; empty makes a grant that names none, and confers nothing until it is assigned.
	Organization string `json:"organization,omitempty"`
	// Product is the slug.
	Product  string `json:"product"`
	Quantity int64  `json:"quantity"`
	// From is when it begins, nil for now; Until is from when it confers nothing any more, nil for never.
	From  *time.Time `json:"from,omitempty"`
	Until *time.Time `json:"until,omitempty"`
	// Note is for people.
	Note string `json:"note,omitempty"`
}

// Check says what is wrong with the request, before anything starts. Errors wrap ErrInvalid, ErrExists or ErrNotFound.
func (g IssueGrant) Check(ctx context.Context, q lockorder.Querier) error {
	if _, err := g.plan(ctx, q); err != nil {
		return err
	}
	if err := newGrantID(ctx, q, g.ID); err != nil {
		return err
	}
	return notPast(ctx, q, g.Until)
}

// issue is an IssueGrant whose names are resolved.
type issue struct {
	product uuid.UUID
	pool    *uuid.UUID
}

func (g IssueGrant) plan(ctx context.Context, q lockorder.Querier) (issue, error) {
	switch {
	case g.ID == uuid.Nil:
		return issue{}, fmt.Errorf("%w: the grant has no id", ErrInvalid)
	case g.From != nil && g.Until != nil && !g.Until.After(*g.From):
		return issue{}, fmt.Errorf("%w: the grant would end at %s, and begin at %s: the end comes after the beginning", ErrInvalid, moment(*g.Until), moment(*g.From))
	}
	if err := checkQuantity(g.Quantity); err != nil {
		return issue{}, err
	}
	if err := checkNote(g.Note); err != nil {
		return issue{}, err
	}
	product, err := findProduct(ctx, q, g.Product)
	switch {
	case err != nil:
		return issue{}, err
	case product.Succeeded && product.Successor != "":
		return issue{}, fmt.Errorf("%w: %s is no tier any more, and who held it holds %s: grant that", ErrInvalid, product.Slug, product.Successor)
	case product.Succeeded:
		return issue{}, fmt.Errorf("%w: %s is no tier any more, and nothing is held in its place, so it cannot be granted", ErrInvalid, product.Slug)
	}
	plan := issue{product: product.ID}
	if g.Organization != "" {
		org, err := FindOrganization(ctx, q, g.Organization)
		if err != nil {
			return issue{}, err
		}
		plan.pool = &org.DefaultPool
	}
	return plan, nil
}

// Do issues the grant, and settles the pool that it is for. Given again it changes nothing. The transaction is Materializing and
// holds no row yet. Errors wrap ErrInvalid, ErrExists, ErrNotFound or ErrOwed.
func (g IssueGrant) Do(ctx context.Context, tx *lockorder.Tx, act Act) (GrantOutcome, error) {
	if err := act.check(); err != nil {
		return GrantOutcome{}, err
	}
	if err := tx.RequireKind(lockorder.Materializing); err != nil {
		return GrantOutcome{}, err
	}
	plan, err := g.plan(ctx, tx)
	if err != nil {
		return GrantOutcome{}, err
	}
	if plan.pool != nil {
		if err := LockPools(ctx, tx, *plan.pool); err != nil {
			return GrantOutcome{}, err
		}
	}
	out := GrantOutcome{did: "Issued"}
	if out.Repeated, err = g.stands(ctx, tx, act, plan); err != nil {
		return GrantOutcome{}, err
	}
	if !out.Repeated {
		if out.Entitlements, out.Repeated, err = g.write(ctx, tx, act, plan); err != nil {
			return GrantOutcome{}, err
		}
	}
	out.Grant, err = readGrant(ctx, tx, g.ID)
	return out, err
}

// stands tells whether an earlier try has issued the grant.
func (g IssueGrant) stands(ctx context.Context, tx *lockorder.Tx, act Act, plan issue) (bool, error) {
	had, err := entitlementsdb.New(tx).GetGrant(ctx, g.ID)
	switch {
	case isNoRows(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading grant %s: %w", g.ID, err)
	case had.Extends == nil && had.IssuedAct == act.Name && had.ProductID == plan.product && had.Quantity == g.Quantity && sameID(had.PoolID, plan.pool):
		return true, nil
	}
	return false, existingGrant(g.ID)
}

func (g IssueGrant) write(ctx context.Context, tx *lockorder.Tx, act Act, plan issue) (changed int, repeated bool, err error) {
	now, err := tx.Now(ctx)
	if err != nil {
		return 0, false, err
	}
	if g.Until != nil && !g.Until.After(now) {
		return 0, false, pastEnd(*g.Until)
	}
	from := now
	if g.From != nil {
		from = *g.From
	}
	// It waits for another transaction that makes a grant of this id: an earlier try, whose answer was lost.
	made, err := entitlementsdb.New(tx.MayWait("core.grants.id", g.ID.String())).InsertGrant(ctx, entitlementsdb.InsertGrantParams{
		ID: g.ID, PoolID: plan.pool, ProductID: plan.product, Quantity: g.Quantity, State: GrantWaiting, StartsAt: from, EndsAt: g.Until,
		Line: g.ID, Note: g.Note, IssuedAt: now, IssuedAct: act.Name, IssuedWorkflow: act.Workflow,
	})
	switch {
	case err != nil:
		return 0, false, fmt.Errorf("issuing grant %s: %w", g.ID, err)
	case made == 0:
		repeated, err = g.stands(ctx, tx, act, plan)
		return 0, repeated, err
	case plan.pool == nil:
		return 0, false, nil
	}
	err = entitlementsdb.New(tx).ConferGrant(ctx, entitlementsdb.ConferGrantParams{
		GrantID: g.ID, PoolID: *plan.pool, ProductID: plan.product, Quantity: g.Quantity, StartsAt: from, EndsAt: g.Until, Act: act.Name,
	})
	if err != nil {
		return 0, false, fmt.Errorf("making the position of grant %s: %w", g.ID, err)
	}
	changed, err = settleGranted(ctx, tx, act, *plan.pool)
	return changed, false, err
}

// settleGranted settles a pool whose grants an act has changed.
func settleGranted(ctx context.Context, tx *lockorder.Tx, act Act, pool uuid.UUID) (int, error) {
	changed, err := Settle(ctx, tx, act, pool)
	if err != nil && !passing(err) {
		return changed, fmt.Errorf("%w: the pool cannot be settled with this: %w", ErrInvalid, err)
	}
	return changed, err
}

func checkQuantity(n int64) error {
	if n < 1 || n > MaxQuantity {
		return fmt.Errorf("%w: the quantity is %d; it takes 1 to %d", ErrInvalid, n, MaxQuantity)
	}
	return nil
}

func checkNote(note string) error {
	switch n := utf8.RuneCountInString(note); {
	case n > MaxNote:
		return fmt.Errorf("%w: the note has %d characters, and may have %d", ErrInvalid, n, MaxNote)
	case !storable(note):
		return fmt.Errorf("%w: the note is no text that can be stored", ErrInvalid)
	}
	return nil
}

func storable(s string) bool {
	for _, r := range s {
		if r == 0 || r == utf8.RuneError {
			return false
		}
	}
	return true
}

// notPast refuses an end that is over, by the clock that decides.
func notPast(ctx context.Context, q lockorder.Querier, end *time.Time) error {
	if end == nil {
		return nil
	}
	past, err := entitlementsdb.New(q).IsPast(ctx, *end)
	switch {
	case err != nil:
		return fmt.Errorf("reading the clock: %w", err)
	case past:
		return pastEnd(*end)
	}
	return nil
}

func pastEnd(end time.Time) error {
	return fmt.Errorf("%w: the end %s is past; give one that is to come", ErrInvalid, moment(end))
}

// newGrantID refuses the id of a grant that exists.
func newGrantID(ctx context.Context, q lockorder.Querier, id uuid.UUID) error {
	_, err := entitlementsdb.New(q).GetGrant(ctx, id)
	switch {
	case isNoRows(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading grant %s: %w", id, err)
	}
	return existingGrant(id)
}

func existingGrant(id uuid.UUID) error { return fmt.Errorf("grant %s %w", id, ErrExists) }

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func sameID(a, b *uuid.UUID) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
