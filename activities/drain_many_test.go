package activities_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/db"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows/contract"
)

const (
	crowdSize   = 10_000
	brokenPools = 3
	envDrain    = "BURSAR_TEST_DRAIN"
)

// drainOrder is what a child process is told.
type drainOrder struct{ URL, Change string }

// A change of rules over ten thousand pools, three of which cannot be settled, with its worker killed twice: all others are settled
// once each, the three are parked with the reason, and again it does nothing.
func TestRuleChangeOverTenThousandPools(t *testing.T) {
	if text := os.Getenv(envDrain); text != "" {
		drainAsChild(t, text)
		return
	}
	r := newRig(t)
	r.crowd(crowdSize, brokenPools)
	begun := time.Now()
	change := r.ruleChange(ruleChange("extra", "sites", entitlements.MaxNumber))
	t.Logf("committed over %d pools in %v, the exclusive rendezvous held all along", crowdSize, time.Since(begun).Round(time.Millisecond))
	require.Equal(t, crowdSize, change.Owed)
	require.Equal(t, "sites=3", r.entitlements("org-4"), "it is owed")

	settled := func() int {
		return r.count(`SELECT count(*) FROM core.change_obligations WHERE change_id = $1::uuid AND state = 'settled'`, change.ID)
	}
	for _, killAt := range []int{1_500, 4_000} {
		r.killDrain(change.ID, func() bool { return settled() >= killAt })
	}
	before := settled()
	require.Less(t, before, crowdSize, "both workers died under way")

	heap := &heapGauge{}
	got, err := turn(r.watched(heap.sample), contract.DrainRequest{ChangeID: change.ID})
	require.NoError(t, err)
	t.Logf("%d settled before two workers died, %d after; heap %d KiB to %d KiB", before, got.Settled, heap.least>>10, heap.most>>10)
	require.Less(t, heap.most-heap.least, uint64(8<<20), "memory stays flat")
	_, failed, parked := r.drain(change.ID)
	require.Equal(t, brokenPools, parked)
	require.GreaterOrEqual(t, failed, brokenPools)

	require.Equal(t, crowdSize-brokenPools, settled())
	require.Equal(t, crowdSize-brokenPools, r.count(`SELECT count(*) FROM (SELECT pool_id FROM core.ledger WHERE act = 'rule-change-commit' GROUP BY pool_id HAVING count(*) = 1) once`),
		"each was settled once")
	require.Equal(t, crowdSize-brokenPools, r.count(`SELECT count(*) FROM core.ledger WHERE act = 'rule-change-commit'`))
	require.Equal(t, crowdSize-brokenPools, r.count(`SELECT count(*) FROM core.pool_entitlements WHERE numeric_value = $1`, entitlements.MaxNumber+1))
	require.Equal(t, "org-1 org-2 org-3", r.text(`SELECT o.slug FROM core.change_obligations b JOIN core.pools p ON p.id = b.pool_id JOIN core.organizations o ON o.id = p.organization_id
		WHERE b.state = 'parked' AND b.attempts >= 5 AND b.last_error LIKE '%bigint out of range%' AND b.last_tried_at IS NOT NULL ORDER BY o.slug`))

	frozen := `SELECT md5(string_agg(xmin::text || ctid, ',' ORDER BY ctid)) FROM core.`
	tables := func() (all string) {
		for _, table := range []string{"pool_entitlements", "positions", "ledger", "change_obligations"} {
			all += r.text(frozen+table) + " "
		}
		return all
	}
	was := tables()
	again, err := turn(r.db, contract.DrainRequest{ChangeID: change.ID})
	require.NoError(t, err)
	require.Equal(t, contract.DrainTurn{Parked: brokenPools}, again)
	require.Equal(t, was, tables(), "again it writes nothing")
	r.ledgerAgrees()
}

// killDrain has another process drain the change, and kills it once the condition holds.
func (r *rig) killDrain(change string, until func() bool) {
	r.t.Helper()
	order, err := json.Marshal(drainOrder{URL: r.database.URL(), Change: change})
	require.NoError(r.t, err)
	child := exec.Command(os.Args[0], "-test.run=^TestRuleChangeOverTenThousandPools$")
	child.Env = append(os.Environ(), envDrain+"="+string(order))
	child.Stderr = os.Stderr
	require.NoError(r.t, child.Start())
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	deadline := time.After(2 * time.Minute)
	for !until() {
		select {
		case err := <-ended:
			r.t.Fatalf("the drain ended before it was killed: %v", err)
		case <-deadline:
			r.t.Fatal("the drain does not get on")
		case <-time.After(20 * time.Millisecond):
		}
	}
	require.NoError(r.t, child.Process.Kill())
	var exit *exec.ExitError
	require.ErrorAs(r.t, <-ended, &exit)
	require.Equal(r.t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
}

func drainAsChild(t *testing.T, text string) {
	var order drainOrder
	require.NoError(t, json.Unmarshal([]byte(text), &order))
	handle, err := lockorder.Open(t.Context(), order.URL, db.LockOptions())
	require.NoError(t, err)
	defer handle.Close()
	_, err = turn(handle, contract.DrainRequest{ChangeID: order.Change})
	require.NoError(t, err)
}

// heapGauge measures what is live on the heap, now and then.
type heapGauge struct {
	mu          sync.Mutex
	n           int
	least, most uint64
}

func (g *heapGauge) sample() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n++; g.n%500 != 100 { // not the first ones: what a test sets up is still there
		return
	}
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	if g.least == 0 || stats.HeapAlloc < g.least {
		g.least = stats.HeapAlloc
	}
	g.most = max(g.most, stats.HeapAlloc)
}
