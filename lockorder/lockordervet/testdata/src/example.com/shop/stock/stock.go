// Package stock opens transactions and works in them.
package stock

import (
	"context"

	"github.com/bursarhq/bursar/lockorder"
)

func Take(ctx context.Context, db *lockorder.DB) error { return take(ctx, db) }

func take(ctx context.Context, db *lockorder.DB) error {
	return db.Run(ctx, lockorder.Spec{}, TakeIn)
}

func TakeIn(ctx context.Context, tx *lockorder.Tx) error { return tx.Exec(ctx, "SELECT 1") }

func Level(ctx context.Context, db *lockorder.DB) error { return Read(ctx, db.Reader()) }

func Read(ctx context.Context, q lockorder.Querier) error { return q.Query(ctx, "SELECT 1") }

func Count(ctx context.Context, q lockorder.Querier) error { return Read(ctx, q) }

// AccountAndItem locks in order; ItemOf is a lock of one class, and Of one of whichever is given.
func AccountAndItem() []lockorder.Lock {
	return []lockorder.Lock{lockorder.AccountKey("a"), lockorder.ItemRow("i")}
}

// LockOrder takes one lock, LockAll some by way of others.
func LockOrder(ctx context.Context, tx *lockorder.Tx, id string) error {
	return tx.Lock(ctx, lockorder.OrderRow(id))
}

func LockAll(ctx context.Context, id string, tx *lockorder.Tx) error {
	if err := tx.Lock(ctx, lockorder.AccountKey(id)); err != nil {
		return err
	}
	return lockRest(ctx, tx, id)
}

func lockRest[ID ~string](ctx context.Context, tx *lockorder.Tx, id ID) error {
	if err := LockOrder(ctx, tx, string(id)); err != nil {
		return err
	}
	_, err := tx.LockExisting(ctx, ItemOf(string(id)))
	return err
}

func ItemOf(order string) lockorder.Lock { return lockorder.New(lockorder.Item, order) }
