// Package lockorder stands in for the real one: its names and types, and a small table.
package lockorder

import (
	"context"
	"time"
)

type Class struct {
	Name string
	Rank Rank
}

type Rank int

const first = 10

var (
	Account = &Class{Name: "account", Rank: first}
	Order   = &Class{Name: "order", Rank: 20}
	Item    = &Class{Name: "item", Rank: 30}
)

type Lock struct{ class *Class }

func New(class *Class, parts ...string) Lock { return newLock(class, parts) }

func newLock(class *Class, parts []string) Lock { return Lock{class} }

func AccountKey(id string) Lock { return newLock(Account, []string{id}) }

func OrderRow(id string) Lock { return New(Order, id) }

func ItemRow(id string) Lock { return OrderedItem(id) }

func OrderedItem(id string) Lock { return newLock(Item, []string{id}) }

type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) error
	Query(ctx context.Context, sql string, args ...any) error
}

type Tx struct{}

func (*Tx) Exec(ctx context.Context, sql string, args ...any) error  { return nil }
func (*Tx) Query(ctx context.Context, sql string, args ...any) error { return nil }
func (*Tx) Now(ctx context.Context) (time.Time, error)               { return time.Time{}, nil }
func (*Tx) Lock(ctx context.Context, locks ...Lock) error            { return nil }
func (*Tx) LockExisting(ctx context.Context, locks ...Lock) ([]Lock, error) {
	return nil, nil
}
func (*Tx) LockOrMake(ctx context.Context, row Lock, insert string, args ...any) (bool, error) {
	return false, nil
}
func (*Tx) Require(locks ...Lock) error { return nil }

type Handed struct{}

func (*Handed) Queue(sql string, args ...any) {}

type Spec struct {
	Path   string
	Keys   []Lock
	Handed func(h *Handed)
}

type DB struct{}

func Open(ctx context.Context, url string) (*DB, error) { return nil, nil }

func (*DB) Run(ctx context.Context, spec Spec, fn func(ctx context.Context, tx *Tx) error) error {
	return nil
}
func (*DB) Reader() Querier                { return nil }
func (*DB) Ping(ctx context.Context) error { return nil }
func (db *DB) Limited(n int) *DB           { return db }
