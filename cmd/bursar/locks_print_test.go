package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/internal/lockview"
)

// printed is a snapshot as a person sees it, without its first line.
func printed(s lockview.Snapshot, width int) string {
	var out bytes.Buffer
	lockPrinter{out: &out, width: width}.snapshot(s, "")
	_, rest, _ := strings.Cut(out.String(), "\n")
	return rest
}

func pool(n int) lockview.Lock {
	return lockview.Lock{Owner: lockview.OwnerBursar, Class: "pool", Identity: []string{fmt.Sprint("p", n)}}
}

// link is a session in a chain; it waits where on is not 0.
func link(pid, on int, behind ...*lockview.Link) *lockview.Link {
	s := &lockview.Session{PID: pid, Holder: &lockview.Holder{Workflow: fmt.Sprint("subscription/sub_", pid), Path: "subscription-reconcile"}, Holds: []lockview.Lock{pool(pid)}}
	if on != 0 {
		since := time.Unix(0, 0)
		s.Waits = &lockview.Wait{For: pool(on), Since: &since, Seconds: 3, On: []int{on}}
	}
	return &lockview.Link{Session: s, Process: pid, Behind: behind}
}

func TestManyWaitersAreToldInOneLineEach(t *testing.T) {
	t.Parallel()
	var waiters []*lockview.Link
	for pid := 2; pid <= 7; pid++ {
		waiters = append(waiters, link(pid, 1))
	}
	waiters[3].Behind = []*lockview.Link{link(9, 5)}
	require.Equal(t, `
subscription/sub_1 · subscription-reconcile, pid 1
│ holds pool p1
├─ waits 3 s for pool p1: subscription/sub_2 · subscription-reconcile, pid 2
├─ waits 3 s for pool p1: subscription/sub_3 · subscription-reconcile, pid 3
├─ waits 3 s for pool p1: subscription/sub_4 · subscription-reconcile, pid 4
├─ waits 3 s for pool p1
│  subscription/sub_5 · subscription-reconcile, pid 5
│  │ holds pool p5
│  └─ waits 3 s for pool p5
│     subscription/sub_9 · subscription-reconcile, pid 9
│       holds pool p9
├─ waits 3 s for pool p1: subscription/sub_6 · subscription-reconcile, pid 6
└─ waits 3 s for pool p1: subscription/sub_7 · subscription-reconcile, pid 7
`, printed(lockview.Snapshot{Chains: []*lockview.Link{link(1, 0, waiters...)}}, 0))
}

func TestLocksFitANarrowTerminal(t *testing.T) {
	t.Parallel()
	top := link(1, 0, link(2, 1), link(3, 1))
	top.Advice = "Silent between two statements for 4 s: its process is slow, stopped, or cut off."
	top.Behind[0].Also = []int{4, 5}
	require.Equal(t, `
subscription/sub_1 ·
subscription-reconcile, pid 1
│ holds pool p1
│ → Silent between two statements for
│   4 s: its process is slow, stopped,
│   or cut off.
├─ waits 3 s for pool p1
│  subscription/sub_2 ·
│  subscription-reconcile, pid 2
│    holds pool p2
│    also  waits for pid 4, pid 5
└─ waits 3 s for pool p1
   subscription/sub_3 ·
   subscription-reconcile, pid 3
     holds pool p3

! The role x may not see.
`, printed(lockview.Snapshot{Chains: []*lockview.Link{top}, Notes: []string{"The role x may not see."}}, 38))
}

func TestManyLocksOfOneSession(t *testing.T) {
	t.Parallel()
	alone := link(1, 0)
	alone.Holds = nil
	for n := range 20 {
		alone.Holds = append(alone.Holds, pool(n))
	}
	since := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	alone.Since = &since
	s := lockview.Snapshot{At: since.Add(90 * time.Second), Sessions: []*lockview.Session{alone.Session}}
	out := printed(s, 0)
	require.Contains(t, out, "Held, and nobody waits for it:\nPID  WHO  ")
	require.Contains(t, out, "90 s      pool p0\n")
	require.Contains(t, out, "pool p6\n")
	require.NotContains(t, out, "pool p7")
	require.Contains(t, out, "and 13 more; --json lists them")
	s.Chains = []*lockview.Link{alone}
	require.Contains(t, printed(s, 0), "and 13 more; --json lists them")
}

func TestADeadlockIsCalledOne(t *testing.T) {
	t.Parallel()
	top := link(1, 2, link(2, 1))
	top.Deadlock = true
	require.Contains(t, printed(lockview.Snapshot{Chains: []*lockview.Link{top}}, 0), "\na deadlock: it waits for somebody who waits for it;")
}
