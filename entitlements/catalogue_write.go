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

// LockCatalogue locks the rows of the sets, their rules and the types that are named and stored, and returns the
// catalogue as it stands under these locks. The transaction is a RuleChange that holds nothing else yet.
func LockCatalogue(ctx context.Context, tx *lockorder.Tx, sets, types []string) (Catalogue, error) {
	if err := tx.RequireKind(lockorder.RuleChange); err != nil {
		return Catalogue{}, err
	}
	c, err := LoadCatalogue(ctx, tx)
	if err != nil {
		return Catalogue{}, err
	}
	var locks []lockorder.Lock
	for _, slug := range sets {
		s, ok := c.Sets[slug]
		if !ok {
			continue
		}
		locks = append(locks, lockorder.EntitlementSetRow(s.ID))
		for key := range s.Rules {
			locks = append(locks, lockorder.SetRuleRow(s.ID, key))
		}
	}
	for _, slug := range types {
		if t, ok := c.Types[slug]; ok {
			locks = append(locks, lockorder.OrganizationTypeRow(t.ID))
		}
	}
	if err := tx.Lock(ctx, locks...); err != nil {
		return Catalogue{}, err
	}
	return LoadCatalogue(ctx, tx)
}

// KeyRows returns the row locks of the stored resource keys that a change alters.
func KeyRows(from, to Catalogue) []lockorder.Lock {
	var locks []lockorder.Lock
	for name, k := range to.Keys {
		if old, known := from.Keys[name]; known && old != k {
			locks = append(locks, lockorder.ResourceKeyRow(name))
		}
	}
	return locks
}

// AddProducts stores the products that to has and from has not, without their sets, and returns to with their ids. It
// comes before the rest of a change, so that mappings can name them.
func AddProducts(ctx context.Context, tx *lockorder.Tx, from, to Catalogue) (Catalogue, error) {
	if err := tx.RequireKind(lockorder.RuleChange); err != nil {
		return Catalogue{}, err
	}
	q := entitlementsdb.New(tx)
	to = to.Clone()
	for _, name := range slices.Sorted(maps.Keys(to.Products)) {
		if _, known := from.Products[name]; known {
			continue
		}
		p := to.Products[name]
		p.ID = uuid.New()
		if err := q.InsertProduct(ctx, entitlementsdb.InsertProductParams{ID: p.ID, Slug: name, Name: p.Name}); err != nil {
			return Catalogue{}, fmt.Errorf("adding product %s: %w", name, err)
		}
		to.Products[name] = p
	}
	return to, nil
}

// WriteCatalogue writes what differs between the catalogue as it was loaded and as AddProducts returned it. The caller holds
// what LockCatalogue locked, the rows of all pools reached, those of KeyRows, and settles these pools afterwards.
func WriteCatalogue(ctx context.Context, tx *lockorder.Tx, from, to Catalogue) error {
	if err := tx.RequireKind(lockorder.RuleChange); err != nil {
		return err
	}
	if err := tx.Require(KeyRows(from, to)...); err != nil {
		return err
	}
	w := &catalogueWriter{tx: tx, q: entitlementsdb.New(tx), from: from, to: to}
	for _, step := range []struct {
		what  string
		write func(context.Context) error
	}{
		{"resource keys", w.keys}, {"sets", w.sets}, {"products", w.products}, {"ladders", w.ladders}, {"organisation types", w.types},
	} {
		if err := step.write(ctx); err != nil {
			return fmt.Errorf("writing %s: %w", step.what, err)
		}
	}
	return nil
}

type catalogueWriter struct {
	tx       *lockorder.Tx
	q        *entitlementsdb.Queries
	from, to Catalogue
}

