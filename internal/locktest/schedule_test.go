package locktest

import (
	"fmt"
	"slices"
	"testing"
)

// play lets actors of so many steps each run by the chooser, all of them able to go at any time.
func play(steps []int, choose chooser) string {
	left := slices.Clone(steps)
	var taken []int
	for {
		var ready []int
		for i, n := range left {
			if n > 0 {
				ready = append(ready, i)
			}
		}
		if len(ready) == 0 {
			return letters(taken)
		}
		i := choose(len(taken), ready)
		left[i]--
		taken = append(taken, i)
	}
}

func TestTreePlaysEveryScheduleOnce(t *testing.T) {
	t.Parallel()
	for _, steps := range [][]int{{1, 1}, {3, 2}, {4, 4}, {2, 2, 2}} {
		seen := map[string]bool{}
		how, next := plan(steps, 1000, 1)
		for choose := next(); choose != nil; choose = next() {
			name := play(steps, choose)
			if seen[name] {
				t.Errorf("%v: %s twice", steps, name)
			}
			seen[name] = true
		}
		if want := schedulesOf(steps, 1000); len(seen) != want || how != "every schedule" {
			t.Errorf("%v: %d schedules (%s), want %d", steps, len(seen), how, want)
		}
	}
}

// A run that differs from the one before, since somebody slept, must not keep the tree from its end.
func TestTreeEndsAlsoWhenRunsDiffer(t *testing.T) {
	t.Parallel()
	_, next := plan([]int{3, 3}, 1000, 1)
	runs := 0
	for choose := next(); choose != nil; choose = next() {
		if runs++; runs > 2000 {
			t.Fatal("it goes on for ever")
		}
		play([]int{3, 3}, func(step int, ready []int) int {
			if (runs+step)%3 == 0 {
				ready = ready[:1]
			}
			return choose(step, ready)
		})
	}
}

func TestPlanBeginsWithOnePreemptionAndRepeats(t *testing.T) {
	t.Parallel()
	run := func(seed uint64) (names []string) {
		_, next := plan([]int{8, 6}, 30, seed)
		for choose := next(); choose != nil; choose = next() {
			names = append(names, play([]int{8, 6}, choose))
		}
		return names
	}
	names := run(7)
	if len(names) != 30 || !slices.Equal(names, run(7)) || slices.Equal(names, run(8)) {
		t.Errorf("%d schedules; the same seed must give the same ones, another others", len(names))
	}
	switches := func(name string) (n int) {
		for i := 1; i < len(name); i++ {
			if name[i] != name[i-1] {
				n++
			}
		}
		return n
	}
	single := map[string]bool{}
	for _, name := range names[:12] {
		if single[name] = true; switches(name) != 2 {
			t.Errorf("%s has not one pre-emption", name)
		}
	}
	if len(single) != 12 {
		t.Errorf("%d different ones with one pre-emption, want 7 + 5", len(single))
	}
	if !slices.ContainsFunc(names[12:], func(name string) bool { return switches(name) > 2 }) {
		t.Errorf("none has more pre-emptions: %v", names[12:])
	}
}

func TestReplayFollowsAsFarAsItCan(t *testing.T) {
	t.Parallel()
	for schedule, want := range map[string]string{"ABAB": "ABAB", "BBAA": "BBAA", "BBBB": "BBAA", "": "AABB"} {
		if got := play([]int{2, 2}, replay(schedule)); got != want {
			t.Errorf("%q plays %s, want %s", schedule, got, want)
		}
	}
}

func TestSchedulesOf(t *testing.T) {
	t.Parallel()
	for want, steps := range map[int][]int{2: {1, 1}, 70: {4, 4}, 90: {2, 2, 2}, 252: {5, 5}} {
		if got := schedulesOf(steps, 1000); got != want {
			t.Errorf("%v: %d, want %d", steps, got, want)
		}
	}
	if got := schedulesOf([]int{40, 40, 40}, 60); got <= 60 {
		t.Errorf("many steps: %d", got)
	}
	if got := fmt.Sprint(permutations(3)); len(permutations(3)) != 6 || got == "" {
		t.Errorf("permutations: %s", got)
	}
}
