package entitlements_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/lockorder"
)

// grantees makes n organisations that hold gold by a grant which ends in an hour, and returns the grants.
func (h *house) grantees(n int) []entitlements.DueGrant {
	h.t.Helper()
	tx, err := h.pool.Begin(h.t.Context())
	require.NoError(h.t, err)
	defer tx.Rollback(h.t.Context())
	for _, sql := range []string{
		`SELECT set_config('lockorder.rendezvous', 'shared', true)`,
		fmt.Sprintf(`INSERT INTO core.organizations (slug, name, type_id) SELECT 'grantee-' || n, 'Grantee', t.id FROM core.organization_types t, generate_series(1, %d) n WHERE t.slug = 'club'`, n),
		`INSERT INTO core.pools (organization_id, name, is_default) SELECT id, 'default', true FROM core.organizations WHERE slug LIKE 'grantee-%'`,
		`INSERT INTO core.grants (id, pool_id, product_id, state, starts_at, ends_at, line, origin, issued_at, issued_act)
			SELECT g.id, p.id, pr.id, 'waiting', core.clock(), core.clock() + interval '1 hour', g.id, 'operator', core.clock(), 'test'
			FROM (SELECT p.*, gen_random_uuid() AS grant_id FROM core.pools p) p CROSS JOIN LATERAL (SELECT p.grant_id AS id) g
			JOIN core.products pr ON pr.slug = 'gold'`,
		`SELECT core.confer_grant(id, pool_id, product_id, quantity, starts_at, ends_at, 'test') FROM core.grants`,
		`SELECT core.settle_pool(id, 'test', '', core.clock()) FROM core.pools`,
	} {
		_, err := tx.Exec(h.t.Context(), sql)
		require.NoError(h.t, err)
	}
	require.NoError(h.t, tx.Commit(h.t.Context()))
	var grants []entitlements.DueGrant
	rows, err := h.pool.Query(h.t.Context(), `SELECT id, pool_id FROM core.grants WHERE state = 'active'`)
	require.NoError(h.t, err)
	defer rows.Close()
	for rows.Next() {
		var g entitlements.DueGrant
		require.NoError(h.t, rows.Scan(&g.ID, &g.Pool))
		grants = append(grants, g)
	}
	require.NoError(h.t, rows.Err())
	require.Len(h.t, grants, n)
	return grants
}

// persist does an act again while its failure is of the moment.
func (h *house) persist(ctx context.Context, workflow string, do grantAct) (out entitlements.GrantOutcome, err error) {
	for {
		out, err = h.tryGrant(ctx, workflow, do)
		if err == nil || ctx.Err() != nil || !entitlements.Transient(err) && !errors.Is(err, entitlements.ErrGrantMoved) {
			return out, err
		}
	}
}

