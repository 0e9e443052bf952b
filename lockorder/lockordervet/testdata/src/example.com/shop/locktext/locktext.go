// Package locktext breaks the rule lock-text, and keeps it.
package locktext

import "fmt"

const (
	forUpdate = "SELECT id FROM items FOR UPDATE" // want `lock-text: the text locks \(FOR UPDATE\) outside lockorder and the query files: ask for the lock with \(\*lockorder.Tx\).Lock`
	again     = forUpdate + " SKIP LOCKED"        // found where it is declared

	mode   = "UPDATE"
	joined = "SELECT id FROM items FOR " + mode // want `lock-text: the text locks \(FOR UPDATE\)`
	apart  = "pg_" + "advisory_lock(1)"         // want `lock-text: the text locks \(pg_advisory_lock\)`
)

var texts = []string{
	"SELECT pg_advisory_xact_lock(1)",        // want `lock-text: the text locks \(pg_advisory_xact_lock\)`
	"SELECT PG_TRY_ADVISORY_LOCK(1)",         // want `lock-text: the text locks \(PG_TRY_ADVISORY_LOCK\)`
	"select id from items for no key update", // want `lock-text: the text locks \(for no key update\)`
	`SELECT id FROM items ` + /* want `lock-text: the text locks .FOR KEY SHARE` */ `FOR
		KEY SHARE OF items`,
	"SELECT id FROM items FOR\n\tSHARE",   // want `lock-text: the text locks \(FOR SHARE\)`
	"LOCK TABLE items",                    // want `lock-text: the text locks \(LOCK TABLE\)`
	"lock table items in share mode",      // want `lock-text: the text locks \(lock table\)`
	"BEGIN; LOCK items IN EXCLUSIVE MODE", // want `lock-text: the text locks \(LOCK items IN EXCLUSIVE MODE\)`

	"waiting for update of the item, or for share",
	"SELECT mode FROM pg_locks WHERE locktype = 'advisory'",
	"UPDATE items SET locked = true",
	"the lock table is full",
}

func formatted(n int) string {
	return fmt.Sprintf("SELECT id FROM t%d FOR NO KEY UPDATE", n) // want `lock-text: the text locks \(FOR NO KEY UPDATE\)`
}
