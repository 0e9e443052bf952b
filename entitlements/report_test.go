package entitlements_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/entitlements"
)

func (h *house) report(org entitlements.Organization, at time.Time) entitlements.Report {
	h.t.Helper()
	r, err := entitlements.Effective(h.t.Context(), h.db.Reader(), org.ID, at)
	require.NoError(h.t, err)
	return r
}

// line returns the line of a key, and nothing where there is none.
func line(r entitlements.Report, key string) entitlements.Line {
	for _, l := range r.Lines {
		if l.Key == key {
			return l
		}
	}
	return entitlements.Line{}
}

func TestReportTellsValuesAndReasons(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	acme := h.org("acme", "club")
	h.converge("sub_1", acme.DefaultPool, item{"it_1", "gold", 2}, item{"it_2", "disk", 3}, item{"it_3", "turbo", 1}, item{"it_4", "plain", 1})
	r := h.report(acme, time.Time{})
	require.False(t, r.Historical)

	storage := line(r, "storage")
	require.Equal(t, entitlements.Number(221), storage.Value)
	require.NotNil(t, storage.Since)
	require.Len(t, storage.Reasons, 2)
	require.Equal(t, "gold", storage.Reasons[0].Product)
	require.Equal(t, entitlements.Number(200), storage.Reasons[0].Contributes, "twice 100")
	require.Equal(t, "membership", storage.Reasons[0].Ladder)
	require.Equal(t, 2, storage.Reasons[0].Rank)
	require.Equal(t, entitlements.Number(21), storage.Reasons[1].Contributes)
	require.Equal(t, "sub_1", storage.Reasons[1].SubscriptionID)

	speed := line(r, "speed")
	require.Equal(t, entitlements.Number(20), speed.Value)
	require.Equal(t, []entitlements.Value{entitlements.Number(20), entitlements.Number(9)},
		[]entitlements.Value{speed.Reasons[0].Contributes, speed.Reasons[1].Contributes})
	require.Equal(t, entitlements.Yes(true), line(r, "support").Value)

	require.Len(t, r.Held, 1)
	require.Equal(t, "plain", r.Held[0].Product)
	require.Equal(t, entitlements.WhyNoRules, r.Held[0].Why)
	require.Equal(t, []entitlements.Missing{{Key: "extra", Products: []string{}}}, r.Missing)
}

// What a support person asks: why does this member not have X?
func TestReportTellsWhatIsHeldAndDoesNotConfer(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	acme := h.org("acme", "club")
	h.converge("sub_low", acme.DefaultPool, item{"it_low", "silver", 1})
	h.converge("sub_top", acme.DefaultPool, item{"it_top", "gold", 1})
	r := h.report(acme, time.Time{})
	require.Len(t, r.Held, 1)
	require.Equal(t, "silver", r.Held[0].Product)
	require.Equal(t, entitlements.WhyOutranked, r.Held[0].Why)
	require.Equal(t, "sub_top", r.Held[0].OutrankedBy.SubscriptionID)
	require.Equal(t, []string{"speed", "storage"}, r.Held[0].Keys)

	h.suspend("sub_top")
	r = h.report(acme, time.Time{})
	require.Empty(t, r.Lines)
	require.Len(t, r.Held, 2)
	for _, held := range r.Held {
		switch held.Product {
		case "gold":
			require.Equal(t, entitlements.WhySuspended, held.Why)
			require.Nil(t, held.OutrankedBy)
		case "silver":
			require.Equal(t, entitlements.WhyOutranked, held.Why)
			require.Equal(t, "suspended", held.OutrankedBy.Status)
		}
	}
	require.Equal(t, "support", r.Missing[3].Key)
	require.Equal(t, []string{"gold"}, r.Missing[3].Products)
	require.Equal(t, []string{"free", "silver", "gold", "turbo"}, r.Missing[1].Products, "speed: by ladder and tier, then the others")
}

func TestReportAgreesWithWhatIsMaterialized(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	acme := h.org("acme", "club")
	h.converge("sub_1", acme.DefaultPool, item{"it_1", "silver", 1}, item{"it_2", "turbo", 1})
	for _, l := range h.report(acme, time.Time{}).Lines {
		require.Equal(t, h.one(`SELECT coalesce(numeric_value::text, boolean_value::text) FROM core.pool_entitlements WHERE pool_id = $1 AND resource_key = $2`,
			acme.DefaultPool, l.Key), l.Value.String())
		require.NotNil(t, l.Since)
	}
}

// What is over by its bounds does not count, whether or not anything has settled the pool since.
func TestReportHonoursBounds(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	acme := h.org("acme", "club")
	h.converge("sub_1", acme.DefaultPool, item{"it_1", "disk", 1})
	_, err := h.pool.Exec(t.Context(), `UPDATE core.positions SET ends_at = starts_at + interval '1 hour' WHERE item_id = 'it_1'`)
	require.NoError(t, err)
	require.Equal(t, entitlements.Number(8), line(h.report(acme, time.Time{}), "storage").Value)
	later := h.report(acme, time.Now().Add(2*time.Hour))
	require.Equal(t, entitlements.Number(1), line(later, "storage").Value)
	require.Nil(t, line(later, "storage").Since, "that is not written yet")
	require.Equal(t, entitlements.WhyNotInForce, later.Held[0].Why)
}

func TestReportOfThePastComesFromTheLedger(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	acme := h.org("acme", "club")
	h.converge("sub_1", acme.DefaultPool, item{"it_1", "gold", 1})
	var then time.Time
	require.NoError(t, h.pool.QueryRow(t.Context(), `SELECT core.clock()`).Scan(&then))
	h.end("sub_1")

	require.Equal(t, entitlements.Value{}, line(h.report(acme, time.Time{}), "support").Value)
	r := h.report(acme, then)
	require.True(t, r.Historical)
	require.Equal(t, entitlements.Number(100), line(r, "storage").Value)
	require.Equal(t, entitlements.Yes(true), line(r, "support").Value)
	require.Equal(t, "test-act", line(r, "support").Act)
	require.Equal(t, "test/1", line(r, "support").Workflow)
	require.Len(t, r.Held, 1)
	require.Equal(t, "gold", r.Held[0].Product)
	require.Equal(t, entitlements.EndSubscriptionEnded, r.Held[0].EndReason)
	require.Empty(t, h.report(acme, then.Add(-time.Hour)).Lines)
}

func TestReportOfAnOrganizationWithoutAnything(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	r := h.report(h.org("bare", "bare"), time.Time{})
	require.Empty(t, r.Lines)
	require.Empty(t, r.Held)
	require.Len(t, r.Missing, 4)
	require.WithinDuration(t, time.Now(), r.At, time.Minute)
}

func TestValuesAsJSON(t *testing.T) {
	t.Parallel()
	for _, v := range []entitlements.Value{{}, entitlements.Number(0), entitlements.Number(entitlements.MaxNumber), entitlements.Yes(true), entitlements.Yes(false)} {
		data, err := json.Marshal(v)
		require.NoError(t, err)
		var back entitlements.Value
		require.NoError(t, json.Unmarshal(data, &back))
		require.Equal(t, v, back)
	}
	var v entitlements.Value
	require.Error(t, json.Unmarshal([]byte(`1.5`), &v))
	require.Error(t, json.Unmarshal([]byte(`"1"`), &v))
	require.Equal(t, "nothing", entitlements.Value{}.String())
}
