package entitlements_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/locktest"
	"github.com/bursarhq/bursar/lockorder"
)

// allowancesSQL adds a product that gives 100 of three keys, one for each kind of window.
const allowancesSQL = `
INSERT INTO core.resource_keys (key, kind, aggregation, usage_window) VALUES ('builds', 'numeric', 'sum', 'month'), ('calls', 'numeric', 'sum', 'day'), ('seats', 'numeric', 'sum', 'none');
INSERT INTO core.entitlement_sets (slug, name) VALUES ('plan', 'Plan');
INSERT INTO core.set_rules (set_id, resource_key, kind, numeric_value) SELECT s.id, k, 'numeric', 100 FROM core.entitlement_sets s, unnest(ARRAY['builds', 'calls', 'seats']) k WHERE s.slug = 'plan';
INSERT INTO core.products (slug, name) VALUES ('plan', 'Plan');
INSERT INTO core.product_sets (product_id, set_id) SELECT p.id, s.id FROM core.products p, core.entitlement_sets s WHERE p.slug = 'plan' AND s.slug = 'plan';
INSERT INTO core.organization_types (slug, name, default_product_id) SELECT 'planned', 'Planned', id FROM core.products WHERE slug = 'plan';`

// newPlan is a house and the pool of an organisation that has allowances.
func newPlan(t testing.TB) (*house, uuid.UUID) {
	t.Helper()
	h := newHouse(t)
	_, err := h.pool.Exec(t.Context(), allowancesSQL)
	require.NoError(t, err)
	var plan uuid.UUID
	require.NoError(t, h.pool.QueryRow(t.Context(), `SELECT id FROM core.products WHERE slug = 'plan'`).Scan(&plan))
	h.ids["plan"] = plan
	return h, h.org("acme", "planned").DefaultPool
}

// opened is another handle on the house's database.
func (h *house) opened(change func(*lockorder.Options)) *lockorder.DB {
	h.t.Helper()
	o := locktest.Watched(lockorder.Options{NowSQL: "SELECT core.clock()"})
	if change != nil {
		change(&o)
	}
	db, err := lockorder.Open(h.t.Context(), h.pool.Config().ConnString(), o)
	require.NoError(h.t, err)
	h.t.(testing.TB).Cleanup(db.Close)
	return db
}

// shifted is a handle whose clock goes before or after the others'.
func (h *house) shifted(by time.Duration) *lockorder.DB {
	return h.opened(func(o *lockorder.Options) {
		o.Configure = func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams["bursar.clock_offset"] = fmt.Sprintf("%d milliseconds", by.Milliseconds())
		}
	})
}

// at is a handle whose clock shows a moment now.
func (h *house) at(moment time.Time) *lockorder.DB { return h.shifted(time.Until(moment)) }

func (h *house) spend(db *lockorder.DB, id string, pool uuid.UUID, key string, n int64) entitlements.Spent {
	h.t.Helper()
	spent, err := entitlements.Spend(h.t.Context(), db, entitlements.Spending{ID: id, Pool: pool, Key: key, N: n})
	require.NoError(h.t, err)
	return spent
}

// exhausted wants a spend to be refused, and returns how.
func (h *house) exhausted(db *lockorder.DB, id string, pool uuid.UUID, key string, n int64) *entitlements.Exhausted {
	h.t.Helper()
	_, err := entitlements.Spend(h.t.Context(), db, entitlements.Spending{ID: id, Pool: pool, Key: key, N: n})
	require.ErrorIs(h.t, err, entitlements.ErrExhausted)
	var refused *entitlements.Exhausted
	require.ErrorAs(h.t, err, &refused)
	return refused
}

// used tells the counters of a key: "2026-02-01 40, 2026-03-01 2".
func (h *house) used(key string) string {
	h.t.Helper()
	return h.one(`SELECT coalesce(string_agg(to_char(window_start AT TIME ZONE 'UTC', 'YYYY-MM-DD') || ' ' || used, ', ' ORDER BY window_start), '') FROM core.usage WHERE resource_key = $1`, key)
}

