package lockorder_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/bursarhq/bursar/lockorder"
)

// A transaction declares the keys it knows beforehand, and takes rows when they are known. The order within each call is
// not the caller's affair.
func Example() {
	ctx := context.Background()
	db, err := lockorder.Open(ctx, os.Getenv("DATABASE_URL"), lockorder.Options{NowSQL: "SELECT core.clock()"})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	a, b := uuid.New(), uuid.New()
	err = db.Run(ctx, lockorder.Spec{
		Path: "subscription-active",
		Kind: lockorder.Materializing,
		Keys: []lockorder.Lock{lockorder.SubscriptionKey("sub_1PqRsT2eZvKYlo2C")},
	}, func(ctx context.Context, tx *lockorder.Tx) error {
		if err := tx.Lock(ctx, lockorder.PoolRow(a), lockorder.PoolRow(b)); err != nil {
			return err
		}
		now, err := tx.Now(ctx) // under all locks
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE core.positions SET ends_at = $1 WHERE pool_id = $2 AND status = 'active'", now, a)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

// Statements that need nothing but the declared keys are handed to the opening: with COMMIT they are two flights.
func ExampleHanded() {
	touch := func(ctx context.Context, db *lockorder.DB, subscription string) (status string, err error) {
		err = db.Run(ctx, lockorder.Spec{
			Path: "subscription-seen",
			Kind: lockorder.Plain,
			Keys: []lockorder.Lock{lockorder.SubscriptionKey(subscription)},
			Handed: func(h *lockorder.Handed) {
				h.Queue("UPDATE stripe.subscriptions SET seen_at = core.clock() WHERE id = $1", subscription)
				h.Queue("SELECT status FROM stripe.subscriptions WHERE id = $1", subscription).
					QueryRow(func(row pgx.Row) error { return row.Scan(&status) })
			},
		}, nil)
		return status, err
	}
	_ = touch
}

// What a failure means is asked once, where it is turned into a retry or a report.
func ExampleVerdictOf() {
	for _, err := range []error{
		nil,
		fmt.Errorf("reconciling: %w", lockorder.ErrBusy),
		fmt.Errorf("reconciling: %w", lockorder.ErrOrder),
		errors.New("no such product"),
	} {
		switch lockorder.VerdictOf(err) {
		case "":
			fmt.Println("done")
		case lockorder.VerdictBusy, lockorder.VerdictLockTimeout, lockorder.VerdictDeadlock, lockorder.VerdictSerialization:
			fmt.Println("try again soon")
		case lockorder.VerdictMisuse:
			fmt.Println("report a bug")
		default:
			fmt.Println("try again later, and show it")
		}
	}
	// Output:
	// done
	// try again soon
	// report a bug
	// try again later, and show it
}

// A key is the hash of a text that names the class and the identity, in one way only.
func ExampleNew() {
	for _, l := range []lockorder.Lock{
		lockorder.DesiredStateKey("c1", "organization", "a:b"),
		lockorder.DesiredStateKey("c1", "organization:a", "b"),
		lockorder.SubscriptionKey(""),
	} {
		fmt.Println(l.Text(), l.Key(), l.Err())
	}
	// Output:
	// bursar:desired-state:c1:organization:a%3Ab 1302692274493701487 <nil>
	// bursar:desired-state:c1:organization%3Aa:b 31119508865334223 <nil>
	//  0 lockorder: class subscription: subscription id is empty
}

// A function that relies on locks begins by requiring them; a pool cannot be handed to it in place of the transaction.
func ExampleTx_Require() {
	endPositions := func(ctx context.Context, tx *lockorder.Tx, subscription string, pool uuid.UUID) error {
		if err := tx.RequireKind(lockorder.Materializing, lockorder.RuleChange); err != nil {
			return err
		}
		if err := tx.Require(lockorder.SubscriptionKey(subscription), lockorder.PoolRow(pool)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "DELETE FROM core.pool_entitlements WHERE pool_id = $1", pool)
		return err
	}
	_ = endPositions
}
