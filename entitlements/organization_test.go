package entitlements_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/lockorder"
)

func TestFindOrganization(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	_, err := entitlements.FindOrganization(t.Context(), h.db.Reader(), "acme")
	require.ErrorIs(t, err, entitlements.ErrNotFound)
	require.ErrorContains(t, err, "bursar org create")

	acme := h.org("acme", "club")
	h.org("acme-north", "club")
	h.org("zebra", "club")
	for _, name := range []string{"acme", acme.ID.String()} {
		found, err := entitlements.FindOrganization(t.Context(), h.db.Reader(), name)
		require.NoError(t, err)
		require.Equal(t, acme, found)
	}
	_, err = entitlements.FindOrganization(t.Context(), h.db.Reader(), "amce")
	require.ErrorIs(t, err, entitlements.ErrNotFound)
	require.EqualError(t, err, `no organisation is called "amce"; near it: acme`)
	_, err = entitlements.FindOrganization(t.Context(), h.db.Reader(), "the zebra")
	require.ErrorContains(t, err, "near it: zebra", "by its name too")
	_, err = entitlements.FindOrganization(t.Context(), h.db.Reader(), uuid.NewString())
	require.ErrorIs(t, err, entitlements.ErrNotFound)
}

func TestCreateOrganizationRefuses(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.org("acme", "club")
	for _, c := range []struct {
		n    entitlements.NewOrganization
		want error
		text string
	}{
		{entitlements.NewOrganization{Slug: "acme", Name: "Acme", Type: "club"}, entitlements.ErrExists, `"acme"`},
		{entitlements.NewOrganization{Slug: "Acme!", Name: "Acme", Type: "club"}, entitlements.ErrInvalid, "a-z"},
		{entitlements.NewOrganization{Slug: "other", Name: " ", Type: "club"}, entitlements.ErrInvalid, "name"},
		{entitlements.NewOrganization{Slug: "other", Name: "Other", Type: "clubb"}, entitlements.ErrNotFound, "there are: bare, club"},
	} {
		err := h.db.Run(t.Context(), lockorder.Spec{Path: "organization-create", Kind: lockorder.Materializing}, func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := entitlements.CreateOrganization(ctx, tx, act, c.n)
			return err
		})
		require.ErrorIs(t, err, c.want)
		require.ErrorContains(t, err, c.text)
	}
	list, err := entitlements.ListOrganizations(t.Context(), h.db.Reader(), "", 10)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, "free", list[0].Conferring)
}

func TestNear(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"gold"}, entitlements.Near("gld", []string{"free", "silver", "gold"}))
	require.Empty(t, entitlements.Near("platinum", []string{"free", "silver", "gold"}))
	require.Equal(t, []string{"acme", "acme-north", "acme-south"}, entitlements.Near("acme", []string{"acme-north", "acme-south", "acme-west", "acme"}))
}
