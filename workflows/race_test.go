package workflows

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/bursarhq/bursar/workflows/contract"
)

// On a real server, runs of one subscription complete, start again and continue as new while signals and updates keep
// coming. Each signal must be covered by a read begun after it was sent, and each update answered by one.
func TestNoSignalAndNoUpdateIsLost(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c := dial(t)
	const id = "sub_NoSignalIsLost"

	var mu sync.Mutex
	begun := []time.Time{{}} // of each read, by its number from 1
	covered := map[string]int{}
	serve(t, c, outside{reconcile: func(_ context.Context, request contract.ReconcileRequest) (contract.ReconcileResult, error) {
		mu.Lock()
		defer mu.Unlock()
		begun = append(begun, time.Now())
		n := len(begun) - 1
		for _, e := range request.Events {
			covered[e.EventID] = n
		}
		return contract.ReconcileResult{Outcome: contract.OutcomeUnchanged, Version: int64(n)}, nil
	}})

	starter := Starter{Client: c}
	const senders, each = 6, 50
	sent := map[string]time.Time{}
	var wait sync.WaitGroup
	for s := range senders {
		wait.Go(func() {
			for i := range each {
				event := fmt.Sprintf("evt_%dx%d", s, i)
				mu.Lock()
				sent[event] = time.Now()
				mu.Unlock()
				if err := starter.SignalReconcile(ctx, id, contract.ReconcileSignal{EventID: event, EventType: "customer.subscription.updated"}); err != nil {
					t.Errorf("signal %s: %v", event, err)
					return
				}
				time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond) // the load, not a wait for anything
			}
		})
	}
	for range 3 {
		wait.Go(func() {
			for range 15 {
				asked := time.Now()
				result, err := starter.ReconcileNow(ctx, id)
				if err != nil {
					t.Errorf("update: %v", err)
					return
				}
				mu.Lock()
				answered := begun[result.Version]
				mu.Unlock()
				if answered.Before(asked) {
					t.Errorf("an update asked at %s was answered by the read begun at %s", asked, answered)
				}
				time.Sleep(time.Duration(rand.IntN(80)) * time.Millisecond)
			}
		})
	}
	wait.Wait()
	await(ctx, t, c, contract.SubscriptionWorkflowID(id))

	mu.Lock()
	defer mu.Unlock()
	for event, at := range sent {
		read, ok := covered[event]
		if !ok {
			t.Errorf("no read covers %s", event)
		} else if begun[read].Before(at) {
			t.Errorf("%s was sent at %s and is covered by the read begun at %s", event, at, begun[read])
		}
	}

	// The test is worth something only if runs ended in both ways while it went on.
	runs := map[string]int64{}
	for _, status := range []string{"Completed", "ContinuedAsNew", "Failed", "Running"} {
		query := fmt.Sprintf("WorkflowId = '%s' AND ExecutionStatus = '%s'", contract.SubscriptionWorkflowID(id), status)
		require.Eventually(t, func() bool {
			counted, err := c.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Query: query})
			runs[status] = counted.GetCount()
			return err == nil && (status != "ContinuedAsNew" && status != "Completed" || runs[status] > 0)
		}, 20*time.Second, 100*time.Millisecond, "%s: %v", status, runs)
	}
	require.Zero(t, runs["Failed"])
	t.Logf("%d signals, %d reads, runs: %v", len(sent), len(begun)-1, runs)
}

// 50 parallel signals are a handful of reads, also when the read takes a while.
func TestFiftyParallelSignals(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := dial(t)
	var mu sync.Mutex
	reads := 0
	serve(t, c, outside{reconcile: func(ctx context.Context, _ contract.ReconcileRequest) (contract.ReconcileResult, error) {
		mu.Lock()
		reads++
		mu.Unlock()
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
		return contract.ReconcileResult{Outcome: contract.OutcomeUnchanged}, ctx.Err()
	}})
	const id = "sub_FiftyParallel"
	var wait sync.WaitGroup
	for i := range 50 {
		wait.Go(func() {
			if err := (Starter{Client: c}).SignalReconcile(ctx, id, event(i)); err != nil {
				t.Errorf("signal %d: %v", i, err)
			}
		})
	}
	wait.Wait()
	result := await(ctx, t, c, contract.SubscriptionWorkflowID(id))
	require.LessOrEqual(t, reads, 5)
	require.Equal(t, contract.OutcomeUnchanged, result.Last.Outcome)
}