func TestSpendTakesWhatIsLeft(t *testing.T) {
	t.Parallel()
	h, pool := newPlan(t)
	db := h.at(time.Date(2027, 2, 10, 12, 0, 0, 0, time.UTC))
	march := time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)

	first := h.spend(db, "a", pool, "builds", 60)
	require.Equal(t, entitlements.Spent{
		N: 60, Used: 60, Limit: 100, Left: 40, WindowStart: march.AddDate(0, -1, 0), RenewsAt: march, At: first.At,
	}, first)
	require.Equal(t, "2027-02-10 12:00", first.At.Format("2006-01-02 15:04"))

	refused := h.exhausted(db, "b", pool, "builds", 41)
	require.Equal(t, int64(40), refused.Left)
	require.Equal(t, march, refused.RenewsAt)
	require.Equal(t, fmt.Sprintf("builds of pool %s: 41 asked for, 40 left of 100, and a new window begins 2027-03-01T00:00:00Z", pool), refused.Error())
	require.Equal(t, "2027-02-01 60", h.used("builds"))

	require.Equal(t, int64(0), h.spend(db, "b", pool, "builds", 40).Left, "a refused spend is not remembered: its id may be tried again, also for less")
	require.Equal(t, int64(0), h.exhausted(db, "c", pool, "builds", 1).Left)
	require.Equal(t, int64(100), h.spend(h.at(march), "c", pool, "builds", 100).Used, "the next month has an allowance of its own")

	seats := h.spend(db, "a", pool, "seats", 1)
	require.Zero(t, seats.RenewsAt, "nothing renews what has no window")
	require.Equal(t, int64(2), h.spend(h.at(march), "b", pool, "seats", 1).Used)
	require.Equal(t, "1970-01-01 2", h.used("seats"))
	require.NotContains(t, h.exhausted(db, "c", pool, "seats", 99).Error(), "renew")
}

func TestSpendOfWhatAPoolHasNot(t *testing.T) {
	t.Parallel()
	h, _ := newPlan(t)
	bare := h.org("bare", "bare").DefaultPool
	refused := h.exhausted(h.db, "a", bare, "builds", 1)
	require.Zero(t, refused.Limit)
	require.Zero(t, refused.Left)
	require.Empty(t, h.used("builds"), "a refused spend leaves nothing")
}

func TestARepeatGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	h, pool := newPlan(t)
	db := h.at(time.Date(2027, 2, 10, 12, 0, 0, 0, time.UTC))
	first := h.spend(db, "a", pool, "calls", 30)
	h.spend(db, "b", pool, "calls", 70)

	want := first
	want.Repeated = true
	require.Equal(t, want, h.spend(db, "a", pool, "calls", 30), "although nothing is left now")
	require.Equal(t, want, h.spend(h.at(time.Date(2027, 2, 11, 12, 0, 0, 0, time.UTC)), "a", pool, "calls", 30), "and although its window is over")
	require.Equal(t, "2027-02-10 100", h.used("calls"))

	_, err := entitlements.Spend(t.Context(), db, entitlements.Spending{ID: "a", Pool: pool, Key: "calls", N: 31})
	require.ErrorIs(t, err, entitlements.ErrInvalid)
	require.ErrorContains(t, err, "was made of 30, and now asks for 31")
	require.False(t, h.spend(db, "a", pool, "builds", 5).Repeated, "under another key it is another spend")
}

func TestWhatCannotBeSpent(t *testing.T) {
	t.Parallel()
	h, pool := newPlan(t)
	var locked []string
	db := h.opened(func(o *lockorder.Options) {
		o.Observe = func(e lockorder.Event) { locked = append(locked, e.Took.String()) }
	})
	long := strings.Repeat("é", entitlements.MaxSpendID)
	for name, c := range map[string]struct {
		spending entitlements.Spending
		want     error
		says     string
	}{
		"no id":           {entitlements.Spending{Pool: pool, Key: "builds", N: 1}, entitlements.ErrInvalid, "needs an id"},
		"a long id":       {entitlements.Spending{ID: long + "x", Pool: pool, Key: "builds", N: 1}, entitlements.ErrInvalid, "has 201 characters"},
		"nothing":         {entitlements.Spending{ID: "a", Pool: pool, Key: "builds"}, entitlements.ErrInvalid, "0 cannot be spent"},
		"less than 0":     {entitlements.Spending{ID: "a", Pool: pool, Key: "builds", N: -1}, entitlements.ErrInvalid, "-1 cannot be spent"},
		"too much":        {entitlements.Spending{ID: "a", Pool: pool, Key: "builds", N: entitlements.MaxNumber + 1}, entitlements.ErrInvalid, "cannot be spent"},
		"no pool":         {entitlements.Spending{ID: "a", Key: "builds", N: 1}, entitlements.ErrInvalid, "no pool"},
		"no key":          {entitlements.Spending{ID: "a", Pool: pool, N: 1}, entitlements.ErrInvalid, "no resource key"},
		"a boolean":       {entitlements.Spending{ID: "a", Pool: pool, Key: "support", N: 1}, entitlements.ErrInvalid, "support is a boolean"},
		"an unknown key":  {entitlements.Spending{ID: "a", Pool: pool, Key: "build", N: 1}, entitlements.ErrNotFound, "near it: builds"},
		"an unknown pool": {entitlements.Spending{ID: "a", Pool: uuid.New(), Key: "builds", N: 1}, entitlements.ErrNotFound, "no pool"},
	} {
		_, err := entitlements.Spend(t.Context(), db, c.spending)
		require.ErrorIs(t, err, c.want, name)
		require.ErrorContains(t, err, c.says, name)
	}
	require.Empty(t, locked, "all of that is found out before a lock is taken")
	h.spend(db, long, pool, "builds", 1)
	require.Len(t, locked, 1)
}

