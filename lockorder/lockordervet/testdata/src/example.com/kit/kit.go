// Package kit is what tests are built with, as a flag says.
package kit

import (
	"context"
	"net/http"

	"github.com/bursarhq/bursar/lockorder"
	"github.com/jackc/pgx/v5/pgxpool"
)

func hold(ctx context.Context, pool *pgxpool.Pool) {
	pool.Begin(ctx)
	pool.Exec(ctx, "BEGIN; SELECT pg_advisory_xact_lock(1)")
}

func run(ctx context.Context, tx *lockorder.Tx) {
	http.Get("") // want `network: http.Get`
}
