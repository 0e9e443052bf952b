package locktest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// watcher is the application name of this package's own connections.
const watcher = "locktest"

// quietWithin is how long a killed client's transaction may go on.
const quietWithin = 10 * time.Second

// database is the database of one scenario. What the set-up left is kept, and put back before each run.
type database struct {
	*pgtest.DB
	admin  *pgxpool.Pool // a superuser's: it may put rows back past triggers and foreign keys
	tables []table
	reset  string // the statements that put the rows back
	resets int    // how often that was done
	quiet  time.Duration
	since  time.Time // when the set-up had ended, cut to the second: Stripe's times are whole seconds
}

// table is a table whose rows are kept and compared.
type table struct {
	name    string   // schema.table, quoted where needed
	columns []string // those that can be written
	left    []string // those that are not compared
}

// newDatabase makes a database, lets setUp fill it, and keeps what it left.
func newDatabase(t testing.TB, o lockorder.Options, setUp func(testing.TB, *Env), options ...pgtest.Option) (*database, *Env, error) {
	t.Helper()
	d := &database{DB: pgtest.New(t, options...), quiet: quietWithin}
	config, err := pgxpool.ParseConfig(d.AdminURL())
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns = 2
	config.ConnConfig.RuntimeParams["application_name"] = watcher
	config.ConnConfig.RuntimeParams["timezone"] = "UTC"
	if d.admin, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		return nil, nil, err
	}
	t.Cleanup(d.admin.Close)
	e, err := newEnv(t.Context(), "set-up", d.URL(), map[string]string{}, o, nil)
	if err != nil {
		return nil, nil, err
	}
	t.Cleanup(e.db.Close)
	if setUp != nil {
		setUp(t, e)
	}
	return d, e, d.keep(t.Context())
}

// keep copies all rows aside.
func (d *database) keep(ctx context.Context) error {
	rows, err := d.admin.Query(ctx, `
		SELECT format('%I.%I', n.nspname, c.relname) AS name,
		       array_agg(quote_ident(a.attname) ORDER BY a.attnum) FILTER (WHERE a.attgenerated = '') AS columns,
		       coalesce(array_agg(a.attname::text) FILTER (WHERE a.attidentity <> '' OR a.attname IN ('version', 'attempts')), '{}') AS left
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname NOT IN ('information_schema', 'locktest') AND n.nspname !~ '^pg_'
		  AND c.relname !~ '^goose_' AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = c.oid AND deptype = 'e')
		GROUP BY 1 ORDER BY 1`)
	if err != nil {
		return err
	}
	var each table
	_, err = pgx.ForEachRow(rows, []any{&each.name, &each.columns, &each.left}, func() error {
		d.tables = append(d.tables, each)
		each = table{}
		return nil
	})
	if err != nil {
		return err
	}
	var keep, reset strings.Builder
	keep.WriteString("CREATE SCHEMA locktest;")
	reset.WriteString("SET LOCAL session_replication_role = replica;") // no trigger, no foreign key: the rows stood like this before
	for i, t := range d.tables {
		columns := strings.Join(t.columns, ", ")
		fmt.Fprintf(&keep, "CREATE TABLE locktest.t%d AS TABLE %s;", i, t.name)
		fmt.Fprintf(&reset, "DELETE FROM %s; INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM locktest.t%d;", t.name, t.name, columns, columns, i)
	}
	d.reset = reset.String()
	if _, err := d.admin.Exec(ctx, keep.String()); err != nil {
		return fmt.Errorf("keep the rows that the set-up made: %w", err)
	}
	return d.admin.QueryRow(ctx, "SELECT date_trunc('second', core.clock())").Scan(&d.since)
}

// restore puts back the rows that the set-up left.
func (d *database) restore(ctx context.Context) error {
	if _, err := d.admin.Exec(ctx, d.reset); err != nil { // one message, so one transaction
		return fmt.Errorf("put the rows of the set-up back: %w", err)
	}
	if d.resets++; d.resets%100 == 0 {
		if _, err := d.admin.Exec(ctx, "VACUUM"); err != nil {
			return fmt.Errorf("clear dead rows: %w", err)
		}
	}
	return nil
}

// leftovers waits until no transaction is open and no advisory lock held, and says which are when that takes too long.
func (d *database) leftovers(ctx context.Context) ([]string, error) {
	for deadline := time.Now().Add(d.quiet); ; {
		rows, err := d.admin.Query(ctx, `
			SELECT format('process %s (%s) has a transaction open: %s', pid, application_name, left(query, 120)) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND xact_start IS NOT NULL
			UNION ALL
			SELECT format('process %s holds an advisory lock: %s/%s', pid, classid, objid) FROM pg_locks
			WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
		if err != nil {
			return nil, err
		}
		left, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(left) == 0 || time.Now().After(deadline) {
			return left, err
		}
		select {
		case <-ctx.Done():
			return left, ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// look says what is wrong when nothing is under way: what is left open, and which invariants do not hold.
func (d *database) look(ctx context.Context) ([]string, error) {
	left, err := d.leftovers(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for open transactions: %w", err)
	}
	return append(left, checkInvariants(ctx, d.admin)...), nil
}
