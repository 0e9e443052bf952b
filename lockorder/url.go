package lockorder

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// CheckURL answers why Open could not read a database URL, or nil. It connects to nothing, and its text holds no
// password.
func CheckURL(url string) error {
	if _, err := pgxpool.ParseConfig(url); err != nil {
		return fmt.Errorf("database URL cannot be read: %w", err)
	}
	return nil
}
