package workflows

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/bursarhq/bursar/workflows/contract"
)

const testCheckout = "cs_test_a1"

var (
	completed = contract.ReconcileSignal{EventID: "evt_c", EventType: "checkout.session.completed", CheckoutSession: testCheckout}
	retry     = contract.ReconcileSignal{EventType: "parked-retry", CheckoutSession: testCheckout}
	linked    = contract.LinkResult{Linked: true, Organization: "acme"}
	errDown   = errors.New("stripe does not answer")
)

// linkTimes makes the link answer as given and notes when each try began.
func (b *bench) linkTimes(answer func(n int) (contract.LinkResult, error)) *[]time.Time {
	var at []time.Time
	b.onLink = func(n int) (contract.LinkResult, error) {
		at = append(at, b.Now())
		return answer(n)
	}
	return &at
}

func TestACheckoutIsLinkedOnceBeforeTheRead(t *testing.T) {
	for name, result := range map[string]contract.LinkResult{"linked": linked, "nothing to do": {NothingToDo: true}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 2*time.Second)
			again := completed
			again.EventID = "evt_d"
			b.onLink = func(int) (contract.LinkResult, error) {
				require.Empty(t, b.reads, "the link comes first")
				return result, nil
			}
			b.at(time.Second, func() { b.signal(again) })
			b.start(completed)
			require.Equal(t, 2, b.result(t).Reconciles)
			require.Equal(t, []contract.LinkRequest{{SubscriptionID: testSubscription, CheckoutSession: testCheckout}}, b.links)
		})
	}
}

func TestAnUpdateMayNameACheckout(t *testing.T) {
	b := newBench(t, time.Second)
	var a *answer
	b.at(500*time.Millisecond, func() {
		a = b.update("u1", contract.ReconcileSignal{EventType: "checkout-return", CheckoutSession: testCheckout})
	})
	b.start(event(0))
	require.Equal(t, 2, b.result(t).Reconciles)
	require.Len(t, b.links, 1)
	require.NoError(t, a.failed)
}

// The link's endpoint alone is down: the subscription is read all the same, soon; once the link succeeds it is read again at once.
func TestALinkThatFailsHoldsUpNoRead(t *testing.T) {
	b := newBench(t, 0)
	up := false
	tries := b.linkTimes(func(int) (contract.LinkResult, error) {
		if up {
			return linked, nil
		}
		return contract.LinkResult{}, errDown
	})
	b.at(5*time.Minute, func() { up = true })
	b.start(completed)
	result := b.result(t)
	require.Equal(t, "acme", result.Last.Organization)
	require.Equal(t, 2, result.Reconciles, "one read beside the failing link, and one after it")
	require.LessOrEqual(t, b.begun[0].Sub((*tries)[0]), 25*time.Second)
	last := (*tries)[len(*tries)-1]
	require.WithinDuration(t, last, b.begun[1], time.Second)
	require.LessOrEqual(t, last.Sub((*tries)[0]), 5*time.Minute+maxLinkPause+linkPersistence)
	require.Empty(t, b.parks)
}

func TestThePauseBetweenTriesOfALinkGrows(t *testing.T) {
	b := newBench(t, 0)
	tries := b.linkTimes(func(n int) (contract.LinkResult, error) { return contract.LinkResult{}, errDown })
	b.at(6*time.Minute, b.CancelWorkflow)
	b.start(completed)
	require.True(t, temporal.IsCanceledError(b.GetWorkflowError()))
	require.Len(t, b.reads, 1, "nothing new, nothing to read")
	var pauses []time.Duration // those longer than within one activity
	for i := 1; i < len(*tries); i++ {
		if gap := (*tries)[i].Sub((*tries)[i-1]).Round(time.Second); gap > linkPersistence/2 {
			pauses = append(pauses, gap)
		}
	}
	require.GreaterOrEqual(t, len(pauses), 3)
	for _, p := range pauses {
		require.LessOrEqual(t, p, maxLinkPause+linkPersistence)
	}
	require.IsIncreasing(t, pauses[:3])
}

// A failure may ask for a longer pause than the tries of an activity have time for. The workflow keeps it for the link, and reads
// what comes meanwhile at once.
func TestThePauseThatAFailedLinkAsksForIsKept(t *testing.T) {
	b := newBench(t, 0)
	const asked = 100 * time.Second
	tries := b.linkTimes(func(n int) (contract.LinkResult, error) {
		if n > 1 {
			return linked, nil
		}
		return contract.LinkResult{}, temporal.NewApplicationErrorWithOptions("slow down", "StripeRateLimited", temporal.ApplicationErrorOptions{NextRetryDelay: asked})
	})
	b.at(60*time.Second, func() { b.signal(event(1)) })
	b.start(completed)
	require.Equal(t, 3, b.result(t).Reconciles)
	require.Len(t, *tries, 2)
	require.GreaterOrEqual(t, (*tries)[1].Sub((*tries)[0]), asked)
	require.Less(t, b.begun[1].Sub((*tries)[0]), 61*time.Second, "the event is read while the link waits")
	require.Contains(t, b.reads[1].Events, event(1))
	require.WithinDuration(t, (*tries)[1], b.begun[2], time.Second)
}