func (h *house) release(db *lockorder.DB, id string, pool uuid.UUID, key string, keep int64) entitlements.Released {
	h.t.Helper()
	released, err := entitlements.Release(h.t.Context(), db, entitlements.Releasing{ID: id, Pool: pool, Key: key, Keep: keep})
	require.NoError(h.t, err)
	return released
}

func TestReleaseGivesBack(t *testing.T) {
	t.Parallel()
	h, pool := newPlan(t)
	today := time.Date(2027, 2, 10, 0, 0, 0, 0, time.UTC)
	db := h.at(today.Add(12 * time.Hour))
	h.spend(db, "a", pool, "calls", 100)

	require.Equal(t, entitlements.Released{Freed: 30, Kept: 70, Used: 70, WindowStart: today}, h.release(db, "a", pool, "calls", 70))
	require.Equal(t, entitlements.Released{Kept: 70, Used: 70, WindowStart: today}, h.release(db, "a", pool, "calls", 70), "again it gives back nothing")
	require.Equal(t, int64(0), h.release(db, "a", pool, "calls", 90).Freed, "what was given back stays so")
	require.Equal(t, int64(50), h.release(db, "a", pool, "calls", 20).Freed)
	h.spend(db, "b", pool, "calls", 80)
	require.Equal(t, int64(20), h.release(db, "a", pool, "calls", 0).Freed)
	require.Equal(t, int64(100), h.spend(db, "a", pool, "calls", 100).N, "a repeat of a released spend is answered, and takes nothing")
	require.Equal(t, "2027-02-10 80", h.used("calls"))

	tomorrow := h.at(today.Add(36 * time.Hour))
	h.spend(tomorrow, "c", pool, "calls", 1)
	over := h.release(tomorrow, "b", pool, "calls", 0)
	require.True(t, over.WindowOver, "the window that it was taken from is over")
	require.Equal(t, "2027-02-10 0, 2027-02-11 1", h.used("calls"), "today's allowance gets nothing of it")

	for name, c := range map[string]struct {
		releasing entitlements.Releasing
		want      error
	}{
		"never spent":           {entitlements.Releasing{ID: "x", Pool: pool, Key: "calls"}, entitlements.ErrNotFound},
		"spent of another key":  {entitlements.Releasing{ID: "a", Pool: pool, Key: "builds"}, entitlements.ErrNotFound},
		"keeping more than all": {entitlements.Releasing{ID: "a", Pool: pool, Key: "calls", Keep: 101}, entitlements.ErrInvalid},
		"keeping less than 0":   {entitlements.Releasing{ID: "a", Pool: pool, Key: "calls", Keep: -1}, entitlements.ErrInvalid},
		"without an id":         {entitlements.Releasing{Pool: pool, Key: "calls"}, entitlements.ErrInvalid},
	} {
		_, err := entitlements.Release(t.Context(), db, c.releasing)
		require.ErrorIs(t, err, c.want, name)
	}
}

