package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
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
// lock lets one through at a time, so the URL must lead to PostgreSQL itself and not to a pooler of transactions. A migration that
// finds a table in use gives up after a few seconds, lets the queue behind it go on, and tries again.
func Migrate(ctx context.Context, url string) ([]Applied, error) {
	m := migrator{files: FS(), turn: 5 * time.Minute, ddlWait: 3 * time.Second, attempts: 20}
	return m.run(ctx, url)
}

type migrator struct {
	files    fs.FS
	turn     time.Duration // how long to wait until no other process migrates
	ddlWait  time.Duration // how long one statement may wait for a table that is in use
	attempts int           // how often to try while tables are in use
}

func (m migrator) run(ctx context.Context, url string) (applied []Applied, err error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database URL cannot be read: %w", err)
	}
	handle := stdlib.OpenDB(*config)
	defer handle.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, handle, m.files, goose.WithSessionLocker(locker{m}))
	if err != nil {
		return nil, fmt.Errorf("reading the migrations: %w", err)
	}
	pause := backoff{}
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
			return applied, fmt.Errorf("migrating the database: a table stayed in use through %d attempts of %s each; end the transactions that use it and try again: %w",
				attempt, m.ddlWait, err)
		}
		if err := pause.sleep(ctx); err != nil {
			return applied, err
		}
	}
}

// locker takes the one session-level lock there is. It tries, rather than waits: a session that waits for an advisory
// lock keeps a snapshot, and CREATE INDEX CONCURRENTLY of whoever holds it would wait for that.
type locker struct{ m migrator }

// SessionLock takes the lock and bounds what the statements of the session wait for.
func (l locker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	key := lockorder.MigrationKey("bursar")
	began := time.Now()
	pause := backoff{}
	for {
		var got bool
		if err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", key.Key()).Scan(&got); err != nil {
			return fmt.Errorf("trying the migration lock: %w", err)
		}
		if got {
			break
		}
		if waited := time.Since(began); waited >= l.m.turn {
			return fmt.Errorf("another process has held the migration lock (advisory key %d, %s) for %.0f seconds: wait until it has migrated, or end its session",
				key.Key(), key.Text(), waited.Seconds())
		}
		if err := pause.sleep(ctx); err != nil {
			return fmt.Errorf("waiting for the migration lock: %w", err)
		}
	}
	if _, err := conn.ExecContext(ctx, "SELECT set_config('lock_timeout', $1, false)", fmt.Sprintf("%dms", l.m.ddlWait.Milliseconds())); err != nil {
		return errors.Join(fmt.Errorf("bounding the waits of migrations: %w", err), l.SessionUnlock(context.WithoutCancel(ctx), conn))
	}
	return nil
}

// SessionUnlock gives the lock back, and says so if it was not held: then something had broken the session meanwhile.
func (l locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	key := lockorder.MigrationKey("bursar")
	var held bool
	if err := conn.QueryRowContext(ctx, "SELECT pg_advisory_unlock($1)", key.Key()).Scan(&held); err != nil {
		return fmt.Errorf("releasing the migration lock: %w", err)
	}
	if !held {
		return fmt.Errorf("the migration lock (advisory key %d, %s) was no longer held when it was released: another process may have migrated at the same time",
			key.Key(), key.Text())
	}
	return nil
}

// backoff waits 10 ms, then twice as long each time, up to a second.
type backoff struct{ last time.Duration }

func (b *backoff) sleep(ctx context.Context) error {
	b.last = min(max(2*b.last, 10*time.Millisecond), time.Second)
	timer := time.NewTimer(b.last)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
