package catalog_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/catalog"
	"github.com/bursarhq/bursar/internal/lockpath"
	"github.com/bursarhq/bursar/lockorder"
)

// saveDefault changes a type's default by hand, which leaves every organisation of the type owed.
func (h *house) saveDefault(kind, product, incumbents string) {
	h.t.Helper()
	require.NoError(h.t, h.db.Run(h.t.Context(), lockpath.DefaultSave.Spec(), func(ctx context.Context, tx *lockorder.Tx) error {
		_, err := entitlements.SaveDefault{Change: uuid.New(), Type: kind, Product: product, Incumbents: incumbents}.Do(ctx, tx, entitlements.Act{Name: "default-save"})
		return err
	}))
}

// basic makes a product that sits on no ladder the club's default.
func basic(t *testing.T, oldNew ...string) string {
	return with(t, append(oldNew, "products:\n", "products:\n  - {id: basic, sets: [silver]}\n", "default: free}", "default: basic}")...)
}

// A default that the catalogue changes migrates who holds the old one, whatever an earlier change of it by hand said of its own.
func TestACatalogueDefaultMigrates(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.mustApply(base)
	acme := h.org("acme")
	h.saveDefault("club", "silver", entitlements.IncumbentsGrandfather)
	h.lockPools(acme)
	require.Equal(t, "free grant 1 active", h.holds(acme), "what it held stays, as a grant")
	other := h.org("other")
	require.Equal(t, "silver default 1 active", h.holds(other))

	// What changes no default leaves that word, and a default above its ladder's floor, as they are.
	h.mustApply(with(t, "default: free}", "default: silver}", "name: Club", "name: Clubs"))
	h.mustApply("sets:\n  - {id: gold, name: Golden, rules: {storage: 100, speed: 20, support: true}}\n")
	require.Equal(t, "grandfather silver", h.one(`SELECT t.incumbents || ' ' || p.slug FROM core.organization_types t JOIN core.products p ON p.id = t.default_product_id`))

	h.mustApply(basic(t))
	require.Equal(t, "migrate", h.one(`SELECT incumbents FROM core.organization_types`))
	require.Equal(t, "basic default 1 active", h.holds(other))
	require.Equal(t, "basic default 1 active, free grant 1 active", h.holds(acme), "a grant is no default")
}

// While a default that was changed by hand has not reached every organisation, the catalogue changes neither it nor rules; what reaches
// nobody, and the default of another type, it does.
func TestACatalogueWaitsForADefaultInProgress(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const types = "organization_types:\n"
	h.mustApply(with(t, types, types+"  - {id: guild, name: Guild, default: free}\n"))
	acme, other := h.org("acme"), h.org("other")
	h.saveDefault("club", "silver", entitlements.IncumbentsGrandfather)
	h.lockPools(acme)

	before := h.everything()
	for name, text := range map[string]string{
		"another default": basic(t),
		"the old one":     base,
		"rules":           with(t, "default: free}", "default: silver}", "storage: 100", "storage: 150"),
	} {
		_, err := h.plan(text)
		require.ErrorIs(t, err, entitlements.ErrInProgress, name)
		require.ErrorContains(t, err, "club", name)
		_, err = h.applyShown(text, catalog.Preview{})
		require.ErrorIs(t, err, entitlements.ErrInProgress, name)
	}
	require.Equal(t, before, h.everything())

	p := h.mustApply(with(t, "default: free}", "default: silver}", "name: Club", "name: Clubs", types, types+"  - {id: guild, name: Guild}\n"))
	require.Len(t, p.Changes, 2)

	// What is parked is in the way of the default too, and the error says where to look.
	_, err := h.pool.Exec(t.Context(), `UPDATE core.change_obligations SET state = 'parked', attempts = 5, last_error = 'out of order' WHERE state = 'open'`)
	require.NoError(t, err)
	_, err = h.plan(basic(t))
	require.ErrorIs(t, err, entitlements.ErrInProgress)
	require.ErrorContains(t, err, "has yet to reach 1 organisation of type club; 1 of them is parked: bursar parked shows why")

	h.lockPools(other)
	require.Equal(t, "free grant 1 active", h.holds(other))
	h.mustApply(basic(t))
	require.Equal(t, "basic default 1 active", h.holds(h.org("late")))
}
