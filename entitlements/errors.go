package entitlements

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

var (
	// ErrNotFound is wrapped when what was asked for by name or id does not exist. The text names it, and what is near.
	ErrNotFound = errors.New("not found")
	// ErrExists is wrapped when something of that name exists already.
	ErrExists = errors.New("exists already")
	// ErrInvalid is wrapped when an argument could never be stored.
	ErrInvalid = errors.New("not valid")
)

// notFoundError is an ErrNotFound with a text that helps.
type notFoundError struct {
	what, asked string
	near        []string
	hint        string
}

func (e *notFoundError) Error() string {
	s := fmt.Sprintf("no %s is called %q", e.what, e.asked)
	if len(e.near) > 0 {
		s += "; near it: " + strings.Join(e.near, ", ")
	}
	if e.hint != "" {
		s += "; " + e.hint
	}
	return s
}

func (e *notFoundError) Unwrap() error { return ErrNotFound }

func isNoRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
