// Package order breaks the rule of that name, and keeps it.
package order

import (
	"context"

	"github.com/bursarhq/bursar/lockorder"

	"example.com/shop/stock"
)

func straight(ctx context.Context, tx *lockorder.Tx) {
	tx.Lock(ctx, lockorder.OrderRow("o"))
	tx.Lock(ctx, lockorder.AccountKey("a")) // want `order: Lock asks for account \(rank 10\) where order \(rank 20\) may be held since line 13: ask for account first, or for both at once`
}

func otherMethods(ctx context.Context, tx *lockorder.Tx) {
	tx.Require(lockorder.ItemRow("i"))
	tx.LockExisting(ctx, lockorder.OrderRow("o"))                         // want `order: LockExisting asks for order \(rank 20\) where item \(rank 30\)`
	tx.LockOrMake(ctx, lockorder.AccountKey("a"), "INSERT", "not a lock") // want `order: LockOrMake asks for account`
}

func built(ctx context.Context, tx *lockorder.Tx) {
	tx.Lock(ctx, stock.ItemOf("o"))
	tx.Lock(ctx, lockorder.New(lockorder.Order, "o")) // want `order: Lock asks for order`
}

func several(ctx context.Context, tx *lockorder.Tx) {
	tx.Lock(ctx, stock.AccountAndItem()...)
	tx.Lock(ctx, lockorder.OrderRow("o")) // want `order: Lock asks for order`
}

func gathered(ctx context.Context, tx *lockorder.Tx, ids []string) {
	var items []lockorder.Lock
	for _, id := range ids {
		items = append(items, lockorder.ItemRow(id))
	}
	tx.Lock(ctx, items...)
	first := lockorder.OrderRow("o")
	tx.Lock(ctx, first) // want `order: Lock asks for order`
}

func branches(ctx context.Context, tx *lockorder.Tx, hasItem bool) {
	if hasItem {
		tx.Lock(ctx, lockorder.ItemRow("i"))
	}
	tx.Lock(ctx, lockorder.OrderRow("o")) // want `order: Lock asks for order`
}

func apart(ctx context.Context, tx *lockorder.Tx, hasItem bool) error {
	if hasItem {
		return tx.Lock(ctx, lockorder.ItemRow("i"))
	}
	return tx.Lock(ctx, lockorder.OrderRow("o"))
}

func loop(ctx context.Context, tx *lockorder.Tx, ids []string) {
	for _, id := range ids {
		tx.Lock(ctx, lockorder.OrderRow(id)) // want `order: Lock asks for order \(rank 20\) where item \(rank 30\)`
		tx.Lock(ctx, lockorder.ItemRow(id))
	}
}

func counted(ctx context.Context, tx *lockorder.Tx, ids []string) {
	for i := 0; i < len(ids); i++ {
		tx.Lock(ctx, lockorder.OrderRow(ids[i])) // want `order: Lock asks for order`
		tx.Lock(ctx, lockorder.ItemRow(ids[i]))
	}
}

func switched(ctx context.Context, tx *lockorder.Tx, n int) {
	switch n {
	case 1:
		tx.Lock(ctx, lockorder.ItemRow("i"))
		fallthrough
	case 2:
		tx.Lock(ctx, lockorder.OrderRow("o")) // want `order: Lock asks for order`
	}
}

func afterNow(ctx context.Context, tx *lockorder.Tx, ids []string) {
	tx.Lock(ctx, lockorder.OrderRow("o"))
	tx.Now(ctx)
	tx.Lock(ctx, lockorder.ItemRow("i")) // want `order: Lock asks for a new lock after the transaction's time was read in line \d+: read the time under all locks`
}

func nowInLoop(ctx context.Context, tx *lockorder.Tx, ids []string) {
	for _, id := range ids {
		tx.Lock(ctx, lockorder.OrderRow(id)) // want `order: Lock asks for a new lock after the transaction's time was read`
		tx.Now(ctx)
	}
}

func declared(ctx context.Context, db *lockorder.DB) error {
	return db.Run(ctx, lockorder.Spec{Keys: []lockorder.Lock{lockorder.ItemRow("i")}}, func(ctx context.Context, tx *lockorder.Tx) error {
		return tx.Lock(ctx, lockorder.OrderRow("o")) // want `order: Lock asks for order`
	})
}

