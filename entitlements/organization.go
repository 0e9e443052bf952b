package entitlements

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// Organization is a member.
type Organization struct {
	ID   uuid.UUID
	Slug string
	Name string
	// Type is the slug of its organisation type.
	Type        string
	DefaultPool uuid.UUID
}

// NewOrganization is what an organisation is made from.
type NewOrganization struct {
	// ID and DefaultPool are given by who asks, so that asking again makes no second one; uuid.Nil makes new ones.
	ID, DefaultPool uuid.UUID
	// Slug is the name it goes by in commands: a-z, 0-9 and hyphens, at most 63, unique.
	Slug string
	// Name is for people.
	Name string
	// Type is the slug of an organisation type.
	Type string
}

var slugPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// ValidSlug says whether s can be a slug: 1 to 63 of a-z, 0-9 and hyphen, not beginning with a hyphen.
func ValidSlug(s string) bool { return slugPattern.MatchString(s) }

// nearest bounds how many names are compared to find those near one that does not exist.
const nearest = 20_000

// FindOrganization returns the organisation with a slug or an id. Where there is none the error wraps ErrNotFound and
// names those near.
func FindOrganization(ctx context.Context, q lockorder.Querier, slugOrID string) (Organization, error) {
	params := entitlementsdb.FindOrganizationParams{Slug: slugOrID}
	if id, err := uuid.Parse(slugOrID); err == nil && len(slugOrID) == 36 {
		params.ID = &id
	}
	db := entitlementsdb.New(q)
	row, err := db.FindOrganization(ctx, params)
	if err == nil {
		return Organization(row), nil
	}
	if !isNoRows(err) {
		return Organization{}, fmt.Errorf("reading organisation %q: %w", slugOrID, err)
	}
	names, err := db.ListOrganizationNames(ctx, nearest)
	if err != nil {
		return Organization{}, fmt.Errorf("reading the names of organisations: %w", err)
	}
	missing := &notFoundError{what: "organisation", asked: slugOrID}
	if len(names) == 0 {
		missing.hint = "there is none yet: bursar org create makes one"
	}
	candidates := make([]candidate, len(names))
	for i, n := range names {
		candidates[i] = candidate{slug: n.Slug, name: n.Name}
	}
	missing.near = near(slugOrID, candidates)
	return Organization{}, missing
}

// Validate says why the organisation would be refused as things stand: errors wrap ErrInvalid, ErrExists, or ErrNotFound for the
// type. It takes no lock.
func (n NewOrganization) Validate(ctx context.Context, q lockorder.Querier) error {
	if _, err := n.typeOf(ctx, q); err != nil {
		return err
	}
	_, err := entitlementsdb.New(q).FindOrganization(ctx, entitlementsdb.FindOrganizationParams{Slug: n.Slug})
	switch {
	case err == nil:
		return fmt.Errorf("organisation %q %w", n.Slug, ErrExists)
	case !isNoRows(err):
		return fmt.Errorf("reading organisation %q: %w", n.Slug, err)
	}
	return nil
}

// typeOf returns the id of the type, or what is wrong with the request.
func (n NewOrganization) typeOf(ctx context.Context, q lockorder.Querier) (uuid.UUID, error) {
	switch {
	case !ValidSlug(n.Slug):
		return uuid.Nil, fmt.Errorf("%w: %q cannot be a slug: use 1 to 63 of a-z, 0-9 and hyphen, not beginning with a hyphen", ErrInvalid, n.Slug)
	case strings.TrimSpace(n.Name) == "":
		return uuid.Nil, fmt.Errorf("%w: the organisation needs a name", ErrInvalid)
	}
	id, err := entitlementsdb.New(q).FindOrganizationType(ctx, n.Type)
	switch {
	case isNoRows(err):
		return uuid.Nil, missingType(ctx, q, n.Type)
	case err != nil:
		return uuid.Nil, fmt.Errorf("reading organisation type %q: %w", n.Type, err)
	}
	return id, nil
}

