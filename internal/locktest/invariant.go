package locktest

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/bursarhq/bursar/lockorder"
)

// invariant is something that holds of the tables whenever nothing is under way.
type invariant struct {
	name  string
	check func(ctx context.Context, q lockorder.Querier) error
}

var (
	invariantsMu sync.Mutex
	invariants   []invariant
)

// Invariant registers something that must hold after every run of [Crash] and [Interleave] in this process, also after
// one that was killed half-way. check returns what is wrong, nil if nothing is. Call it from an init function; two of one
// name are a mistake, and panic.
func Invariant(name string, check func(ctx context.Context, q lockorder.Querier) error) {
	invariantsMu.Lock()
	defer invariantsMu.Unlock()
	for _, i := range invariants {
		if i.name == name {
			panic(fmt.Sprintf("locktest: two invariants are called %q", name))
		}
	}
	invariants = append(invariants, invariant{name, check})
}

// NoRows makes an invariant of a query that answers one text for each thing that is wrong.
func NoRows(sql string) func(ctx context.Context, q lockorder.Querier) error {
	return func(ctx context.Context, q lockorder.Querier) error {
		rows, err := q.Query(ctx, sql)
		if err != nil {
			return err
		}
		wrong, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		if len(wrong) > 0 {
			return fmt.Errorf("%s", strings.Join(wrong, "; "))
		}
		return nil
	}
}

// Broken returns what is wrong with a database by the invariants that are registered, for tests of another kind than [Crash]
// and [Interleave]. Nothing is under way then.
func Broken(ctx context.Context, q lockorder.Querier) []string { return checkInvariants(ctx, q) }

// checkInvariants returns what is wrong.
func checkInvariants(ctx context.Context, q lockorder.Querier) []string {
	invariantsMu.Lock()
	all := invariants
	invariantsMu.Unlock()
	var wrong []string
	for _, i := range all {
		if err := i.check(ctx, q); err != nil {
			wrong = append(wrong, fmt.Sprintf("invariant %s: %v", i.name, err))
		}
	}
	return wrong
}
