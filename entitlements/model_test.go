package entitlements_test

import (
	"context"
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var modelRuns = flag.Int("model.checks", 0, "how many sequences the tests of the world draw, 0 for a few; rapid.checks bounds it")

// modelCheck is rapid.Check for what takes a second each time: of the checks that rapid makes only the first few do something.
func modelCheck(t *testing.T, few int, check func(*rapid.T)) {
	if *modelRuns > 0 {
		few = *modelRuns
	}
	failed := false
	rapid.Check(t, func(rt *rapid.T) {
		if few <= 0 && !failed {
			return
		}
		few--
		done := false
		defer func() { failed = failed || !done }() // then rapid looks for the shortest that fails
		check(rt)
		done = true
	})
}

// Whatever is done in whatever order comes to what the world says, step by step.
func TestEveryActComesToWhatTheWorldSays(t *testing.T) {
	t.Parallel()
	m := newModelHouse(t)
	h := *m.house
	m.house = &h
	modelCheck(t, 12, func(rt *rapid.T) {
		m.t = rt
		w := m.begin(rapid.IntRange(0, 5).Draw(rt, "crowded") == 0)
		d := &draws{rt: rt, orgs: 4, days: modelDays, last: map[string]worldAct{}}
		require.Equal(rt, w.print(), m.print())
		for range rapid.IntRange(8, 24).Draw(rt, "acts") {
			a := d.act(holdKinds, holdKinds, grantKinds, grantKinds, tierKinds, tierKinds, usageKinds, timeKinds)
			m.step(rt, w, a)
		}
		m.step(rt, w, worldAct{kind: "sweep", org: -1})
		m.step(rt, w, worldAct{kind: "drain", org: -1})
	})
}

// step does an act to the house and to the world, and compares.
func (m *modelHouse) step(rt *rapid.T, w *world, a worldAct) {
	rt.Helper()
	switch {
	case a.kind == "pass":
		if w.day() == modelDays {
			return
		}
		w.do(a, -1)
		m.db = m.days[w.day()]
	case a.kind == "sweep":
		w.do(a, -1)
		m.sweep()
	case a.kind == "drain" && a.org < 0:
		w.do(a, -1)
		m.drain()
	default:
		done, err := m.do(context.WithoutCancel(rt.Context()), a)
		require.NoError(rt, err, "%+v", a)
		require.Equal(rt, w.do(a, -1), done.refused, "what %+v is refused for", a)
	}
	require.Equal(rt, w.print(), m.print(), "after %+v", a)
	m.sound()
}
