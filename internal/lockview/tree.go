package lockview

import (
	"cmp"
	"slices"
	"time"
)

// Link is one session in a chain of waits, and who waits for it.
type Link struct {
	*Session `json:"-"` // it stands in Snapshot.Sessions
	// Process is its process id.
	Process int `json:"pid"`
	// Also are whom it waits for beside the one above it.
	Also []int `json:"also_waits_for,omitempty"`
	// Deadlock says that the session at the top of a chain waits for one below it: PostgreSQL ends one of them when its
	// deadlock_timeout has passed.
	Deadlock bool    `json:"deadlock,omitempty"`
	Behind   []*Link `json:"behind,omitempty"`
}

// chains arranges the sessions that wait, and those they wait for, as trees. Each stands once: below the one that holds
// what it waits for, the oldest where there are several, else below the first ahead of it in the queue.
func chains(sessions []*Session) []*Link {
	links := map[int]*Link{}
	for _, s := range sessions {
		links[s.PID] = &Link{Session: s, Process: s.PID}
	}
	parents := map[int]int{}
	for _, s := range sessions {
		if s.Waits == nil {
			continue
		}
		var ahead []*Session
		for _, pid := range s.Waits.On {
			if l, ok := links[pid]; ok && pid != s.PID {
				ahead = append(ahead, l.Session)
			}
		}
		if len(ahead) == 0 {
			continue
		}
		first := slices.MinFunc(ahead, func(a, b *Session) int {
			return cmp.Or(-compareBool(a.has(s.Waits), b.has(s.Waits)), compareTime(a.order(), b.order()), cmp.Compare(a.PID, b.PID))
		})
		parents[s.PID] = first.PID
		for _, a := range ahead {
			if a != first {
				links[s.PID].Also = append(links[s.PID].Also, a.PID)
			}
		}
	}
	for child, parent := range parents {
		links[parent].Behind = append(links[parent].Behind, links[child])
	}
	for _, l := range links {
		slices.SortFunc(l.Behind, func(a, b *Link) int {
			return cmp.Or(cmp.Compare(b.Waits.Seconds, a.Waits.Seconds), cmp.Compare(a.PID, b.PID))
		})
	}
	return tops(sessions, links, parents)
}

// tops returns the links at the top, those with the longest wait behind them first. In a circle nobody is at the top: there
// the session that has waited longest is put there.
func tops(sessions []*Session, links map[int]*Link, parents map[int]int) []*Link {
	var all []*Link
	seen := map[int]bool{}
	var mark func(*Link)
	mark = func(l *Link) {
		seen[l.PID] = true
		for _, b := range l.Behind {
			mark(b)
		}
	}
	for _, s := range sessions {
		if _, below := parents[s.PID]; !below && (len(links[s.PID].Behind) > 0 || s.Waits != nil) {
			all = append(all, links[s.PID])
			mark(links[s.PID])
		}
	}
	for {
		var longest *Link
		for _, s := range sessions {
			if s.Waits != nil && !seen[s.PID] && (longest == nil || s.Waits.Seconds > longest.Waits.Seconds) {
				longest = links[s.PID]
			}
		}
		if longest == nil {
			break
		}
		// Walk up until a session comes again: that one is in the circle, and not only behind it.
		for been := map[int]bool{}; !been[longest.PID]; longest = links[parents[longest.PID]] {
			been[longest.PID] = true
		}
		above := links[parents[longest.PID]]
		above.Behind = slices.DeleteFunc(slices.Clone(above.Behind), func(l *Link) bool { return l == longest })
		longest.Deadlock = true
		all = append(all, longest)
		mark(longest)
	}
	slices.SortStableFunc(all, func(a, b *Link) int { return cmp.Compare(b.longest(), a.longest()) })
	return all
}

// longest is the longest wait in a chain, in seconds.
func (l *Link) longest() float64 {
	most := 0.0
	if l.Waits != nil {
		most = l.Waits.Seconds
	}
	for _, b := range l.Behind {
		most = max(most, b.longest())
	}
	return most
}

// count returns how many sessions are in a chain.
func (l *Link) count() int {
	n := 1
	for _, b := range l.Behind {
		n += b.count()
	}
	return n
}

// has tells whether a session holds what another waits for.
func (s *Session) has(w *Wait) bool {
	return slices.ContainsFunc(s.Holds, func(l Lock) bool { return l.tag == w.For.tag })
}

// order is when a session came: when its wait began, if it waits, else its transaction.
func (s *Session) order() time.Time {
	switch {
	case s.Waits != nil && s.Waits.Since != nil:
		return *s.Waits.Since
	case s.Since != nil:
		return *s.Since
	}
	return time.Unix(1<<40, 0) // last
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func compareTime(a, b time.Time) int { return a.Compare(b) }
