package activities_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/locktest"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows/contract"
)

// theChange is the id of the change that a crash or interleaving test makes, anotherChange that of a second.
var theChange, anotherChange = uuid.MustParse("0196f1b4-0000-7000-8000-000000000001"), uuid.MustParse("0196f1b4-0000-7000-8000-000000000002")

// acting runs an act of an operator, and answers its sentence; a refusal by a domain is an outcome too.
func acting[T any](do func(*activities.Operator, context.Context, T) (contract.ActResult, error), in T) locktest.Act {
	return func(ctx context.Context, e *locktest.Env) (string, error) {
		r, err := do(&activities.Operator{DB: e.DB()}, ctx, in)
		if errors.Is(err, entitlements.ErrInvalid) || errors.Is(err, entitlements.ErrInProgress) || errors.Is(err, entitlements.ErrExists) {
			return "refused", nil
		}
		// An act that is killed after its COMMIT answers that it stands.
		sentence, _, _ := strings.Cut(r.Detail, ";")
		return sentence, err
	}
}

func tierAdd(product string, rank int) locktest.Act {
	return acting((*activities.Operator).TierAdd, contract.TierAdd{Change: theChange, Product: product, Ladder: "membership", Rank: &rank})
}

func tierRemove(product, disposition string) locktest.Act {
	return acting((*activities.Operator).TierRemove, contract.TierRemove{Change: theChange, Product: product, Disposition: disposition})
}

func tierReorder(products ...string) locktest.Act {
	return acting((*activities.Operator).TierReorder, contract.TierReorder{Change: theChange, Ladder: "membership", Products: products})
}

func defaultChange(product, incumbents string) locktest.Act {
	return acting((*activities.Operator).DefaultChange, contract.DefaultChange{Change: anotherChange, Type: "member", Product: product, Incumbents: incumbents})
}

// two makes a member that holds silver and gold, and one that holds the floor.
func two(s *scene) {
	customer := s.member("acme")
	s.reconcile(s.subscribed("subscription", customer, "silver", "extra"))
	s.reconcile(s.subscribed("second", customer, "gold"))
	s.member("other")
}

func TestCrashOfLadders(t *testing.T) {
	for name, s := range map[string]locktest.Scenario{
		"tier add":             {Act: tierAdd("extra", 3), Setup: set(two)},
		"tier remove, migrate": {Act: tierRemove("gold", "migrate"), Setup: set(two)},
		"tier remove, end":     {Act: tierRemove("gold", "end"), Setup: set(two)},
		"tier delete":          {Act: tierRemove("gold", ""), Setup: set(func(s *scene) { s.member("acme") })},
		"tier reorder":         {Act: tierReorder("free", "gold", "silver"), Setup: set(two)},
		"default change":       {Act: defaultChange("silver", "grandfather"), Setup: set(two)},
		"organization create": {Act: acting((*activities.Operator).OrganizationCreate, contract.OrganizationCreate{
			ID: theChange, Pool: anotherChange, Slug: "acme", Name: "ACME", Type: "member"}), Setup: set(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.Crash(t, s)
		})
	}
}

func TestInterleaveLadders(t *testing.T) {
	upgraded := set(func(s *scene) {
		id := s.subscribed("subscription", s.member("acme"), "silver", "extra")
		s.reconcile(id)
		s.change(id, toPrice("gold"))
	})
	reconcile := locktest.Actor{Name: "reconcile", Act: quiet(reconcileOf("subscription"))}
	for name, i := range map[string]locktest.Interleaving{
		"tier add and reconcile":    {Setup: upgraded, Actors: []locktest.Actor{reconcile, {Name: "add", Act: quiet(tierAdd("extra", 1))}}},
		"tier remove and reconcile": {Setup: upgraded, Actors: []locktest.Actor{reconcile, {Name: "remove", Act: quiet(tierRemove("gold", "end"))}}},
		"tier migrate and reconcile": {Setup: upgraded, Actors: []locktest.Actor{reconcile,
			{Name: "remove", Act: quiet(tierRemove("silver", "migrate"))}}},
		"reorder and reconcile": {Setup: set(func(s *scene) {
			two(s)
			s.status(s.env.Get("subscription"), "canceled")
		}), Actors: []locktest.Actor{reconcile, {Name: "reorder", Act: quiet(tierReorder("free", "gold", "silver"))}}},
		"remove and reorder": {Setup: set(two), Actors: []locktest.Actor{
			{Name: "remove", Act: tierRemove("gold", "end")},
			{Name: "add", Act: acting((*activities.Operator).TierAdd, contract.TierAdd{Change: anotherChange, Product: "extra", Ladder: "membership"})}}},
		"default change and a new organisation": {Setup: set(nil), Actors: []locktest.Actor{
			{Name: "change", Act: quiet(defaultChange("silver", "migrate"))}, {Name: "create", Act: createOrganization}}},
		"default change and reconcile": {Setup: upgraded, Actors: []locktest.Actor{
			{Name: "change", Act: defaultChange("silver", "grandfather")}, reconcile}},
		"a tier becomes the default and is removed": {Setup: set(func(s *scene) { s.member("acme") }), Actors: []locktest.Actor{
			{Name: "change", Act: defaultChange("silver", "migrate")}, {Name: "remove", Act: tierRemove("silver", "end")}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i.Again, i.Schedules = again, 40
			locktest.Interleave(t, i)
		})
	}
}

