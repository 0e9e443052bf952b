package activities_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/internal/locktest"
	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/internal/stripeapi/standin"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/workflows/contract"
)

// outcome is what a reconcile in the background came to.
type outcome struct {
	contract.ReconcileResult
	err error
}

// stalledReader starts a reconcile whose first read is held back once Stripe's answer has been built. It returns when the
// read is held; release lets it go on and returns what the reconcile came to.
func (r *rig) stalledReader(id string) (release func() outcome) {
	r.t.Helper()
	reading, goOn := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	r.stripe.OnRead(func(string) {
		if first.CompareAndSwap(false, true) {
			close(reading)
			<-goOn
		}
	})
	ended := make(chan outcome, 1)
	go func() {
		result, err := r.subs.ReconcileSubscription(r.t.Context(), contract.ReconcileRequest{SubscriptionID: id})
		ended <- outcome{result, err}
	}()
	select {
	case <-reading:
	case o := <-ended:
		r.t.Fatalf("the reconcile ended without a read: %v", o.err)
	}
	return func() outcome {
		close(goOn)
		return <-ended
	}
}

// A reads the old state and stalls; B reads the new one and commits; A goes on: the new state stands. Also when all of
// it happens within one second of Stripe's clock.
func TestAStalledReadIsNotAppliedOverANewerOne(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		setUp   func(r *rig, id string)
		between func(r *rig, id string)
		stands  string
	}{
		{"upgrade", nil, func(r *rig, id string) { r.change(id, toPrice("gold")) }, gold},
		{"downgrade", func(r *rig, id string) { r.change(id, toPrice("gold")) }, func(r *rig, id string) { r.change(id, toPrice("silver")) }, silver},
		{"end", nil, func(r *rig, id string) { r.status(id, "canceled") }, free},
		{"suspension", func(r *rig, id string) { r.reconcile(id) }, func(r *rig, id string) { r.status(id, "unpaid") }, ""},
		{"a park", nil, func(r *rig, id string) { require.NoError(r.t, r.stripe.SetLivemode(id, true)) }, free},
	} {
		for name, freeze := range map[string]bool{c.name: false, c.name + ", in one second": true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				if freeze {
					r.stripe.Freeze()
				}
				id := r.subscribe(r.member("acme"), "silver")
				if c.setUp != nil {
					c.setUp(r, id)
				}
				release := r.stalledReader(id)
				c.between(r, id)
				b := r.reconcile(id)
				require.Equal(t, c.stands, r.entitlements("acme"))
				a := release()
				require.NoError(t, a.err)
				require.Equal(t, 2, a.Reads, "the stalled read was thrown away")
				require.Equal(t, c.stands, r.entitlements("acme"))
				require.Equal(t, b.Version+1, a.Version)
				r.ledgerAgrees()
			})
		}
	}
}

// Stripe goes from X to Y and back. A reads Y and stalls; B reads X, which stands already, and changes nothing; A goes on:
// X stands. Only a version that rises although nothing changed can tell A.
func TestAStalledReadIsNotAppliedWhenStripeWentBack(t *testing.T) {
	t.Parallel()
	for name, freeze := range map[string]bool{"over some time": false, "in one second": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if freeze {
				r.stripe.Freeze()
			}
			id := r.subscribe(r.member("acme"), "silver")
			r.reconcile(id)
			r.change(id, toPrice("gold"))
			release := r.stalledReader(id)
			r.change(id, toPrice("silver"))
			require.Equal(t, contract.OutcomeUnchanged, r.reconcile(id).Outcome)
			a := release()
			require.NoError(t, a.err)
			require.Equal(t, 2, a.Reads)
			require.Equal(t, contract.OutcomeUnchanged, a.Outcome)
			require.Equal(t, silver, r.entitlements("acme"))
			require.Equal(t, 1, r.count(`SELECT count(*) FROM core.positions WHERE source = 'subscription'`), "gold was never held")
		})
	}
}

