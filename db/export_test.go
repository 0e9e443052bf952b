package db

import (
	"context"
	"io/fs"
	"time"
)

// MigrateFiles is Migrate for other files, with other bounds.
func MigrateFiles(ctx context.Context, url string, files fs.FS, turn, ddlWait time.Duration, attempts int) ([]Applied, error) {
	return migrator{files: files, turn: turn, ddlWait: ddlWait, attempts: attempts}.run(ctx, url)
}