func TestRaiseAndBound(t *testing.T) {
	t.Parallel()
	h, pool := newPlan(t)
	seats := entitlements.Counter{Pool: pool, Key: "seats"}
	do := func(act func(context.Context, *lockorder.DB, entitlements.Counter, int64) (entitlements.Adjusted, error), n int64) string {
		t.Helper()
		a, err := act(t.Context(), h.db, seats, n)
		require.NoError(t, err)
		return fmt.Sprintf("%d → %d, %d left of %d", a.Was, a.Used, a.Left, a.Limit)
	}
	require.Equal(t, "0 → 0, 100 left of 100", do(entitlements.Bound, 7))
	require.Equal(t, "0 → 7, 93 left of 100", do(entitlements.RaiseTo, 7))
	require.Equal(t, "7 → 7, 93 left of 100", do(entitlements.RaiseTo, 5))
	h.spend(h.db, "a", pool, "seats", 3)
	require.Equal(t, "10 → 10, 90 left of 100", do(entitlements.Bound, 12))
	require.Equal(t, "10 → 2, 98 left of 100", do(entitlements.Bound, 2))
	require.Zero(t, h.release(h.db, "a", pool, "seats", 0).Used, "never below 0, although 3 are given back of 2")
	require.Equal(t, "0 → 150, 0 left of 100", do(entitlements.RaiseTo, 150), "what is measured stands, also beyond the limit")
	require.Equal(t, int64(150), h.exhausted(h.db, "b", pool, "seats", 1).Used)
	require.Equal(t, "150 → 0, 100 left of 100", do(entitlements.Bound, 0))

	for _, n := range []int64{-1, entitlements.MaxNumber + 1} {
		_, err := entitlements.RaiseTo(t.Context(), h.db, seats, n)
		require.ErrorIs(t, err, entitlements.ErrInvalid)
		_, err = entitlements.Bound(t.Context(), h.db, seats, n)
		require.ErrorIs(t, err, entitlements.ErrInvalid)
	}
	_, err := entitlements.RaiseTo(t.Context(), h.db, entitlements.Counter{Pool: pool, Key: "support"}, 1)
	require.ErrorIs(t, err, entitlements.ErrInvalid)
	_, err = entitlements.Bound(t.Context(), h.db, entitlements.Counter{Pool: pool, Key: "seat"}, 1)
	require.ErrorIs(t, err, entitlements.ErrNotFound)
}

func TestUsageTellsWhatIsLeft(t *testing.T) {
	t.Parallel()
	h, pool := newPlan(t)
	today := time.Date(2027, 2, 10, 0, 0, 0, 0, time.UTC)
	db := h.at(today.Add(time.Hour))
	h.spend(db, "a", pool, "calls", 30)
	h.spend(db, "a", pool, "builds", 100)
	org, err := entitlements.FindOrganization(t.Context(), db.Reader(), "acme")
	require.NoError(t, err)
	all, err := entitlements.Usage(t.Context(), db.Reader(), org.ID)
	require.NoError(t, err)
	var told []string
	for _, u := range all {
		told = append(told, fmt.Sprintf("%s %s since %s: %d of %d, %d left", u.Key, u.Window, u.WindowStart.Format(time.DateOnly), u.Used, u.Limit, u.Left))
	}
	require.Equal(t, []string{
		"builds month since 2027-02-01: 100 of 100, 0 left",
		"calls day since 2027-02-10: 30 of 100, 70 left",
		"seats none since 1970-01-01: 0 of 100, 100 left",
	}, told)
	_, err = entitlements.Usage(t.Context(), db.Reader(), uuid.New())
	require.ErrorIs(t, err, entitlements.ErrNotFound)
}

// Windows begin and end in UTC, wherever the session thinks that it is.
func TestWindowsAreUTC(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for _, zone := range []string{"UTC", "Pacific/Auckland", "America/New_York"} {
		for _, c := range [][4]string{
			{"day", "2027-03-14 07:30:00Z", "2027-03-14 00:00:00Z", "2027-03-15 00:00:00Z"},
			{"day", "2027-12-31 23:59:59.999999Z", "2027-12-31 00:00:00Z", "2028-01-01 00:00:00Z"},
			{"month", "2028-02-29 23:59:59.999999Z", "2028-02-01 00:00:00Z", "2028-03-01 00:00:00Z"},
			{"month", "2028-03-01 00:00:00Z", "2028-03-01 00:00:00Z", "2028-04-01 00:00:00Z"},
			{"none", "2028-03-01 00:00:00Z", "1970-01-01 00:00:00Z", ""},
		} {
			require.Equal(t, c[2]+"|"+c[3], h.one(`
				SELECT string_agg(coalesce(to_char(w AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), ''), '|' ORDER BY n)
				FROM set_config('timezone', $1, false), unnest(ARRAY[core.usage_window_start($2, $3::timestamptz), core.usage_window_end($2, $3::timestamptz)]) WITH ORDINALITY u (w, n)`,
				zone, c[0], c[1]), "%v in %s", c, zone)
		}
	}
}
