package billing_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/billing"
	"github.com/bursarhq/bursar/internal/locktest"
	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

func TestMain(m *testing.M) { locktest.Main(m) }

// rig is a database with two organisations and two products in it.
type rig struct {
	db         *lockorder.DB
	pool       *pgxpool.Pool
	acme, tern uuid.UUID
	gold, mug  uuid.UUID
}

func newRig(t *testing.T) *rig {
	t.Helper()
	database := pgtest.New(t)
	// Enough for every test to wait at once: half of it is the lane.
	db, err := lockorder.Open(t.Context(), database.URL(), locktest.Watched(lockorder.Options{NowSQL: "SELECT core.clock()", MaxConns: 16}))
	require.NoError(t, err)
	t.Cleanup(db.Close)
	r := &rig{db: db, pool: database.Pool(t), acme: uuid.New(), tern: uuid.New(), gold: uuid.New(), mug: uuid.New()}
	r.exec(t, `INSERT INTO core.products (id, slug, name) VALUES ($1, 'gold', 'Gold'), ($2, 'mug', 'Mug')`, r.gold, r.mug)
	r.exec(t, `WITH ty AS (INSERT INTO core.organization_types (slug, name) VALUES ('member', 'Member') RETURNING id),
		o AS (INSERT INTO core.organizations (id, slug, name, type_id) SELECT v.id, v.slug, v.slug, ty.id FROM ty, (VALUES ($1::uuid, 'acme'), ($2::uuid, 'tern')) v (id, slug) RETURNING id)
		INSERT INTO core.pools (organization_id, name, is_default) SELECT id, 'default', true FROM o`, r.acme, r.tern)
	return r
}

func (r *rig) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := r.pool.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

func (r *rig) count(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, r.pool.QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}

// run runs fn in a transaction that holds the keys of the subscriptions.
func (r *rig) run(ctx context.Context, kind lockorder.Kind, fn func(ctx context.Context, tx *lockorder.Tx) error, subscriptions ...string) error {
	spec := lockorder.Spec{Path: "test", Kind: kind}
	for _, id := range subscriptions {
		spec.Keys = append(spec.Keys, lockorder.SubscriptionKey(id))
	}
	return r.db.Run(ctx, spec, fn)
}

// record records what was seen, in a transaction of its own.
func (r *rig) record(ctx context.Context, seen billing.Seen) (version int64, changed bool, err error) {
	err = r.run(ctx, lockorder.Plain, func(ctx context.Context, tx *lockorder.Tx) (err error) {
		version, changed, err = billing.Record(ctx, tx, seen)
		return err
	}, seen.ID)
	return version, changed, err
}

func day(n int) *time.Time {
	t := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, n)
	return &t
}

// seen is an active subscription of one item with a period of 30 days.
func seen(id string) billing.Seen {
	return billing.Seen{
		ID: id, Customer: "cus_1", Status: "active", Standing: billing.Confers, PeriodStart: day(0), PeriodEnd: day(30), Created: day(-1),
		Items: []billing.Item{{ID: "si_" + id, Price: "price_gold", Product: "prod_gold", Quantity: 1}},
	}
}
