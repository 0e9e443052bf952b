package db

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/bursarhq/bursar/lockorder"
)

// Applied is one migration that Migrate applied.
type Applied struct {
	Name string
	Took time.Duration
}

// Migrate brings the database at url to the newest schema and returns what it applied, nothing when it was there
// already; on an error it returns what had been applied before it. Several processes may call it at once: a session
// lock lets one through at a time, so the URL must lead to PostgreSQL itself and not to a pooler of transactions. A
// migration that finds a table in use gives up after a second, lets the queue behind it go on, and tries again, for some
// two minutes; then the error names who used the table. A process that is killed half-way leaves nothing behind: what it
// had not committed is rolled back, and its locks are free within a second or two, even while a statement of it runs.
func Migrate(ctx context.Context, url string) ([]Applied, error) {
	m := migrator{files: FS(), turn: 5 * time.Minute, ddlWait: time.Second, attempts: 35}
	return m.run(ctx, url)
}

type migrator struct {
	files    fs.FS
	turn     time.Duration // how long to wait until no other process migrates
	ddlWait  time.Duration // how long one statement may wait for a table that is in use
	attempts int           // how often to try while tables are in use
}

func (m migrator) run(ctx context.Context, url string) (applied []Applied, err error) {
	if err := lockorder.CheckURL(url); err != nil {
		return nil, err // the parser's own words may show a part of the password
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, errors.New("the database URL cannot be read by the migrations' driver")
	}
	handle := stdlib.OpenDB(*config)
	defer handle.Close()
	seen := &blockers{}
	provider, err := goose.NewProvider(goose.DialectPostgres, handle, m.files, goose.WithSessionLocker(locker{m, seen}))
	if err != nil {
		return nil, fmt.Errorf("reading the migrations: %w", err)
	}
	watchCtx, stopWatching := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { seen.watch(watchCtx, handle, m.ddlWait/4) })
	defer watching.Wait()
	defer stopWatching()
	pause := backoff{least: 200 * time.Millisecond, most: 3 * time.Second}
	for attempt := 1; ; attempt++ {
		results, err := provider.Up(ctx)
		var partial *goose.PartialError
		if errors.As(err, &partial) {
			results = partial.Applied
			err = fmt.Errorf("%s: %w", partial.Failed.Source.Path, err)
		}
		for _, r := range results {
			applied = append(applied, Applied{Name: r.Source.Path, Took: r.Duration})
		}
		switch {
		case err == nil:
			return applied, nil
		case lockorder.SQLState(err) != "55P03":
			return applied, fmt.Errorf("migrating the database: %w", err)
		case attempt == m.attempts:
			return applied, fmt.Errorf("migrating the database: a table stayed in use through %d attempts of %s each, by %s; "+
				"end the transactions that use it and try again: %w", attempt, m.ddlWait, seen, err)
		}
		if err := pause.sleep(ctx); err != nil {
			return applied, err
		}
	}
}

// locker takes the one session-level lock there is. It tries, rather than waits: a session that waits for an advisory
// lock keeps a snapshot, and CREATE INDEX CONCURRENTLY of whoever holds it would wait for that.
type locker struct {
	m    migrator
	seen *blockers
}

// sessionSQL bounds a session that migrates: how long a statement of it waits for a table; that the server notices within
// a second when its process was killed, while a statement still runs; and that one stopped in a transaction does not
// hold its locks for ever.
const sessionSQL = `SELECT pg_backend_pid(), set_config('lock_timeout', $1, false),
	set_config('client_connection_check_interval', '1s', false), set_config('idle_in_transaction_session_timeout', '1min', false)`

// SessionLock bounds the session and takes the lock.
func (l locker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	key := lockorder.MigrationKey("bursar")
	var pid int
	var ignored any
	if err := conn.QueryRowContext(ctx, sessionSQL, fmt.Sprintf("%dms", max(l.m.ddlWait.Milliseconds(), 1))).Scan(&pid, &ignored, &ignored, &ignored); err != nil {
		return fmt.Errorf("bounding the waits of migrations: %w", err)
	}
	began := time.Now()
	pause := backoff{least: 10 * time.Millisecond, most: time.Second}
	for {
		var got bool
		//lockordervet:allow lock-text the lock of migrations is a session's, which holds nothing else; no transaction takes it
		if err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", key.Key()).Scan(&got); err != nil {
			return fmt.Errorf("trying the migration lock: %w", err)
		}
		if got {
			l.seen.follow(pid)
			return nil
		}
		if waited := time.Since(began); waited >= l.m.turn {
			who, err := holders(ctx, conn, key)
			if err != nil {
				who = fmt.Sprintf("(who holds it could not be asked: %v)", err)
			}
			return fmt.Errorf("the migration lock (advisory key %d, %s) was held by others for %.1f seconds, now by %s: "+
				"wait until it has migrated, or end its session", key.Key(), key.Text(), waited.Seconds(), cmp.Or(who, "nobody"))
		}
		if err := pause.sleep(ctx); err != nil {
			return fmt.Errorf("waiting for the migration lock: %w", err)
		}
	}
}

// SessionUnlock gives the lock back, and says so if it was not held: then something had broken the session meanwhile.
func (l locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	l.seen.follow(0)
	key := lockorder.MigrationKey("bursar")
	var held bool
	//lockordervet:allow lock-text it gives back the lock of migrations, which is a session's
	if err := conn.QueryRowContext(ctx, "SELECT pg_advisory_unlock($1)", key.Key()).Scan(&held); err != nil {
		return fmt.Errorf("releasing the migration lock: %w", err)
	}
	if !held {
		return fmt.Errorf("the migration lock (advisory key %d, %s) was no longer held when it was released: "+
			"another process may have migrated at the same time", key.Key(), key.Text())
	}
	return nil
}

// backoff waits the least pause first, then twice as long each time, up to the most.
type backoff struct{ least, most, last time.Duration }

func (b *backoff) sleep(ctx context.Context) error {
	b.last = min(max(2*b.last, b.least), b.most)
	timer := time.NewTimer(b.last)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
