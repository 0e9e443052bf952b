// Package nested breaks the rule of that name, and keeps it.
package nested

import (
	"context"
	"database/sql"

	"github.com/bursarhq/bursar/lockorder"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/shop/stock"
)

type shop struct {
	db    *lockorder.DB
	pool  *pgxpool.Pool
	sql   *sql.DB
	reads lockorder.Querier
}

func newShop(db *lockorder.DB) *shop { return &shop{db: db, reads: db.Reader()} }

func (s *shop) direct(ctx context.Context) error {
	reader := s.db.Reader()
	return s.db.Run(ctx, lockorder.Spec{}, func(ctx context.Context, tx *lockorder.Tx) error {
		s.db.Run(ctx, lockorder.Spec{}, nil)            // want `nested: lockorder.DB.Run can use a second connection inside a transaction function: take the \*lockorder.Tx that there is`
		s.db.Limited(1).Run(ctx, lockorder.Spec{}, nil) // want `nested: lockorder.DB.Run can`
		s.db.Reader().Query(ctx, "SELECT 1")            // want `nested: lockorder.DB.Reader can`
		s.db.Ping(ctx)                                  // want `nested: lockorder.DB.Ping can`
		s.pool.Exec(ctx, "SELECT 1")                    // want `nested: pgxpool.Pool.Exec can`
		s.sql.ExecContext(ctx, "SELECT 1")              // want `nested: sql.DB.ExecContext can`
		pgx.Connect(ctx, "")                            // want `nested: pgx.Connect can`
		lockorder.Open(ctx, "")                         // want `nested: lockorder.Open can`
		stock.Read(ctx, reader)                         // want `nested: the reader reader can`
		stock.Read(ctx, s.reads)                        // want `nested: the reader reads can`
		queries(ctx, s.pool)                            // want `nested: the \*.*pgxpool.Pool that is handed over can`

		s.pool.Stat()
		s.db.Limited(1)
		stock.Read(ctx, tx)
		queries(ctx, tx)
		return nil
	})
}

type runner interface {
	Query(ctx context.Context, sql string, args ...any) error
}

func queries(ctx context.Context, r runner) error { return r.Query(ctx, "SELECT 1") }

func (s *shop) helpers(ctx context.Context) error {
	return s.db.Run(ctx, lockorder.Spec{}, func(ctx context.Context, tx *lockorder.Tx) error {
		stock.Take(ctx, s.db)  // want `nested: stock.Take can use a second connection inside a transaction function \(stock.Take → stock.take → lockorder.DB.Run\)`
		stock.Level(ctx, s.db) // want `nested: stock.Level can .*\(stock.Level → lockorder.DB.Reader\)`
		s.own(ctx)             // want `nested: nested.shop.own can .*\(nested.shop.own → lockorder.DB.Run\)`
		s.kept(ctx)            // want `nested: nested.shop.kept can .*the reader reads`
		stock.Count(ctx, tx)
		return stock.TakeIn(ctx, tx)
	})
}

func (s *shop) own(ctx context.Context) error {
	return s.db.Run(ctx, lockorder.Spec{}, func(ctx context.Context, tx *lockorder.Tx) error { return nil })
}

func (s *shop) kept(ctx context.Context) error { return s.reads.Query(ctx, "SELECT 1") }

// again opens two, one after the other.
func (s *shop) again(ctx context.Context) error {
	if err := s.own(ctx); err != nil {
		return err
	}
	stock.Read(ctx, s.db.Reader())
	return s.own(ctx)
}

func within(ctx context.Context, db *lockorder.DB) error {
	return db.Run(ctx, lockorder.Spec{}, func(ctx context.Context, tx *lockorder.Tx) error {
		return db.Run(ctx, lockorder.Spec{}, func(ctx context.Context, tx *lockorder.Tx) error { // want `nested: lockorder.DB.Run can`
			return db.Ping(ctx) // want `nested: lockorder.DB.Ping can`
		})
	})
}
