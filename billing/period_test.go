package billing_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bursarhq/bursar/billing"
)

func TestPeriods(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	type span struct{ from, to int }
	for _, c := range []struct {
		name  string
		shown []span
		stand []span
	}{
		{"renewal", []span{{0, 30}, {30, 60}}, []span{{0, 30}, {30, 60}}},
		{"the same again", []span{{0, 30}, {0, 30}}, []span{{0, 30}}},
		{"early end of a trial", []span{{0, 14}, {5, 35}}, []span{{0, 5}, {5, 35}}},
		{"month to year", []span{{0, 30}, {30, 60}, {40, 405}}, []span{{0, 30}, {30, 40}, {40, 405}}},
		{"a longer trial", []span{{0, 14}, {0, 21}}, []span{{0, 21}}},
		{"a shorter trial", []span{{0, 14}, {0, 7}}, []span{{0, 7}}},
		{"back to before", []span{{0, 30}, {10, 40}, {0, 30}}, []span{{0, 30}}},
		{"back, and further back", []span{{20, 50}, {10, 20}, {5, 60}}, []span{{5, 60}}},
		{"there and back and there", []span{{0, 30}, {10, 40}, {0, 30}, {10, 40}}, []span{{0, 10}, {10, 40}}},
		{"empty", []span{{0, 30}, {7, 7}}, []span{{0, 30}}},
	} {
		id := "sub_" + uniqueID()
		for _, s := range c.shown {
			state := seen(id)
			state.PeriodStart, state.PeriodEnd = day(s.from), day(s.to)
			_, _, err := r.record(t.Context(), state)
			require.NoError(t, err, c.name)
		}
		var want []billing.Period
		for _, s := range c.stand {
			want = append(want, billing.Period{ItemID: "si_" + id, Start: *day(s.from), End: *day(s.to)})
		}
		stand, err := billing.Periods(t.Context(), r.db.Reader(), id)
		require.NoError(t, err)
		require.Equal(t, want, stand, c.name)
	}
}

// Whatever Stripe shows in whatever order: nothing is refused, standing periods never overlap, and what was shown last
// stands as it was shown.
func TestAnySequenceOfPeriods(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rapid.Check(t, func(rt *rapid.T) {
		id := "sub_" + uniqueID()
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			state := seen(id)
			from := rapid.IntRange(0, 20).Draw(rt, "from")
			to := from + rapid.IntRange(1, 12).Draw(rt, "days")
			state.PeriodStart, state.PeriodEnd = day(from), day(to)
			if rapid.Bool().Draw(rt, "second item") {
				state.Items = append(state.Items, billing.Item{ID: "si_2_" + id, Price: "price_mug", Product: "prod_mug", Quantity: 1})
			}
			if _, _, err := r.record(t.Context(), state); err != nil {
				rt.Fatalf("recording [%d, %d): %v", from, to, err)
			}
			stand, err := billing.Periods(t.Context(), r.db.Reader(), id)
			if err != nil {
				rt.Fatal(err)
			}
			last := map[string]billing.Period{}
			for _, p := range stand { // by item and start
				if before, ok := last[p.ItemID]; ok && before.End.After(p.Start) {
					rt.Fatalf("%v and %v overlap", before, p)
				}
				last[p.ItemID] = p
			}
			for _, i := range state.Items {
				if got := last[i.ID]; !got.Start.Equal(*day(from)) || !got.End.Equal(*day(to)) {
					rt.Fatalf("item %s: [%d, %d) was shown last, and %v stands", i.ID, from, to, got)
				}
			}
		}
	})
}