// A checkout that was parked is tried again when a later signal of the same run names it, as an operator's retry does.
func TestAParkedCheckoutIsTriedAgain(t *testing.T) {
	for name, first := range map[string]struct {
		result contract.LinkResult
		err    error
	}{
		"by the activity": {contract.LinkResult{ParkedReason: "unknown_organization"}, nil},
		"by the workflow": {contract.LinkResult{}, temporal.NewNonRetryableApplicationError("broken", "Broken", nil)},
		"still open":      {contract.LinkResult{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 5*time.Second)
			b.onLink = func(n int) (contract.LinkResult, error) {
				if n == 1 {
					return first.result, first.err
				}
				return linked, nil
			}
			b.at(2*time.Second, func() { b.signal(retry) })
			b.at(10*time.Second, func() { b.signal(retry) }) // linked by then
			b.start(completed)
			require.Equal(t, "acme", b.result(t).Last.Organization)
			require.Len(t, b.links, 2)
		})
	}
}

func TestASignalDuringTheTryIsTriedAfterIt(t *testing.T) {
	for name, c := range map[string]struct {
		first contract.LinkResult
		links int
	}{
		"parked": {contract.LinkResult{ParkedReason: "unknown_organization"}, 2},
		"linked": {linked, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 0)
			b.onLink = func(n int) (contract.LinkResult, error) {
				if n == 1 {
					return c.first, nil
				}
				return linked, nil
			}
			b.OnActivity(contract.ActivityLinkFromCheckout, mock.Anything, mock.Anything).After(5 * time.Second).Return(
				func(_ context.Context, request contract.LinkRequest) (contract.LinkResult, error) {
					b.mu.Lock()
					defer b.mu.Unlock()
					b.links = append(b.links, request)
					return b.onLink(len(b.links))
				})
			var a *answer
			b.at(2*time.Second, func() { a = b.update("u1", retry) })
			b.start(completed)
			b.result(t)
			require.Len(t, b.links, c.links)
			require.NoError(t, a.failed)
		})
	}
}

// What fails for good is parked as a checkout; the subscription is read, and the link is not tried again by itself.
func TestACheckoutThatFailsForGoodIsParked(t *testing.T) {
	b := newBench(t, 0)
	b.onLink = func(int) (contract.LinkResult, error) {
		return contract.LinkResult{}, temporal.NewNonRetryableApplicationError("broken", "Broken", nil)
	}
	b.at(time.Minute, func() { b.signal(event(1)) })
	b.start(completed)
	require.Equal(t, 1, b.result(t).Reconciles)
	require.Len(t, b.links, 1)
	require.Equal(t, []contract.ParkRequest{{SubscriptionID: testSubscription, CheckoutSession: testCheckout, Reason: "broken"}}, b.parks)
}

// Neither linked nor parked is not forgotten: the read does not wait for it, and it is tried again until it is parked.
func TestACheckoutThatCannotBeParkedIsKept(t *testing.T) {
	for name, failure := range map[string]error{
		"for now":  errors.New("the database is away"),
		"for good": temporal.NewNonRetryableApplicationError("no such table", "Schema", nil),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 0)
			up := false
			b.onLink = func(int) (contract.LinkResult, error) {
				return contract.LinkResult{}, temporal.NewNonRetryableApplicationError("broken", "Broken", nil)
			}
			b.onPark = func(int) error {
				if up {
					return nil
				}
				return failure
			}
			b.at(2*time.Minute, func() { up = true })
			began := b.Now()
			b.start(completed)
			require.Equal(t, 1, b.result(t).Reconciles)
			require.LessOrEqual(t, b.begun[0].Sub(began), 25*time.Second)
			require.GreaterOrEqual(t, len(b.links), 3)
			require.True(t, up)
		})
	}
}

// Two checkouts of one subscription: the one whose link fails does not stop the other's.
func TestOneFailingLinkDoesNotStopAnother(t *testing.T) {
	b := newBench(t, 0)
	b.OnActivity(contract.ActivityLinkFromCheckout, mock.Anything, mock.Anything).Return(
		func(_ context.Context, request contract.LinkRequest) (contract.LinkResult, error) {
			b.mu.Lock() // the two run side by side
			defer b.mu.Unlock()
			b.links = append(b.links, request)
			if request.CheckoutSession == testCheckout && len(b.reads) < 1 {
				return contract.LinkResult{}, errDown
			}
			return linked, nil
		})
	other := contract.ReconcileSignal{EventID: "evt_o", EventType: "checkout.session.completed", CheckoutSession: "cs_test_b2"}
	b.start(completed, other)
	require.Equal(t, 2, b.result(t).Reconciles)
	seen := 0
	for _, l := range b.links {
		if l.CheckoutSession == other.CheckoutSession {
			seen++
		}
	}
	require.Equal(t, 1, seen)
	require.Equal(t, testCheckout, b.links[len(b.links)-1].CheckoutSession)
}

