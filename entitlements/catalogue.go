package entitlements

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// SyncCap is how many pools a catalogue change may reach and still be settled in its own transaction.
const SyncCap = 50

// ResourceKey is what can be entitled.
type ResourceKey struct {
	Key string
	// Kind is Numeric or Boolean.
	Kind string
	// Aggregation is "sum" or "max". That of a boolean is "max".
	Aggregation string
	// Window is "none", "day" or "month".
	Window      string
	Description string
}

// Set is a named bundle of rules.
type Set struct {
	ID    uuid.UUID
	Slug  string
	Name  string
	Rules map[string]Value
}

// Product is what an organisation can hold.
type Product struct {
	ID   uuid.UUID
	Slug string
	Name string
	// Sets are the slugs of the sets it carries, sorted.
	Sets []string
}

// Ladder is an order of products of which a pool uses one at a time, the highest.
type Ladder struct {
	ID   uuid.UUID
	Slug string
	Name string
	// Tiers are the slugs of its products, the floor first.
	Tiers []string
}

// Catalogue is everything that decides what a position confers, each by its slug. IDs are uuid.Nil for what is not stored yet.
type Catalogue struct {
	Keys     map[string]ResourceKey
	Sets     map[string]Set
	Products map[string]Product
	Ladders  map[string]Ladder
	Types    map[string]OrganizationType
}

// LoadCatalogue reads the whole catalogue. Read under the exclusive rendezvous it is of one moment; read otherwise, a
// change committed meanwhile may show in part.
func LoadCatalogue(ctx context.Context, q lockorder.Querier) (Catalogue, error) {
	c, err := loadCatalogue(ctx, entitlementsdb.New(q))
	if err != nil {
		return Catalogue{}, fmt.Errorf("reading the catalogue: %w", err)
	}
	types, err := ListOrganizationTypes(ctx, q)
	if err != nil {
		return Catalogue{}, err
	}
	for _, t := range types {
		c.Types[t.Slug] = t
	}
	return c, nil
}

func newCatalogue() Catalogue {
	return Catalogue{
		Keys: map[string]ResourceKey{}, Sets: map[string]Set{}, Products: map[string]Product{},
		Ladders: map[string]Ladder{}, Types: map[string]OrganizationType{},
	}
}

func loadCatalogue(ctx context.Context, q *entitlementsdb.Queries) (Catalogue, error) {
	c := newCatalogue()
	keys, err := q.ListResourceKeys(ctx)
	if err != nil {
		return c, err
	}
	for _, k := range keys {
		c.Keys[k.Key] = ResourceKey{Key: k.Key, Kind: k.Kind, Aggregation: k.Aggregation, Window: k.UsageWindow, Description: k.Description}
	}
	if err := loadSets(ctx, q, c); err != nil {
		return c, err
	}
	products, err := q.ListProducts(ctx)
	if err != nil {
		return c, err
	}
	carried, err := q.ListProductSets(ctx)
	if err != nil {
		return c, err
	}
	sets := map[uuid.UUID][]string{}
	for _, ps := range carried {
		sets[ps.ProductID] = append(sets[ps.ProductID], ps.Slug)
	}
	for _, p := range products {
		c.Products[p.Slug] = Product{ID: p.ID, Slug: p.Slug, Name: p.Name, Sets: sets[p.ID]}
	}
	ladders, err := q.ListLadders(ctx)
	if err != nil {
		return c, err
	}
	tiers, err := q.ListTiers(ctx)
	if err != nil {
		return c, err
	}
	ranked := map[uuid.UUID][]string{}
	for _, t := range tiers {
		ranked[t.LadderID] = append(ranked[t.LadderID], t.Slug)
	}
	for _, l := range ladders {
		c.Ladders[l.Slug] = Ladder{ID: l.ID, Slug: l.Slug, Name: l.Name, Tiers: ranked[l.ID]}
	}
	return c, nil
}

func loadSets(ctx context.Context, q *entitlementsdb.Queries, c Catalogue) error {
	sets, err := q.ListSets(ctx)
	if err != nil {
		return err
	}
	rules, err := q.ListSetRules(ctx)
	if err != nil {
		return err
	}
	byID := map[uuid.UUID]map[string]Value{}
	for _, s := range sets {
		byID[s.ID] = map[string]Value{}
		c.Sets[s.Slug] = Set{ID: s.ID, Slug: s.Slug, Name: s.Name, Rules: byID[s.ID]}
	}
	for _, r := range rules {
		if byID[r.SetID] != nil { // a set made between the two reads comes with its rules or not at all
			byID[r.SetID][r.ResourceKey] = valueOf(r.NumericValue, r.BooleanValue)
		}
	}
	return nil
}

// Clone returns a copy whose maps may be changed. The rules and lists within are shared.
func (c Catalogue) Clone() Catalogue {
	return Catalogue{
		Keys: maps.Clone(c.Keys), Sets: maps.Clone(c.Sets), Products: maps.Clone(c.Products),
		Ladders: maps.Clone(c.Ladders), Types: maps.Clone(c.Types),
	}
}

// LadderOf returns the ladder that a product sits on and its rank there.
func (c Catalogue) LadderOf(product string) (ladder string, rank int, ok bool) {
	for _, slug := range slices.Sorted(maps.Keys(c.Ladders)) {
		if rank := slices.Index(c.Ladders[slug].Tiers, product); rank >= 0 {
			return slug, rank, true
		}
	}
	return "", 0, false
}

// SetsUsing returns the slugs of the sets with a rule for a key, sorted.
func (c Catalogue) SetsUsing(key string) []string {
	var sets []string
	for _, slug := range slices.Sorted(maps.Keys(c.Sets)) {
		if _, ok := c.Sets[slug].Rules[key]; ok {
			sets = append(sets, slug)
		}
	}
	return sets
}
