package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/catalog"
	"github.com/bursarhq/bursar/internal/locktest"
	"github.com/bursarhq/bursar/lockorder"
)

// members is a set-up: the base catalogue, a member that holds the floor, one that pays for silver, and one for gold by the
// mapping of its Stripe product.
func members(t testing.TB, e *locktest.Env) {
	pool, err := pgxpool.New(t.Context(), e.URL())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	h := &house{t: t, db: e.DB(), pool: pool}
	h.mustApply(base)
	h.org("guest")
	h.subscribe(h.org("acme"), "acme", "price_silver", "prod_silver", "silver", "active")
	h.subscribe(h.org("tern"), "tern", "price_other", "prod_gold", "gold", "paused")
}

// apply applies base with replacements.
func apply(oldNew ...string) locktest.Act { return applyText(replaced(oldNew...)) }

// applyText applies a file as the command does: it shows what it would do and does that.
func applyText(text string) locktest.Act {
	return func(ctx context.Context, e *locktest.Env) (string, error) {
		f, err := catalog.Parse("catalog.yaml", []byte(text))
		if err != nil {
			return "", err
		}
		shown, err := catalog.Plan(ctx, e.DB(), f)
		if err != nil {
			return "", err
		}
		done, err := catalog.Apply(ctx, e.DB(), f, shown)
		return fmt.Sprintf("%d changes in %d pools, %d moved, %d effects", len(done.Changes), done.Pools, done.Moved, len(done.Effects)), err
	}
}

// createOrganization makes an organisation that holds the floor.
func createOrganization(ctx context.Context, e *locktest.Env) (string, error) {
	return "made", e.DB().Run(ctx, lockorder.Spec{Path: "organization-create", Kind: lockorder.Materializing}, func(ctx context.Context, tx *lockorder.Tx) error {
		_, err := entitlements.CreateOrganization(ctx, tx, entitlements.Act{Name: "test"}, entitlements.NewOrganization{Slug: "new", Name: "New", Type: "club"})
		return err
	})
}

// Changes of the base catalogue.
var (
	moreStorage = []string{"{storage: 10, speed: 5}", "{storage: 20, speed: 5}"}
	moreForFree = []string{"{storage: 1, speed: 1}", "{storage: 2, speed: 1}"}
	otherPrice  = []string{"stripe: {prices: [price_silver]}", "stripe: {}", "prices: [price_gold, price_gold_year]", "prices: [price_gold, price_gold_year, price_silver]"}
	otherFloor  = []string{"  - {id: gold, name: Gold, sets: [gold], stripe", "  - {id: basic, name: Basic, sets: [free]}\n  - {id: gold, name: Gold, sets: [gold], stripe", "default: free", "default: basic"}
	newProduct  = []string{"  - {id: gold, name: Gold, sets: [gold], stripe", "  - {id: bronze, name: Bronze, sets: [free]}\n  - {id: gold, name: Gold, sets: [gold, silver], stripe"}
)

func TestCrashApply(t *testing.T) {
	for name, s := range map[string]locktest.Scenario{
		"a change": {Setup: members, Act: apply(slices.Concat(moreStorage, otherPrice, otherFloor)...)},
		"all anew": {Act: applyText(`
resource_keys: [{key: storage, kind: numeric}]
sets: [{id: free, rules: {storage: 1}}]
products: [{id: free, name: Free, sets: [free], stripe: {prices: [price_free]}}]
ladders: [{id: membership, name: Membership, tiers: [free]}]
organization_types: [{id: club, name: Club, default: free}]`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.Crash(t, s)
		})
	}
}

func TestInterleaveApply(t *testing.T) {
	again := func(err error) bool { return locktest.Busy(err) || errors.Is(err, catalog.ErrDrift) }
	for name, actors := range map[string][]locktest.Actor{
		"two rules":                 {{Name: "silver", Act: apply(moreStorage...)}, {Name: "free", Act: apply(moreForFree...)}},
		"the same change":           {{Name: "one", Act: apply(moreStorage...)}, {Name: "other", Act: apply(moreStorage...)}},
		"a mapping and a floor":     {{Name: "mapping", Act: apply(otherPrice...)}, {Name: "floor", Act: apply(otherFloor...)}},
		"a floor and a new member":  {{Name: "floor", Act: apply(otherFloor...)}, {Name: "member", Act: createOrganization}},
		"a rule and a new member":   {{Name: "rule", Act: apply(moreForFree...)}, {Name: "member", Act: createOrganization}},
		"a product for two at once": {{Name: "one", Act: apply(newProduct...)}, {Name: "other", Act: apply(newProduct...)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.Interleave(t, locktest.Interleaving{Setup: members, Actors: actors, Again: again, Schedules: 30})
		})
	}
}