func TestWhatIsNoCheckoutIsReadAndNotLinked(t *testing.T) {
	b := newBench(t, 0)
	b.start(contract.ReconcileSignal{EventType: "test", CheckoutSession: "cs_\x00"})
	require.Equal(t, 1, b.result(t).Reconciles)
	require.Empty(t, b.links)
}

// A run that ends while a link is still to be made hands it on; one that was parked is not tried again by that.
func TestContinueAsNewCarriesTheLinksToBeMade(t *testing.T) {
	b := newBench(t, 0)
	b.SetContinueAsNewSuggested(true)
	b.onLink = func(int) (contract.LinkResult, error) { return contract.LinkResult{}, errDown }
	b.start(completed)
	in := b.continued(t)
	require.Equal(t, []contract.ReconcileSignal{completed}, in.Carried, "the read that covered the signal has not made the link")
	require.Equal(t, firstLinger, in.Linger)

	next := newBench(t, 0)
	next.ExecuteWorkflow(contract.SubscriptionReconcile, in)
	require.Equal(t, 2, next.result(t).Reconciles)
	require.Len(t, next.links, 1)

	for _, result := range []contract.LinkResult{linked, {ParkedReason: "unknown_organization"}} {
		b = newBench(t, 0)
		b.onLink = func(int) (contract.LinkResult, error) { return result, nil }
		b.onRead = func(int) (contract.ReconcileResult, error) { return contract.ReconcileResult{}, errDown }
		b.start(completed)
		carried := completed
		carried.CheckoutSession = ""
		require.Equal(t, []contract.ReconcileSignal{carried}, b.continued(t).Carried)
		require.Len(t, b.links, 1)
	}
}

// On a real server, with an endpoint that hangs: the read comes when the tries' time is over, and again after the link.
func TestALinkThatHangsHoldsUpNoReadForLong(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	c := dial(t)
	read, release := make(chan time.Time, 8), make(chan struct{})
	began := time.Now()
	serve(t, c, outside{
		link: func(ctx context.Context, _ contract.LinkRequest) (contract.LinkResult, error) {
			select {
			case <-release:
				return linked, nil
			case <-ctx.Done():
				return contract.LinkResult{}, ctx.Err()
			}
		},
		reconcile: func(context.Context, contract.ReconcileRequest) (contract.ReconcileResult, error) {
			read <- time.Now()
			return contract.ReconcileResult{Outcome: contract.OutcomeUnchanged}, nil
		},
		park: func(_ context.Context, request contract.ParkRequest) error {
			t.Errorf("an outage is not parked: %+v", request)
			return nil
		},
	})
	const id = "sub_LinkHangs"
	signal(ctx, t, c, id, completed)
	select {
	case at := <-read:
		require.Less(t, at.Sub(began), 30*time.Second)
	case <-ctx.Done():
		t.Fatal("the subscription was not read")
	}
	close(release)
	released := time.Now()
	require.Equal(t, 2, await(ctx, t, c, contract.SubscriptionWorkflowID(id)).Reconciles)
	require.Less(t, (<-read).Sub(released), 8*time.Second)
}

// On a real server, with an endpoint that answers at once and asks for a longer pause than the tries have time for: the read
// waits for nothing.
func TestALinkThatIsRefusedHoldsUpNoRead(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := dial(t)
	links, reads := make(chan time.Time, 8), make(chan time.Time, 8)
	up := make(chan struct{})
	serve(t, c, outside{
		link: func(context.Context, contract.LinkRequest) (contract.LinkResult, error) {
			links <- time.Now()
			select {
			case <-up:
				return linked, nil
			default:
				return contract.LinkResult{}, temporal.NewApplicationErrorWithOptions("403", "StripeAuth", temporal.ApplicationErrorOptions{NextRetryDelay: time.Minute})
			}
		},
		reconcile: func(context.Context, contract.ReconcileRequest) (contract.ReconcileResult, error) {
			reads <- time.Now()
			return contract.ReconcileResult{Outcome: contract.OutcomeUnchanged}, nil
		},
	})
	const id = "sub_LinkRefused"
	signal(ctx, t, c, id, completed)
	require.Less(t, (<-reads).Sub(<-links), 5*time.Second)
	// An operator has mended the key and asks for another try: that does not wait for the minute.
	close(up)
	asked := time.Now()
	signal(ctx, t, c, id, retry)
	require.Equal(t, 2, await(ctx, t, c, contract.SubscriptionWorkflowID(id)).Reconciles)
	require.Less(t, (<-reads).Sub(asked), 5*time.Second)
}
