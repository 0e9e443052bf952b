package entitlements

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// LadderView is a ladder with what a person asks about it.
type LadderView struct {
	ID    uuid.UUID  `json:"id"`
	Slug  string     `json:"slug"`
	Name  string     `json:"name"`
	Tiers []TierView `json:"tiers"`
}

// TierView is a tier of a ladder.
type TierView struct {
	Rank    int    `json:"rank"`
	Product string `json:"product"`
	Name    string `json:"name"`
	// Holders is how many pools hold the product.
	Holders int `json:"holders"`
	// DefaultOf names the organisation types whose default it is, separated by commas.
	DefaultOf string `json:"default_of,omitempty"`
}

// ViewLadder returns a ladder by its slug, its tiers from the floor up. Where there is none the error wraps ErrNotFound and
// names those near.
func ViewLadder(ctx context.Context, q lockorder.Querier, slug string) (LadderView, error) {
	ladder, tiers, err := findLadder(ctx, q, slug)
	if err != nil {
		return LadderView{}, err
	}
	view := LadderView{ID: ladder.ID, Slug: ladder.Slug, Name: ladder.Name, Tiers: make([]TierView, len(tiers))}
	for i, t := range tiers {
		view.Tiers[i] = TierView{Rank: int(t.Rank), Product: t.Slug, Name: t.Name, Holders: int(t.Holders), DefaultOf: t.DefaultOf}
	}
	return view, nil
}

// ProductView is a product with what a person asks about it.
type ProductView struct {
	ID   uuid.UUID `json:"id"`
	Slug string    `json:"slug"`
	Name string    `json:"name"`
	// Sets are the slugs of the sets it carries, Gives what these give.
	Sets  []string         `json:"sets"`
	Gives map[string]Value `json:"gives"`
	// Ladder is the slug of the ladder it is a tier of, "" for none; Rank its place there.
	Ladder string `json:"ladder,omitempty"`
	Rank   int    `json:"rank,omitempty"`
	// Succeeded is true where its tier was removed while it was held: Successor then stands in its place, "" for nothing.
	Succeeded bool   `json:"succeeded,omitempty"`
	Successor string `json:"successor,omitempty"`
	// Holders is how many pools hold it, DefaultOf the organisation types whose default it is.
	Holders   int      `json:"holders"`
	DefaultOf []string `json:"default_of,omitempty"`
}

// ViewProduct returns a product by its slug. Where there is none the error wraps ErrNotFound and names those near.
func ViewProduct(ctx context.Context, q lockorder.Querier, slug string) (ProductView, error) {
	product, err := findProduct(ctx, q, slug)
	if err != nil {
		return ProductView{}, err
	}
	c, err := LoadCatalogue(ctx, q)
	if err != nil {
		return ProductView{}, err
	}
	holders, err := Holders(ctx, q, c, []string{slug})
	if err != nil {
		return ProductView{}, err
	}
	view := ProductView{
		ID: product.ID, Slug: product.Slug, Name: product.Name, Sets: c.Products[slug].Sets, Gives: c.gives(slug), Ladder: product.Ladder,
		Succeeded: product.Succeeded, Successor: product.Successor, Holders: holders[slug],
	}
	if product.Rank != nil {
		view.Rank = int(*product.Rank)
	}
	for _, t := range c.Types {
		if t.Default == slug {
			view.DefaultOf = append(view.DefaultOf, t.Slug)
		}
	}
	slices.Sort(view.DefaultOf)
	return view, nil
}

// gives returns what one position of a product gives.
func (c Catalogue) gives(product string) map[string]Value {
	gives := map[string]Value{}
	for _, set := range c.Products[product].Sets {
		for key, value := range c.Sets[set].Rules {
			if had, ok := gives[key]; ok {
				value = combine(had, value, c.Keys[key].Aggregation == "sum")
			}
			gives[key] = value
		}
	}
	return gives
}

// SetView is an entitlement set with what a person asks about it.
type SetView struct {
	ID    uuid.UUID        `json:"id"`
	Slug  string           `json:"slug"`
	Name  string           `json:"name"`
	Rules map[string]Value `json:"rules"`
	// Products are the slugs of the products that carry it, Pools how many pools hold one of them.
	Products []string `json:"products"`
	Pools    int      `json:"pools"`
}

// ViewSet returns a set by its slug. Where there is none the error wraps ErrNotFound and names those near.
func ViewSet(ctx context.Context, q lockorder.Querier, slug string) (SetView, error) {
	c, err := LoadCatalogue(ctx, q)
	if err != nil {
		return SetView{}, err
	}
	set, ok := c.Sets[slug]
	if !ok {
		var candidates []candidate
		for _, s := range c.Sets {
			candidates = append(candidates, candidate{slug: s.Slug, name: s.Name})
		}
		return SetView{}, &notFoundError{what: "set", asked: slug, near: near(slug, candidates), hint: "bursar set list shows them"}
	}
	view := SetView{ID: set.ID, Slug: set.Slug, Name: set.Name, Rules: set.Rules, Products: []string{}}
	var ids []uuid.UUID
	for _, p := range c.Products {
		if slices.Contains(p.Sets, slug) {
			view.Products = append(view.Products, p.Slug)
			ids = append(ids, p.ID)
		}
	}
	slices.Sort(view.Products)
	n, err := entitlementsdb.New(q).CountHoldingPools(ctx, ids)
	if err != nil {
		return SetView{}, fmt.Errorf("counting the pools that hold products of set %s: %w", slug, err)
	}
	view.Pools = int(n)
	return view, nil
}
