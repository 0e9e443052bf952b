package pgtest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io/fs"

	"github.com/peterldowns/pgtestdb"

	"github.com/bursarhq/bursar/db"
)

// schema makes a template: it is known by its files.
type schema struct {
	files   fs.FS
	migrate func(ctx context.Context, url string) error
}

// projectSchema is Bursar's own.
func projectSchema() schema {
	return schema{
		files: db.FS(),
		migrate: func(ctx context.Context, url string) error {
			_, err := db.Migrate(ctx, url)
			return err
		},
	}
}

// Hash is the same for the same names and contents of files.
func (s schema) Hash() (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(s.files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(s.files, path)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(sum, "%q %d\n%s", path, len(content), content)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("hash the migrations: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Migrate brings the template to the newest schema.
func (s schema) Migrate(ctx context.Context, _ *sql.DB, config pgtestdb.Config) error {
	return s.migrate(ctx, config.URL())
}
