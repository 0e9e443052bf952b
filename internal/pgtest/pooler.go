package pgtest

import (
	"context"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bursarhq/bursar/internal/devstack"
)

var (
	thePooler = sync.OnceValues(openPooler)
	// startedPooler is the PgBouncer that Main has to stop, nil when there is none.
	startedPooler atomic.Pointer[devstack.PgBouncer]
)

// PoolerURL is the connection URL of the database through a PgBouncer in transaction mode, as the role of [DB.URL]. The
// first use in a test process starts it, and Main stops it; where it cannot be started the test fails.
func (db *DB) PoolerURL(t testing.TB) string {
	t.Helper()
	pooler, err := thePooler()
	if err != nil {
		t.Fatalf("pgtest: no PgBouncer to test with: %v", err)
	}
	return pooler.URL(db.name)
}

func openPooler() (*devstack.PgBouncer, error) {
	s, err := theServer()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	upstream := s.urlOf("postgres", url.UserPassword(testRole, testRole))
	pooler, err := devstack.StartPgBouncer(ctx, devstack.PgBouncerOptions{Upstream: upstream})
	if err != nil {
		return nil, err
	}
	startedPooler.Store(pooler)
	return pooler, nil
}

// stopPooler ends the PgBouncer, when there is one.
func stopPooler() error {
	if pooler := startedPooler.Load(); pooler != nil {
		return pooler.Stop(context.Background())
	}
	return nil
}