type work struct{ tx *lockorder.Tx }

func (w *work) fields(ctx context.Context) {
	w.tx.Lock(ctx, lockorder.ItemRow("i"))
	w.tx.Lock(ctx, lockorder.OrderRow("o")) // want `order: Lock asks for order`
}

// fine is all that is in order, though it may look otherwise.
func fine(ctx context.Context, one, two *lockorder.Tx, id string, ids []string, unknown []lockorder.Lock) {
	one.Lock(ctx, lockorder.ItemRow("i"), lockorder.AccountKey("a"), lockorder.OrderRow("o")) // sorted by Lock
	two.Lock(ctx, lockorder.AccountKey("a"))                                                  // another transaction
	two.Lock(ctx, unknown...)
	two.Lock(ctx, lockorder.OrderRow(id))
	two.Lock(ctx, lockorder.OrderRow("another"))
	two.Lock(ctx, lockorder.ItemRow("i"))
	two.Lock(ctx, lockorder.OrderRow(id)) // held already
	two.Require(lockorder.AccountKey("a"))
	two.Now(ctx)
	two.Lock(ctx, lockorder.OrderRow(id)) // held already
}

func fineDeclared(ctx context.Context, db *lockorder.DB, id string) error {
	return db.Run(ctx, lockorder.Spec{Keys: []lockorder.Lock{lockorder.AccountKey(id)}}, func(ctx context.Context, tx *lockorder.Tx) error {
		return tx.Lock(ctx, lockorder.AccountKey(id), lockorder.OrderRow("o"))
	})
}

func ends(ctx context.Context, tx *lockorder.Tx, bad bool) {
	if bad {
		tx.Lock(ctx, lockorder.ItemRow("i"))
		panic("bad")
	}
	tx.Lock(ctx, lockorder.OrderRow("o"))
}

func changed(ctx context.Context, tx *lockorder.Tx, id string) {
	tx.Lock(ctx, lockorder.OrderRow(id))
	tx.Lock(ctx, lockorder.ItemRow("i"))
	id += "x"
	tx.Lock(ctx, lockorder.OrderRow(id)) // want `order: Lock asks for order`
}

func helpers(ctx context.Context, tx *lockorder.Tx, id string) {
	tx.Lock(ctx, lockorder.ItemRow("i"))
	stock.LockOrder(ctx, tx, id) // want `order: stock.LockOrder asks for order \(rank 20\) where item \(rank 30\) may be held since line \d+: call it first, or take the order before`
}

func afterHelpers(ctx context.Context, one, two *lockorder.Tx, id string) {
	stock.LockAll(ctx, id, one)
	one.Lock(ctx, lockorder.OrderRow("another")) // want `order: Lock asks for order`
	two.Lock(ctx, lockorder.OrderRow("another"))
}

func lockItem[ID ~string](ctx context.Context, tx *lockorder.Tx, id ID) error {
	return tx.Lock(ctx, lockorder.ItemRow(string(id)))
}

func helpersInTurn(ctx context.Context, tx *lockorder.Tx, id string) {
	lockItem[string](ctx, tx, id)
	stock.LockAll(ctx, id, tx) // want `order: stock.LockAll asks for account \(rank 10\) where item`
}

// helpersAgain may ask for what is held, as its callers and the helper know.
func helpersAgain(ctx context.Context, tx *lockorder.Tx, id string) {
	tx.Require(lockorder.OrderRow(id))
	tx.Lock(ctx, lockorder.ItemRow("i"))
	stock.LockOrder(ctx, tx, id)
	tx.Now(ctx)
	stock.LockOrder(ctx, tx, id)
}

func changedByRange(ctx context.Context, tx *lockorder.Tx, id string, ids []string) {
	tx.Lock(ctx, lockorder.OrderRow(id))
	tx.Lock(ctx, lockorder.ItemRow("i"))
	for _, id = range ids {
		tx.Lock(ctx, lockorder.OrderRow(id)) // want `order: Lock asks for order`
	}
}