// many makes organisations by SQL, each of which holds a product off the ladder beside its floor.
func (r *rig) many(n int, product string) {
	r.t.Helper()
	_, err := r.pool.Exec(r.t.Context(), `
		WITH org AS (
			INSERT INTO core.organizations (slug, name, type_id)
			SELECT 'many-' || i, 'Many', (SELECT id FROM core.organization_types) FROM generate_series(1, $1) i RETURNING id
		), pool AS (
			INSERT INTO core.pools (organization_id, name, is_default) SELECT id, 'default', true FROM org RETURNING id
		)
		INSERT INTO core.positions (pool_id, product_id, source, subscription_id, item_id, status, starts_at, created_act)
		SELECT pool.id, p.id, v.source, CASE WHEN v.source = 'subscription' THEN 'sub_' || pool.id END,
		       CASE WHEN v.source = 'subscription' THEN 'si_' || pool.id END, 'active', core.clock(), 'test'
		FROM pool, (VALUES ($2, 'subscription'), ('free', 'default')) v (slug, source) JOIN core.products p ON p.slug = v.slug`, n, product)
	require.NoError(r.t, err)
	_, err = r.pool.Exec(r.t.Context(), `ANALYZE`)
	require.NoError(r.t, err)
}

// Adding a tier that 10,000 pools hold stalls no conferral for longer than a turn of the change and the exclusive hold may last,
// and what a conferral itself takes on a machine that is busy with other tests.
func TestATierHeldByManyStallsNoConferral(t *testing.T) {
	t.Parallel()
	r := newRigWith(t, lockorder.Options{})
	r.many(10_000, "extra")
	const (
		workers = 8
		turn    = 2 * time.Second // the longest, as package lockorder documents it
		service = 2 * time.Second
	)
	hold := lockorder.Defaults().ExclusiveHold
	for w := range workers {
		r.organization(fmt.Sprintf("worker-%d", w))
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	underWay, ended := make(chan struct{}, workers), make(chan error, workers)
	longest := make([]time.Duration, workers)
	for w := range workers {
		go func() {
			ended <- func() error {
				for n := 0; ctx.Err() == nil; n++ {
					begun := time.Now()
					err := confer(t.Context(), r.db, fmt.Sprintf("worker-%d", w), n)
					for lockorder.VerdictOf(err) == lockorder.VerdictBusy { // refused at once: Temporal tries again
						time.Sleep(20 * time.Millisecond)
						err = confer(t.Context(), r.db, fmt.Sprintf("worker-%d", w), n)
					}
					if err != nil {
						return err
					}
					longest[w] = max(longest[w], time.Since(begun))
					if n == 0 {
						underWay <- struct{}{}
					}
				}
				return nil
			}()
		}()
	}
	for range workers {
		select {
		case <-underWay:
		case err := <-ended:
			t.Fatalf("a conferral before the change: %v", err)
		}
	}
	begun := time.Now()
	result, err := r.operator.TierAdd(t.Context(), contract.TierAdd{Change: theChange, Product: "extra", Ladder: "membership"})
	took := time.Since(begun)
	stop()
	for range workers {
		require.NoError(t, <-ended)
	}
	require.NoError(t, err, "HeldTooLong would be told here")
	require.Equal(t, 10_000, result.Change.Owed)
	worst := slices.Max(longest)
	t.Logf("the change took %v; the longest conferral meanwhile %v", took.Round(time.Millisecond), worst.Round(time.Millisecond))
	require.LessOrEqual(t, worst, turn+hold+service)
}

// confer converges a subscription of the organisation.
func confer(ctx context.Context, db *lockorder.DB, slug string, n int) error {
	org, err := entitlements.FindOrganization(ctx, db.Reader(), slug)
	if err != nil {
		return err
	}
	id := "sub_" + strings.ReplaceAll(slug, "-", "")
	return db.Run(ctx, lockorder.Spec{Path: "test-confer", Kind: lockorder.Materializing, Keys: []lockorder.Lock{lockorder.SubscriptionKey(id)}},
		func(ctx context.Context, tx *lockorder.Tx) error {
			if err := entitlements.LockPools(ctx, tx, org.DefaultPool); err != nil {
				return err
			}
			var product uuid.UUID
			if err := tx.QueryRow(ctx, `SELECT id FROM core.products WHERE slug = 'gold'`).Scan(&product); err != nil {
				return err
			}
			_, err := entitlements.ConvergeSubscription(ctx, tx, entitlements.Act{Name: "test"}, entitlements.Subscription{
				ID: id, Pool: org.DefaultPool, Items: []entitlements.Item{{ID: "si_" + id, Product: product, Quantity: int64(n%5 + 1)}}})
			return err
		})
}
