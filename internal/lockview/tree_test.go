package lockview

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// holding is a session that has held a lock for some seconds.
func holding(pid int, seconds int, tags ...string) *Session {
	since := noon.Add(-time.Duration(seconds) * time.Second)
	s := &Session{PID: pid, Since: &since, Still: &since, State: "idle in transaction", Holds: []Lock{}}
	for _, tag := range tags {
		s.Holds = append(s.Holds, Lock{tag: tag})
	}
	return s
}

// waits makes a session wait, for as many seconds, for a lock and those who keep it.
func (s *Session) waits(seconds int, tag string, on ...int) *Session {
	since := noon.Add(-time.Duration(seconds) * time.Second)
	s.State = "active"
	s.Waits = &Wait{For: Lock{tag: tag}, Since: &since, Seconds: float64(seconds), On: on}
	return s
}

// draw writes chains in one line each: 1(2(3) 4).
func draw(links []*Link) string {
	var texts []string
	for _, l := range links {
		text := fmt.Sprint(l.PID)
		if l.Deadlock {
			text += "!"
		}
		if len(l.Also) > 0 {
			text += fmt.Sprint("+", l.Also)
		}
		if len(l.Behind) > 0 {
			text += "(" + draw(l.Behind) + ")"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " ")
}

func TestChains(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sessions []*Session
		want     string
	}{
		"nobody waits":     {[]*Session{holding(1, 9, "a"), holding(2, 8, "b")}, ""},
		"a chain of three": {[]*Session{holding(1, 9, "a"), holding(2, 8, "b").waits(7, "a", 1), holding(3, 6).waits(5, "b", 2)}, "1(2(3))"},
		"a queue": {[]*Session{holding(1, 9, "a"), holding(2, 8).waits(7, "a", 1), holding(3, 6).waits(5, "a", 1, 2), holding(4, 6).waits(4, "a", 1, 2, 3)},
			"1(2 3+[2] 4+[2 3])"},
		"the oldest of several who hold":    {[]*Session{holding(1, 5, "a"), holding(2, 9, "a"), holding(3, 3).waits(2, "a", 1, 2)}, "2(3+[1])"},
		"behind one who waits":              {[]*Session{holding(1, 9, "a"), holding(2, 8).waits(4, "a", 1), holding(3, 3).waits(2, "a", 2)}, "1(2(3))"},
		"the longest wait first":            {[]*Session{holding(1, 9, "a"), holding(2, 9, "b"), holding(3, 9).waits(1, "a", 1), holding(4, 9).waits(8, "b", 2)}, "2(4) 1(3)"},
		"who it waited for has just gone":   {[]*Session{holding(2, 8).waits(7, "a", 1)}, "2"},
		"for itself, in a parallel query":   {[]*Session{holding(2, 8).waits(7, "a", 2)}, "2"},
		"a deadlock of two":                 {[]*Session{holding(1, 9, "a").waits(3, "b", 2), holding(2, 8, "b").waits(4, "a", 1)}, "2!(1)"},
		"a deadlock and one behind it":      {[]*Session{holding(1, 9, "a").waits(3, "b", 2), holding(2, 8, "b").waits(4, "a", 1), holding(3, 8).waits(9, "a", 1)}, "1!(3 2)"},
		"a deadlock of three beside a wait": {[]*Session{holding(1, 9, "a").waits(3, "b", 2), holding(2, 8, "b").waits(2, "c", 3), holding(3, 8, "c").waits(1, "a", 1), holding(4, 9, "d"), holding(5, 9).waits(5, "d", 4)}, "4(5) 1!(3(2))"},
	} {
		require.Equal(t, c.want, draw(chains(c.sessions)), name)
	}
}

// TestEveryWaiterIsShownOnce draws waits at random: whatever they are, each session that waits is in one place.
func TestEveryWaiterIsShownOnce(t *testing.T) {
	t.Parallel()
	for seed := range 500 {
		n := 2 + seed%7
		var sessions []*Session
		for i := range n {
			s := holding(i, seed%5+i, fmt.Sprint("lock", i))
			if on := (seed*31 + i*7) % (n + 2); on < n && on != i {
				s.waits((seed+i*3)%9, fmt.Sprint("lock", on), on, (on+seed)%n)
			}
			sessions = append(sessions, s)
		}
		seen := map[int]int{}
		var count func([]*Link)
		count = func(links []*Link) {
			for _, l := range links {
				seen[l.PID]++
				count(l.Behind)
			}
		}
		count(chains(sessions))
		for _, s := range sessions {
			if s.Waits != nil && seen[s.PID] != 1 || seen[s.PID] > 1 {
				t.Fatalf("seed %d: session %d is shown %d times in %s", seed, s.PID, seen[s.PID], draw(chains(sessions)))
			}
		}
	}
}
