package billing_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/lockorder"
)

func (r *rig) link(ctx context.Context, customer string, organization uuid.UUID) (changed bool, err error) {
	err = r.run(ctx, lockorder.Plain, func(ctx context.Context, tx *lockorder.Tx) (err error) {
		changed, err = billing.LinkCustomer(ctx, tx, customer, organization, billing.ByOperator)
		return err
	})
	return changed, err
}

func TestLinksNeverMove(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	changed, err := r.link(t.Context(), "cus_1", r.acme)
	require.NoError(t, err)
	require.True(t, changed)
	changed, err = r.link(t.Context(), "cus_1", r.acme)
	require.NoError(t, err)
	require.False(t, changed, "the same link again changes nothing")

	_, err = r.link(t.Context(), "cus_1", r.tern)
	var elsewhere *billing.ErrLinkedElsewhere
	require.ErrorAs(t, err, &elsewhere)
	require.Equal(t, r.acme, elsewhere.Organization)
	require.Contains(t, err.Error(), "acme")
	id, ok, err := billing.Organization(t.Context(), r.db.Reader(), "cus_1")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, r.acme, id)

	_, err = r.link(t.Context(), "sub_1", r.acme)
	require.ErrorIs(t, err, billing.ErrInvalid)
	_, ok, err = billing.Organization(t.Context(), r.db.Reader(), "cus_2")
	require.NoError(t, err)
	require.False(t, ok)

	_, err = r.link(t.Context(), "cus_2", r.tern)
	require.NoError(t, err)
	all, err := billing.ListCustomers(t.Context(), r.db.Reader(), nil)
	require.NoError(t, err)
	require.Len(t, all, 2)
	one, err := billing.ListCustomers(t.Context(), r.db.Reader(), &r.tern)
	require.NoError(t, err)
	require.Len(t, one, 1)
	require.Equal(t, "cus_2", one[0].ID)
	require.Equal(t, "tern", one[0].OrganizationSlug)
	require.Equal(t, billing.ByOperator, one[0].LinkedBy)
}

// Links of one new customer at the same time: one wins, and the others learn which.
func TestConcurrentLinksOfOneCustomer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var wg sync.WaitGroup
	made, refused := make(chan uuid.UUID, 8), make(chan uuid.UUID, 8)
	for n := range 8 {
		organization := r.acme
		if n%2 == 1 {
			organization = r.tern
		}
		wg.Go(func() {
			changed, err := r.link(t.Context(), "cus_1", organization)
			var elsewhere *billing.ErrLinkedElsewhere
			switch {
			case err == nil && changed:
				made <- organization
			case errors.As(err, &elsewhere):
				refused <- elsewhere.Organization
			case err != nil:
				t.Errorf("linking: %v", err)
			}
		})
	}
	wg.Wait()
	close(made)
	close(refused)
	require.Len(t, made, 1)
	winner := <-made
	require.Len(t, refused, 4)
	for organization := range refused {
		require.Equal(t, winner, organization)
	}
}
