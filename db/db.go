// Package db holds the database schema: goose migrations, embedded. It is the only source of tables and SQL
// functions. Migrations are append-only once they have landed.
package db

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/bursarhq/bursar/lockorder"
)

//go:embed migrations/*.sql
var files embed.FS

// FS returns the migration files.
func FS() fs.FS {
	sub, err := fs.Sub(files, "migrations")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	return sub
}

// Check answers an error that says what to do unless the database has the newest schema that this program knows and
// derives lock keys as this program does. A newer schema passes: it has everything that this program knows.
func Check(ctx context.Context, q lockorder.Querier) error {
	var derivation string
	err := q.QueryRow(ctx, `SELECT lock_derivation FROM core.deployment`).Scan(&derivation)
	switch state := lockorder.SQLState(err); {
	case state == "42P01" || state == "3F000":
		return errors.New("the database has no schema yet: run bursar migrate")
	case err != nil:
		return fmt.Errorf("reading core.deployment: %w", err)
	case derivation != lockorder.Derivation:
		return fmt.Errorf("the database says that lock keys are derived by %q, this program derives them by %q: "+
			"the two do not exclude each other; run one version only", derivation, lockorder.Derivation)
	}
	want, err := newest(FS())
	if err != nil {
		return err
	}
	var have int64
	if err := q.QueryRow(ctx, `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`).Scan(&have); err != nil {
		return fmt.Errorf("reading the schema's version: %w", err)
	}
	if have < want {
		return fmt.Errorf("the database's schema is at version %d, this program needs %d: run bursar migrate", have, want)
	}
	return nil
}

// newest returns the highest version among migration files.
func newest(files fs.FS) (int64, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return 0, err
	}
	var highest int64
	for _, name := range names {
		n, err := goose.NumericComponent(name)
		if err != nil {
			return 0, fmt.Errorf("migration file %s: %w", name, err)
		}
		highest = max(highest, n)
	}
	return highest, nil
}
