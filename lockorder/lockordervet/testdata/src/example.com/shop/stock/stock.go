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

func ItemOf(order string) lockorder.Lock { return lockorder.New(lockorder.Item, order) }
