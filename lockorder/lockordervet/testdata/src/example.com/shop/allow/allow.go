// Package allow allows findings, rightly and wrongly.
package allow

import (
	"context"
	"net/http"

	"github.com/bursarhq/bursar/lockorder"
	"github.com/jackc/pgx/v5/pgxpool"
)

const held = "SELECT id FROM items FOR UPDATE" //lockordervet:allow lock-text a report that says what others run

func allowed(ctx context.Context, tx *lockorder.Tx, pool *pgxpool.Pool) {
	//lockordervet:allow network the stand-in answers within this process
	http.Get("http://127.0.0.1")
	pool.Exec(ctx, "SELECT 1") //lockordervet:allow nested the pool is of another database
	tx.Now(ctx)
	//lockordervet:allow order the lock is held, as the caller says
	tx.Lock(ctx, lockorder.ItemRow("i"))
}

func opened(ctx context.Context, pool *pgxpool.Pool) {
	//lockordervet:allow transaction the database is another one, without lockorder
	pool.Begin(ctx)
}

func wrongly(ctx context.Context, tx *lockorder.Tx) {
	http.Get("") //lockordervet:allow network // want `network: http.Get` `allowance: gives no reason: say after //lockordervet:allow network why`
	http.Get("") //lockordervet:allow weather it rains // want `network: http.Get` `allowance: names no rule: write //lockordervet:allow RULE REASON, where RULE is one of transaction, lock-text, network, nested, order`
	http.Get("") //lockordervet:allow // want `network: http.Get` `allowance: names no rule`
	http.Get("") //lockordervet:allow nested another rule // want `network: http.Get` `allowance: allows nothing of the rule nested`

	//lockordervet:allow network it was here once // want `allowance: allows nothing of the rule network on this line or the next: take it out`

	http.Get("") // want `network: http.Get`
}

// nobody reaches the network here.
//
//lockordervet:allow network there is nothing // want `allowance: allows nothing of the rule network`
func nobody() {}
