package db

import "github.com/bursarhq/bursar/lockorder"

// StateLockBusy is the SQLSTATE that core.raise_lock_busy raises.
const StateLockBusy = "BU002"

// LockOptions returns the options of lockorder that the schema provides for: its clock, and its guard of the statements
// that are handed to an opening. Everything that opens a database of this schema begins with them.
func LockOptions() lockorder.Options {
	return lockorder.Options{NowSQL: "SELECT core.clock()", Guard: "core.raise_lock_busy()", GuardState: StateLockBusy}
}