// The same, where what B did was to park: a 404 raises the version too, and so does the parking of a failed reconcile.
func TestParkingThrowsAStalledReadAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.subscribe(r.member("acme"), "silver")
	r.reconcile(id)
	release := r.stalledReader(id)
	require.NoError(t, r.subs.ParkSubscription(t.Context(), contract.ParkRequest{SubscriptionID: id, Reason: "it failed"}))
	a := release()
	require.NoError(t, a.err)
	require.Equal(t, 2, a.Reads)
	require.Empty(t, r.parked(), "the reconcile that succeeded frees it")

	sub, _ := r.stripe.GetSubscription(id)
	release = r.stalledReader(id)
	r.stripe.Forget(id)
	require.Equal(t, "not_found", r.reconcile(id).ParkedReason)
	_, err := r.stripe.PutSubscription(sub)
	require.NoError(t, err)
	a = release()
	require.NoError(t, a.err)
	require.Equal(t, 2, a.Reads)
	require.Empty(t, r.parked())
}

func TestASubscriptionThatKeepsMovingIsTriedAgainLater(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.subscribe(r.member("acme"), "silver")
	r.stripe.OnRead(func(id string) {
		assertNoError(t, r.db.Run(context.Background(), lockorder.Spec{
			Path: "test", Kind: lockorder.Plain, Keys: []lockorder.Lock{lockorder.SubscriptionKey(id)},
		}, func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO stripe.subscriptions AS s (id, version, reconciled_at) VALUES ($1, 1, now())
				ON CONFLICT (id) DO UPDATE SET version = s.version + 1`, id)
			return err
		}))
	})
	_, err := r.subs.ReconcileSubscription(t.Context(), contract.ReconcileRequest{SubscriptionID: id})
	require.True(t, retryable(err, activities.ErrTypeSubscriptionMoving), "%v", err)
	require.Equal(t, 3, r.stripe.Reads(id))
	require.Equal(t, free, r.entitlements("acme"))
	r.stripe.OnRead(nil)
	r.reconcile(id)
	require.Equal(t, silver, r.entitlements("acme"))
}

func assertNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

var transient = []string{activities.ErrTypeBusy, activities.ErrTypeSubscriptionMoving, activities.ErrTypeLockTimeout}

func TestFiftyReconcilesOfOneSubscription(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.Setting("deadlock_timeout", "100ms"))
	id := r.subscribe(r.member("acme"), "gold", "extra")
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range 50 {
		wg.Go(func() {
			<-start
			if _, err := r.persist(id, transient...); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
	require.Equal(t, 1, r.count(`SELECT count(*) FROM stripe.subscriptions`))
	require.Equal(t, 2, r.count(`SELECT count(*) FROM core.positions WHERE source = 'subscription'`))
	require.Equal(t, "extra×1:active gold×1:active", r.held("acme", false))
	require.Equal(t, int64(50), r.version(id), "each raised the version once")
	require.Equal(t, "sites=22 storage=200 support=true", r.entitlements("acme"))
	require.Equal(t, 4, r.count(`SELECT count(*) FROM core.ledger`), "one line for the floor, three for what was conferred")
	r.noDeadlocks()
}

// Two subscriptions of one customer go up and down one ladder at the same time, while a third object of the same pool, a link,
// is asked for too.
func TestTwoSubscriptionsOfOneCustomer(t *testing.T) {
	t.Parallel()
	r := newRig(t, pgtest.Setting("deadlock_timeout", "100ms"))
	customer := r.member("acme")
	ids := []string{r.subscribe(customer, "silver", "extra"), r.subscribe(customer, "silver", "extra")}
	statuses := []string{"active", "unpaid", "active", "active"}
	for round := range 30 {
		for n, id := range ids {
			price := []string{"silver", "gold"}[(round+n)%2]
			r.change(id, func(s *standin.Subscription) {
				toPrice(price)(s)
				s.Items[1].Quantity = int64(1 + round%3)
				s.Status = statuses[(round+2*n)%len(statuses)]
			})
		}
		var wg sync.WaitGroup
		for range 2 {
			for _, id := range ids {
				wg.Go(func() {
					if _, err := r.persist(id, transient...); err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Go(func() { r.link(customer, "acme") })
		wg.Wait()
		require.Equal(t, 4, r.count(`SELECT count(*) FROM core.positions WHERE source = 'subscription' AND status <> 'ended'`))
		r.ledgerAgrees()
	}
	r.noDeadlocks()
}

// noDeadlocks looks into the server's log: PostgreSQL can also avoid a deadlock by rearranging its queue, and nobody gets
// an error then. The log of a server that is not the tests' own cannot be read; an error would have shown all the same.
func (r *rig) noDeadlocks() {
	r.t.Helper()
	if os.Getenv("DATABASE_URL") == "" {
		require.NotContains(r.t, r.database.ServerLog(r.t), "deadlock")
	}
}

// While Stripe hangs, no transaction of ours is open, and nothing is locked: another subscription goes through.
func TestAHungStripeLeavesNoTransactionOpen(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	customer := r.member("acme")
	const readers = 12
	var ids []string
	for range readers {
		ids = append(ids, r.subscribe(customer, "extra"))
	}
	other := r.subscribe(customer, "gold")
	released := make(chan struct{})
	r.stripe.HangUntil(released)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	errs := make(chan error, readers)
	for _, id := range ids {
		go func() {
			_, err := r.subs.ReconcileSubscription(ctx, contract.ReconcileRequest{SubscriptionID: id})
			errs <- err
		}()
	}
	for _, id := range ids {
		eventually(t, "the read has arrived", func() bool { return r.stripe.Reads(id) == 1 })
	}
	require.Zero(t, r.openTransactions())

	r.stripe.HangUntil(nil) // for reads to come; those that hang go on hanging
	r.reconcile(other)
	require.Equal(t, gold, r.entitlements("acme"))

	cancel()
	for range ids {
		err := <-errs
		var app *temporal.ApplicationError
		require.True(t, errors.As(err, &app), "%v", err)
		require.False(t, app.NonRetryable(), "%v", err)
	}
	close(released)
	require.Zero(t, r.openTransactions())
	require.Zero(t, r.version(ids[0]))
}

// What becomes of real failures of the database: a wait that ends, a connection that is cut, a handle that is used up.
func TestRealDatabaseFailuresAreRetryable(t *testing.T) {
	t.Parallel()
	r := newRigWith(t, lockorder.Options{LockTimeout: 200 * time.Millisecond}, pgtest.Setting("deadlock_timeout", "100ms"))
	id := r.subscribe(r.member("acme"), "gold")

	holder, err := r.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = holder.Exec(t.Context(), `SELECT pg_advisory_xact_lock($1)`, lockorder.SubscriptionKey(id).Key())
	require.NoError(t, err)
	_, err = r.subs.ReconcileSubscription(t.Context(), contract.ReconcileRequest{SubscriptionID: id})
	require.True(t, retryable(err, activities.ErrTypeLockTimeout), "%v", err)
	require.NoError(t, holder.Rollback(t.Context()))

	r.patient()
	holder, err = r.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = holder.Exec(t.Context(), `SELECT pg_advisory_xact_lock($1)`, lockorder.SubscriptionKey(id).Key())
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := r.subs.ReconcileSubscription(t.Context(), contract.ReconcileRequest{SubscriptionID: id})
		ended <- err
	}()
	eventually(t, "the reconcile's connection waits and is cut", func() bool {
		return r.count(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND pid <> pg_backend_pid()`) > 0
	})
	err = <-ended
	require.True(t, retryable(err, activities.ErrTypeConnection), "%v", err)
	require.NoError(t, holder.Rollback(t.Context()))

	limited := r.db.Limited(1)
	r.subs.DB = limited
	require.NoError(t, limited.Run(t.Context(), lockorder.Spec{Path: "test", Kind: lockorder.Plain}, func(context.Context, *lockorder.Tx) error {
		_, err := r.subs.ReconcileSubscription(t.Context(), contract.ReconcileRequest{SubscriptionID: id})
		require.True(t, retryable(err, activities.ErrTypeBusy), "%v", err)
		return nil
	}))
	require.Equal(t, free, r.entitlements("acme"), "nothing was done")
	r.reconcile(id)
	require.Equal(t, gold, r.entitlements("acme"))
}

// patient replaces the rig's database handle by one that waits for locks as long as it does by default.
func (r *rig) patient() {
	r.t.Helper()
	db, err := lockorder.Open(r.t.Context(), r.database.URL(), locktest.Watched(lockorder.Options{NowSQL: "SELECT core.clock()", MaxConns: 4}))
	require.NoError(r.t, err)
	r.t.Cleanup(db.Close)
	r.db, r.subs = db, &activities.Subscriptions{DB: db, Stripe: r.client}
}