func (w *catalogueWriter) keys(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(w.to.Keys)) {
		k := w.to.Keys[name]
		old, known := w.from.Keys[name]
		var err error
		switch {
		case !known:
			err = w.q.InsertResourceKey(ctx, entitlementsdb.InsertResourceKeyParams{
				Key: name, Kind: k.Kind, Aggregation: k.Aggregation, UsageWindow: k.Window, Description: k.Description})
		case old != k:
			err = w.q.UpdateResourceKey(ctx, entitlementsdb.UpdateResourceKeyParams{
				Key: name, Kind: k.Kind, Aggregation: k.Aggregation, UsageWindow: k.Window, Description: k.Description})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (w *catalogueWriter) sets(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(w.to.Sets)) {
		s := w.to.Sets[name]
		old, known := w.from.Sets[name]
		if err := w.set(ctx, s, old, known); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (w *catalogueWriter) set(ctx context.Context, s, old Set, known bool) error {
	if !known {
		s.ID = uuid.New()
		if err := w.q.InsertSet(ctx, entitlementsdb.InsertSetParams{ID: s.ID, Slug: s.Slug, Name: s.Name}); err != nil {
			return err
		}
	} else {
		if s.Name == old.Name && maps.Equal(s.Rules, old.Rules) {
			return nil
		}
		if err := w.tx.Require(lockorder.EntitlementSetRow(s.ID)); err != nil {
			return err
		}
		if s.Name != old.Name {
			if err := w.q.RenameSet(ctx, entitlementsdb.RenameSetParams{ID: s.ID, Name: s.Name}); err != nil {
				return err
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(old.Rules)) {
		if _, kept := s.Rules[key]; !kept {
			if err := w.tx.Require(lockorder.SetRuleRow(s.ID, key)); err != nil {
				return err
			}
			if err := w.q.DeleteSetRule(ctx, entitlementsdb.DeleteSetRuleParams{SetID: s.ID, ResourceKey: key}); err != nil {
				return err
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Rules)) {
		value := s.Rules[key]
		if before, had := old.Rules[key]; had && before == value {
			continue
		} else if had {
			if err := w.tx.Require(lockorder.SetRuleRow(s.ID, key)); err != nil {
				return err
			}
		}
		number, yes := value.columns()
		if err := w.q.PutSetRule(ctx, entitlementsdb.PutSetRuleParams{
			SetID: s.ID, ResourceKey: key, Kind: value.Kind, NumericValue: number, BooleanValue: yes}); err != nil {
			return fmt.Errorf("rule for %s: %w", key, err)
		}
	}
	return nil
}

func (w *catalogueWriter) products(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(w.to.Products)) {
		p, old := w.to.Products[name], w.from.Products[name]
		if old.ID != uuid.Nil && old.Name != p.Name {
			if err := w.q.RenameProduct(ctx, entitlementsdb.RenameProductParams{ID: p.ID, Name: p.Name}); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if gone := missingFrom(old.Sets, p.Sets); len(gone) > 0 {
			if err := w.q.DeleteProductSets(ctx, entitlementsdb.DeleteProductSetsParams{ProductID: p.ID, Sets: gone}); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if more := missingFrom(p.Sets, old.Sets); len(more) > 0 {
			if err := w.q.AddProductSets(ctx, entitlementsdb.AddProductSetsParams{ProductID: p.ID, Sets: more}); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

func (w *catalogueWriter) ladders(ctx context.Context) error {
	names := slices.Sorted(maps.Keys(w.to.Ladders))
	ids := map[string]uuid.UUID{}
	var cleared []uuid.UUID
	for _, name := range names {
		l := w.to.Ladders[name]
		old, known := w.from.Ladders[name]
		ids[name] = l.ID
		switch {
		case !known:
			ids[name] = uuid.New()
			if err := w.q.InsertLadder(ctx, entitlementsdb.InsertLadderParams{ID: ids[name], Slug: name, Name: l.Name}); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		case l.Name != old.Name:
			if err := w.q.RenameLadder(ctx, entitlementsdb.RenameLadderParams{ID: l.ID, Name: l.Name}); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if known && !slices.Equal(l.Tiers, old.Tiers) {
			cleared = append(cleared, l.ID)
		}
	}
	// Ladders that exchange products are cleared first, since a product sits on one.
	if len(cleared) > 0 {
		if err := w.q.DeleteTiers(ctx, cleared); err != nil {
			return err
		}
	}
	var tiers []uuid.UUID
	for _, name := range names {
		if l := w.to.Ladders[name]; !slices.Equal(l.Tiers, w.from.Ladders[name].Tiers) {
			for _, product := range l.Tiers {
				tiers = append(tiers, w.to.Products[product].ID)
			}
			if err := w.q.InsertTiers(ctx, entitlementsdb.InsertTiersParams{LadderID: ids[name], Products: l.Tiers}); err != nil {
				return fmt.Errorf("tiers of %s: %w", name, err)
			}
		}
	}
	if len(tiers) == 0 {
		return nil
	}
	if err := noSuccessionOwed(ctx, w.tx, tiers...); err != nil {
		return err
	}
	return w.q.DropSuccessions(ctx, tiers) // what is a tier again is held itself
}

func (w *catalogueWriter) types(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(w.to.Types)) {
		t := w.to.Types[name]
		old, known := w.from.Types[name]
		if known && old == t {
			continue
		}
		var product *uuid.UUID
		if t.Default != "" {
			id := w.to.Products[t.Default].ID
			product = &id
		}
		var err error
		if known {
			if err := w.tx.Require(lockorder.OrganizationTypeRow(t.ID)); err != nil {
				return err
			}
			err = w.q.UpdateOrganizationType(ctx, entitlementsdb.UpdateOrganizationTypeParams{ID: t.ID, Name: t.Name, DefaultProductID: product})
		} else {
			err = w.q.InsertOrganizationType(ctx, entitlementsdb.InsertOrganizationTypeParams{ID: uuid.New(), Slug: name, Name: t.Name, DefaultProductID: product})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
