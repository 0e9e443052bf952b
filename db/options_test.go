package db_test

import (
	"context"
	"testing"

	"github.com/bursarhq/bursar/db"
	"github.com/bursarhq/bursar/internal/locktest"
	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// TestLockOptions hands a statement to openings that find a key free, and busy: it runs once each time, by way of the
// schema's own guard.
func TestLockOptions(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	options := locktest.Watched(db.LockOptions())
	options.MaxConns = 4
	opened, err := lockorder.Open(t.Context(), database.URL(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	holder := database.Conn(t)
	key := lockorder.SubscriptionKey("sub_1")
	calls := 0
	spec := lockorder.Spec{Path: "test", Kind: lockorder.Plain, Keys: []lockorder.Lock{key}, Handed: func(h *lockorder.Handed) {
		calls++
		h.Queue("SELECT count(*) FROM core.products")
	}}
	if err := opened.Run(t.Context(), spec, nil); err != nil || calls != 1 {
		t.Fatalf("a free key: %v; the statements were asked for %d times", err, calls)
	}
	if _, err := holder.Exec(t.Context(), "SELECT pg_advisory_lock($1)", key.Key()); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- opened.Run(context.WithoutCancel(t.Context()), spec, nil) }()
	until(t, "the key is waited for", func() bool {
		return answers(t, holder, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	})
	if _, err := holder.Exec(t.Context(), "SELECT pg_advisory_unlock($1)", key.Key()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || calls != 3 {
		t.Errorf("a busy key: %v; the statements were asked for %d times, want once more for the opening and once under the lock", err, calls)
	}
	_, err = holder.Exec(t.Context(), "SELECT core.raise_lock_busy()")
	if state := lockorder.SQLState(err); state != db.StateLockBusy {
		t.Errorf("the guard's function raises %q: %v", state, err)
	}
}
