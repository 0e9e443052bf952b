package entitlements_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bursarhq/bursar/lockorder"
)

const (
	modelWorkers = 8
	modelEach    = 5
)

// modelCommitted is an act that a worker has committed.
type modelCommitted struct {
	act  worldAct
	done modelDone
}

// Whatever eight do at once ends, once what is owed and due is done, as it would have ended one after another.
func TestActsAtOnceComeToWhatSomeOrderComesTo(t *testing.T) {
	t.Parallel()
	m := newModelHouse(t)
	h := *m.house
	m.house = &h
	modelCheck(t, 6, func(rt *rapid.T) {
		m.t = rt
		w := m.begin(rapid.IntRange(0, 9).Draw(rt, "crowded") == 0)
		d := &draws{rt: rt, orgs: 4, days: modelDays, last: map[string]worldAct{}}
		for range 6 {
			m.step(rt, w, d.act(holdKinds, grantKinds))
		}
		var all [modelWorkers][]worldAct
		for range modelEach {
			for i := range all {
				a := d.act(holdKinds, holdKinds, grantKinds, grantKinds, tierKinds, usageKinds)
				if a.kind == "drain" {
					a.org = i % d.orgs
				}
				all[i] = append(all[i], a)
			}
		}
		committed := m.atOnce(rt, all)
		m.drain()
		m.sweep()
		m.sound()
		got := m.print()
		var tries []string
		for _, order := range modelOrders(committed) {
			after, refused := w.replay(order)
			if refused == "" && calm(after.print()) == calm(got) {
				return
			}
			tries = append(tries, cmp.Or(refused, after.print()))
		}
		for _, c := range committed {
			rt.Logf("%d: %+v limit %d", c.done.witness, c.act, c.done.limit)
		}
		require.Equal(rt, tries[0], got, "no order explains it; this is the one in which the acts took their locks")
	})
}

// atOnce has a worker do each list, and returns what was committed, in the order of the witness.
func (m *modelHouse) atOnce(rt *rapid.T, all [modelWorkers][]worldAct) []modelCommitted {
	rt.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var committed []modelCommitted
	var failed []string
	ctx, cancel := context.WithTimeout(context.WithoutCancel(rt.Context()), 30*time.Second)
	defer cancel()
	for _, acts := range all {
		wg.Go(func() {
			for _, a := range acts {
				done, err := m.do(ctx, a)
				for errors.Is(err, lockorder.ErrBusy) && ctx.Err() == nil { // nothing was done
					time.Sleep(5 * time.Millisecond)
					done, err = m.do(ctx, a)
				}
				mu.Lock()
				switch {
				case err != nil:
					failed = append(failed, fmt.Sprintf("%+v: %v", a, err))
				case done.refused == "":
					committed = append(committed, modelCommitted{a, done})
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Empty(rt, failed)
	slices.SortFunc(committed, func(a, b modelCommitted) int { return cmp.Compare(a.done.witness, b.done.witness) })
	return committed
}

// replay does acts one after another in a world like this one, then what is owed and due. It answers the first that is refused.
func (w *world) replay(order []modelCommitted) (after *world, refused string) {
	after = w.clone()
	for _, c := range order {
		if why := after.do(c.act, c.done.limit); why != "" {
			return after, fmt.Sprintf("%s is %s: %+v", c.act.kind, why, c.act)
		}
	}
	after.do(worldAct{kind: "drain", org: -1}, -1)
	after.do(worldAct{kind: "sweep"}, -1)
	return after, ""
}

// modelOrders returns the order of the witness first. A default is saved without the rendezvous and without the rows of pools: an act that
// read the default before may have taken its number after. So orders follow in which each saving comes somewhat later.
func modelOrders(committed []modelCommitted) [][]modelCommitted {
	orders := [][]modelCommitted{committed}
	for i := len(committed) - 1; i >= 0; i-- {
		if committed[i].act.kind != "default" {
			continue
		}
		for _, order := range slices.Clone(orders) {
			at := slices.IndexFunc(order, func(c modelCommitted) bool { return c.done.witness == committed[i].done.witness })
			for later := at + 1; later < min(at+modelWorkers, len(order)) && len(orders) < 2000; later++ {
				moved := slices.Delete(slices.Clone(order), at, at+1)
				orders = append(orders, slices.Insert(moved, later, committed[i]))
			}
		}
	}
	return orders
}

// calm takes out what an act that overlaps the saving of a default may leave either way: whether a default that is grandfathered while
// something else takes its place counts as having conferred.
func calm(printed string) string {
	lines := strings.Split(printed, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "grant grandfathered") {
			lines[i] = strings.NewReplacer(" waiting ", " open ", " replaced ", " open ").Replace(line)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
