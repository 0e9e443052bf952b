package db

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/bursarhq/bursar/lockorder"
)

// describeSQL describes the sessions whose process ids a subquery named b gives; 0 stands for a prepared transaction. Of
// another role's session an ordinary role sees little.
const describeSQL = `SELECT CASE WHEN b.pid = 0 THEN 'a prepared transaction (look into pg_prepared_xacts)' ELSE
		concat('process ', b.pid, ' (user ', coalesce(a.usename, 'unknown'),
			', application ' || nullif(a.application_name, ''), ', ' || a.state,
			', in a transaction for ' || round(extract(epoch FROM clock_timestamp() - a.xact_start)) || ' s', ')',
			': ' || left(regexp_replace(a.query, '\s+', ' ', 'g'), 100)) END
	FROM b LEFT JOIN pg_stat_activity a ON a.pid = b.pid ORDER BY b.pid LIMIT 5`

// holders describes who holds the migration lock, other than the asking session.
func holders(ctx context.Context, conn querier, key lockorder.Lock) (string, error) {
	return describe(ctx, conn, `WITH b AS (SELECT DISTINCT pid FROM pg_locks
		WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND (classid::bigint << 32 | objid::bigint) = $1
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) `+describeSQL, key.Key())
}

// querier is a *sql.Conn or a *sql.DB.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// describe joins the texts that a query answers, "" when there are none.
func describe(ctx context.Context, q querier, query string, args ...any) (string, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var texts []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return "", err
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; "), rows.Err()
}

// blockers remembers who stood in the way of a session. Once its wait has ended in a time-out the server no longer
// tells, so it is asked all along, on another connection.
type blockers struct {
	mu   sync.Mutex
	pid  int // of the session that migrates; 0 while none does
	last string
}

// follow has the session of this process id watched; 0 ends that.
func (b *blockers) follow(pid int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pid = pid
}

// String describes who was seen in the way last.
func (b *blockers) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == "" {
		return "nobody who could be seen"
	}
	return b.last
}

// watch looks every so often until ctx ends.
func (b *blockers) watch(ctx context.Context, handle *sql.DB, every time.Duration) {
	ticker := time.NewTicker(max(every, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		b.mu.Lock()
		pid := b.pid
		b.mu.Unlock()
		if pid == 0 {
			continue
		}
		seen, err := describe(ctx, handle, "WITH b AS (SELECT DISTINCT unnest(pg_blocking_pids($1)) AS pid) "+describeSQL, pid)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			seen = fmt.Sprintf("(who it is could not be asked: %v)", err)
		case seen == "":
			continue
		}
		b.mu.Lock()
		b.last = seen
		b.mu.Unlock()
	}
}