// Of an extension and the expiry that come at the same instant one wins, whole: the line goes on and the product is held, or it
// has ended and the floor is back.
func TestExpireAgainstExtend(t *testing.T) {
	t.Parallel()
	const races = 1000
	h := newHouse(t)
	grants := h.grantees(races)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var mu sync.Mutex
	wins := map[string]int{}
	var all errgroup.Group
	all.SetLimit(2)
	for i, g := range grants {
		all.Go(func() error {
			// Its end comes within the next milliseconds.
			for _, sql := range []string{
				`UPDATE core.positions p SET ends_at = core.clock() + $2 * interval '1 millisecond' WHERE grant_id = $1`,
				`UPDATE core.grants g SET ends_at = p.ends_at FROM core.positions p WHERE p.grant_id = g.id AND g.id = $1 AND $2::int >= 0`,
			} {
				if _, err := h.pool.Exec(ctx, sql, g.ID, 1+i%12); err != nil {
					return err
				}
			}
			expired := make(chan error, 1)
			go func() { expired <- h.expire(ctx, g) }()
			_, err := h.persist(ctx, "extend", entitlements.ExtendGrant{ID: uuid.New(), Grant: g.ID, Until: in(time.Hour)})
			won := "extend"
			if errors.Is(err, entitlements.ErrInvalid) {
				won, err = "expire", nil
			}
			mu.Lock()
			defer mu.Unlock()
			wins[won]++
			return errors.Join(err, <-expired)
		})
	}
	require.NoError(t, all.Wait())
	t.Logf("won: %v", wins)
	require.NotZero(t, wins["extend"])
	require.NotZero(t, wins["expire"])

	rows, err := h.pool.Query(t.Context(), `
		SELECT lines.states, held.products, e.storage, count(*)
		FROM core.pools p
		CROSS JOIN LATERAL (SELECT string_agg(g.state, ' ' ORDER BY g.extends NULLS FIRST) AS states FROM core.grants g WHERE g.pool_id = p.id
			OR g.line IN (SELECT line FROM core.grants WHERE pool_id = p.id)) lines
		CROSS JOIN LATERAL (SELECT string_agg(pr.slug || ' ' || x.source, ', ') AS products FROM core.positions x JOIN core.products pr ON pr.id = x.product_id
			WHERE x.pool_id = p.id AND x.status <> 'ended') held
		CROSS JOIN LATERAL (SELECT numeric_value AS storage FROM core.pool_entitlements e WHERE e.pool_id = p.id AND e.resource_key = 'storage') e
		GROUP BY 1, 2, 3`)
	require.NoError(t, err)
	defer rows.Close()
	ends := map[string]int{}
	for rows.Next() {
		var states, held string
		var storage int64
		var n int
		require.NoError(t, rows.Scan(&states, &held, &storage, &n))
		ends[fmt.Sprintf("%s; holds %s; storage=%d", states, held, storage)] = n
	}
	require.NoError(t, rows.Err())
	require.Equal(t, map[string]int{
		"extended active; holds gold grant; storage=100": wins["extend"],
		"expired; holds free default; storage=1":         wins["expire"],
	}, ends)
}

// expire sweeps a grant until it is closed, by whomever.
func (h *house) expire(ctx context.Context, g entitlements.DueGrant) error {
	for {
		err := h.db.Run(ctx, lockorder.Spec{Path: "grant-expire", Kind: lockorder.Materializing}, func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := entitlements.SweepGrant(ctx, tx, entitlements.Act{Name: "grant-expire", Workflow: "grant-expiry"}, g)
			return err
		})
		if err != nil && !entitlements.Transient(err) || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		var open bool
		if err := h.pool.QueryRow(ctx, `SELECT closed_at IS NULL FROM core.grants WHERE id = $1`, g.ID).Scan(&open); err != nil || !open {
			return err
		}
	}
}

// Of several extenders of one grant one goes on from it, and the others are told so: a line never forks.
func TestExtendersDoNotForkALine(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.org("acme", "club")
	for _, org := range []string{"acme", ""} {
		for range 50 {
			grant := h.issue(org, "gold", in(time.Hour))
			var won, told int
			var mu sync.Mutex
			var all errgroup.Group
			begin := make(chan struct{})
			for range 3 {
				all.Go(func() error {
					<-begin
					_, err := h.persist(t.Context(), "extend", entitlements.ExtendGrant{ID: uuid.New(), Grant: grant, Until: in(2 * time.Hour)})
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						won++
					case errors.Is(err, entitlements.ErrInvalid):
						told++
						err = nil
					}
					return err
				})
			}
			close(begin)
			require.NoError(t, all.Wait())
			require.Equal(t, [2]int{1, 2}, [2]int{won, told})
			line, err := entitlements.GrantLine(t.Context(), h.db.Reader(), grant)
			require.NoError(t, err)
			require.Len(t, line, 2)
		}
	}
}

// Whoever assigns a grant that is for nobody, and whoever acts on it meanwhile, do so one after the other.
func TestAssignAgainstRevoke(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	acme := h.org("acme", "club")
	for range 60 {
		grant := h.issue("", "gold", nil)
		var all errgroup.Group
		all.Go(func() error {
			_, err := h.persist(t.Context(), "assign", entitlements.ManageGrant{ID: uuid.New(), Grant: grant, Organization: "acme"})
			if errors.Is(err, entitlements.ErrInvalid) {
				err = nil // revoked before
			}
			return err
		})
		all.Go(func() error {
			_, err := h.persist(t.Context(), "revoke", entitlements.RevokeGrant{Grant: grant})
			return err
		})
		require.NoError(t, all.Wait())
		require.Contains(t, []string{"revoked", "extended revoked"}, h.line(grant))
		require.Equal(t, "free default active", h.holds(acme.DefaultPool))
	}
}
