package locktest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
)

const (
	envSchedule  = "BURSAR_LOCKTEST_SCHEDULE"
	envSeed      = "BURSAR_LOCKTEST_SEED"
	envSchedules = "BURSAR_LOCKTEST_SCHEDULES"
)

// chooser decides who takes the next step, of those who can. step counts from 0.
type chooser func(step int, ready []int) int

// letters writes a schedule: who took each step, the first actor A.
func letters(steps []int) string {
	var b strings.Builder
	for _, i := range steps {
		b.WriteByte(byte('A' + i))
	}
	return b.String()
}

// replay follows a written schedule as far as it can be followed.
func replay(schedule string) chooser {
	return func(step int, ready []int) int {
		if step < len(schedule) {
			if want := int(schedule[step] - 'A'); slices.Contains(ready, want) {
				return want
			}
		}
		return ready[0]
	}
}

// ranked lets the first of the order go who can, and puts that one last at each change: with no change the actors run one
// after the other, and each change is a pre-emption.
func ranked(order []int, changes ...int) chooser {
	order = slices.Clone(order)
	return func(step int, ready []int) int {
		first := func() int {
			return order[slices.IndexFunc(order, func(i int) bool { return slices.Contains(ready, i) })]
		}
		who := first()
		if slices.Contains(changes, step) {
			order = append(slices.DeleteFunc(order, func(i int) bool { return i == who }), who)
			who = first()
		}
		return who
	}
}

// uniform lets anybody go.
func uniform(rng *rand.Rand) chooser {
	return func(_ int, ready []int) int { return ready[rng.IntN(len(ready))] }
}

// tree goes through every schedule: next returns the chooser of the next one, nil after the last.
type tree struct {
	path    []int // which of those who could go went, by step
	options []int // how many could
	begun   bool
}

func (t *tree) next() chooser {
	if t.begun {
		for len(t.path) > 0 && t.path[len(t.path)-1] >= t.options[len(t.options)-1]-1 {
			t.path, t.options = t.path[:len(t.path)-1], t.options[:len(t.options)-1]
		}
		if len(t.path) == 0 {
			return nil
		}
		t.path[len(t.path)-1]++
		t.options = t.options[:len(t.path)]
	}
	t.begun = true
	return func(step int, ready []int) int {
		if step < len(t.path) { // fewer may be ready than the last time, where somebody slept
			return ready[min(t.path[step], len(ready)-1)]
		}
		t.path, t.options = append(t.path, 0), append(t.options, len(ready))
		return ready[0]
	}
}

// plan yields the schedules of an interleaving of acts that take so many steps each when they run alone.
func plan(steps []int, most int, seed uint64) (how string, next func() chooser) {
	if n := schedulesOf(steps, most); n <= most {
		return "every schedule", (&tree{}).next
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	all, total := permutations(len(steps)), 0
	for _, n := range steps {
		total += n
	}
	var single []chooser
	for _, order := range all {
		for change := 1; change < steps[order[0]]; change++ {
			single = append(single, ranked(order, change))
		}
	}
	// Most of what goes wrong goes wrong with one pre-emption; a third of the schedules is kept for more.
	systematic := "every schedule with one pre-emption"
	if room := most - most/3; len(single) > room {
		rng.Shuffle(len(single), func(i, j int) { single[i], single[j] = single[j], single[i] })
		systematic = fmt.Sprintf("%d of %d schedules with one pre-emption", room, len(single))
		single = single[:room]
	}
	n := 0
	return fmt.Sprintf("%s, then random ones, seed %d", systematic, seed), func() chooser {
		n++
		switch {
		case n > most:
			return nil
		case n <= len(single):
			return single[n-1]
		case n%4 == 0:
			return uniform(rng)
		}
		return ranked(all[rng.IntN(len(all))], 1+rng.IntN(total), 1+rng.IntN(total))
	}
}

// schedulesOf is how many schedules there are of so many steps each, or more than most.
func schedulesOf(steps []int, most int) int {
	n, placed := 1, 0
	for _, s := range steps {
		for i := 1; i <= s; i++ {
			placed++
			n = n * placed / i // stays whole: it is a binomial coefficient after each step
			if n > most*1000 {
				return n
			}
		}
	}
	return n
}

// permutations returns every order of n actors.
func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{{}}
	}
	var out [][]int
	for _, shorter := range permutations(n - 1) {
		for i := 0; i <= len(shorter); i++ {
			out = append(out, slices.Insert(slices.Clone(shorter), i, n-1))
		}
	}
	return out
}

// seedOf returns the seed that the environment gives, or one of chance.
func seedOf() (uint64, error) {
	text := os.Getenv(envSeed)
	if text == "" {
		return uint64(rand.Uint32()), nil
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s must be a whole number, not %q", envSeed, text)
	}
	return seed, nil
}

// mostOf returns how many schedules to run: what the environment says, else what the interleaving does.
func mostOf(own int) (int, error) {
	if text := os.Getenv(envSchedules); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return 0, fmt.Errorf("%s must be a number above 0, not %q", envSchedules, text)
		}
		return n, nil
	}
	if own == 0 {
		return defaultSchedules, nil
	}
	return own, nil
}