// CreateOrganization makes an organisation with its default pool, and settles that: it holds its type's default, the
// floor. The transaction is Materializing and has not read its time yet. Errors wrap ErrInvalid, ErrExists, or ErrNotFound for
// the type.
func CreateOrganization(ctx context.Context, tx *lockorder.Tx, act Act, n NewOrganization) (Organization, error) {
	if err := tx.RequireKind(lockorder.Materializing); err != nil {
		return Organization{}, err
	}
	typeID, err := n.typeOf(ctx, tx)
	if err != nil {
		return Organization{}, err
	}
	q := entitlementsdb.New(tx)
	// The default that the pool begins with is read under the type's row: a new default either is there already or finds the
	// organisation among those to be settled.
	if err := tx.Lock(ctx, lockorder.OrganizationTypeRow(typeID)); err != nil {
		return Organization{}, err
	}
	org := Organization{ID: orNew(n.ID), Slug: n.Slug, Name: n.Name, Type: n.Type, DefaultPool: orNew(n.DefaultPool)}
	if n.ID != uuid.Nil {
		had, err := q.FindOrganization(ctx, entitlementsdb.FindOrganizationParams{ID: &n.ID})
		if err == nil {
			return Organization(had), nil // made by an earlier try
		}
		if !isNoRows(err) {
			return Organization{}, fmt.Errorf("reading organisation %s: %w", n.ID, err)
		}
	}
	// It waits for another transaction that makes an organisation of this slug.
	maker := entitlementsdb.New(tx.MayWait("core.organizations.slug", org.Slug))
	made, err := maker.InsertOrganization(ctx, entitlementsdb.InsertOrganizationParams{ID: org.ID, Slug: org.Slug, Name: org.Name, TypeID: typeID})
	switch {
	case err != nil:
		return Organization{}, fmt.Errorf("making organisation %q: %w", n.Slug, err)
	case made == 0:
		return Organization{}, fmt.Errorf("organisation %q %w", n.Slug, ErrExists)
	}
	if err := q.InsertDefaultPool(ctx, entitlementsdb.InsertDefaultPoolParams{ID: org.DefaultPool, OrganizationID: org.ID}); err != nil {
		return Organization{}, fmt.Errorf("making the default pool of organisation %q: %w", n.Slug, err)
	}
	if err := tx.Lock(ctx, lockorder.PoolRow(org.DefaultPool)); err != nil {
		return Organization{}, err
	}
	if _, err := Settle(ctx, tx, act, org.DefaultPool); err != nil {
		return Organization{}, err
	}
	return org, nil
}

func orNew(id uuid.UUID) uuid.UUID {
	if id == uuid.Nil {
		return uuid.New()
	}
	return id
}

func missingType(ctx context.Context, q lockorder.Querier, asked string) error {
	types, err := ListOrganizationTypes(ctx, q)
	if err != nil {
		return err
	}
	missing := &notFoundError{what: "organisation type", asked: asked}
	names := make([]string, 0, len(types))
	for _, t := range types {
		names = append(names, t.Slug)
	}
	if len(names) == 0 {
		missing.hint = "there is none yet: bursar catalog apply makes them"
	} else {
		missing.hint = "there are: " + strings.Join(names, ", ")
	}
	return missing
}

// OrganizationType is a kind of organisation.
type OrganizationType struct {
	ID   uuid.UUID
	Slug string
	Name string
	// Default is the slug of the product that an organisation of this type holds while nothing else does, "" for none.
	Default string
}

// ListOrganizationTypes returns all organisation types by slug.
func ListOrganizationTypes(ctx context.Context, q lockorder.Querier) ([]OrganizationType, error) {
	rows, err := entitlementsdb.New(q).ListOrganizationTypes(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the organisation types: %w", err)
	}
	types := make([]OrganizationType, 0, len(rows))
	for _, r := range rows {
		types = append(types, OrganizationType{ID: r.ID, Slug: r.Slug, Name: r.Name, Default: deref(r.DefaultProduct)})
	}
	return types, nil
}

// ListedOrganization is an organisation with what confers in its default pool, for a list.
type ListedOrganization struct {
	Organization
	CreatedAt time.Time
	// Conferring names the products, "" for none: "gold, seats × 3".
	Conferring string
}

// ListOrganizations returns at most limit organisations whose slug comes after the one given, by slug. Begin with "".
func ListOrganizations(ctx context.Context, q lockorder.Querier, after string, limit int) ([]ListedOrganization, error) {
	rows, err := entitlementsdb.New(q).ListOrganizations(ctx, entitlementsdb.ListOrganizationsParams{After: after, Most: int32(limit)})
	if err != nil {
		return nil, fmt.Errorf("reading the organisations: %w", err)
	}
	list := make([]ListedOrganization, 0, len(rows))
	for _, r := range rows {
		list = append(list, ListedOrganization{
			Organization: Organization{ID: r.ID, Slug: r.Slug, Name: r.Name, Type: r.Type, DefaultPool: r.DefaultPool},
			CreatedAt:    r.CreatedAt, Conferring: r.Conferring,
		})
	}
	return list, nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
