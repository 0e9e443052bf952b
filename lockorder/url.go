package lockorder

import (
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
)

// errURL replaces what the parser says: where a password has a character that ends it too soon, that text shows the rest.
var errURL = errors.New("the database URL cannot be read: write it as postgres://user:password@host:5432/database, with special characters of the password as %XX")

// CheckURL answers why Open could not read a database URL, or nil. It connects to nothing, and its text holds nothing of
// the URL.
func CheckURL(url string) error {
	if _, err := pgxpool.ParseConfig(url); err != nil {
		return errURL
	}
	return nil
}
