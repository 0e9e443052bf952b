package db_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// list answers the rows of a query of one text column.
func list(t *testing.T, conn *pgx.Conn, sql string, args ...any) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// ours picks the schemas that are not PostgreSQL's own.
const ours = `n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_'`

var lockClass = regexp.MustCompile(`\. Lock class: ([a-z-]+)\.$`)

// TestEveryTableNamesItsLockClass reads the comments: every write is a lock, so each table says whose it is.
func TestEveryTableNamesItsLockClass(t *testing.T) {
	t.Parallel()
	conn := pgtest.New(t).Conn(t)
	rows, err := conn.Query(t.Context(), `SELECT n.nspname || '.' || c.relname, coalesce(obj_description(c.oid, 'pg_class'), '')
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p', 'm', 'f') AND n.nspname NOT IN ('public') AND `+ours)
	if err != nil {
		t.Fatal(err)
	}
	tables := 0
	var table, comment string
	if _, err := pgx.ForEachRow(rows, []any{&table, &comment}, func() error {
		tables++
		match := lockClass.FindStringSubmatch(comment)
		if match == nil {
			t.Errorf("the comment of %s does not end with a lock class: %q", table, comment)
			return nil
		}
		if _, err := lockorder.ClassNamed(match[1]); err != nil {
			t.Errorf("%s: %v", table, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if tables < 20 {
		t.Errorf("only %d tables were looked at", tables)
	}
	for _, table := range list(t, conn, `SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p') AND n.nspname = 'public' AND c.relname <> 'goose_db_version'`) {
		t.Errorf("table %s is in the schema public, where only the record of migrations belongs", table)
	}
}

// TestRowClassesMatchTables compares the row classes with the tables that exist: their identities are columns of
// those names and types, and identify one row.
func TestRowClassesMatchTables(t *testing.T) {
	t.Parallel()
	conn := pgtest.New(t).Conn(t)
	types := map[string]string{"uuid": "uuid", "text": "text", "timestamptz": "timestamp with time zone"}
	seen := 0
	for _, class := range lockorder.Classes() {
		if class.Kind != lockorder.Row || len(list(t, conn, "SELECT 'there' WHERE to_regclass($1) IS NOT NULL", class.Table)) == 0 {
			continue
		}
		seen++
		columns := []string{}
		for _, part := range class.Identity {
			columns = append(columns, part.Name)
			got := list(t, conn, "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = $1::regclass AND attname = $2 AND attnotnull", class.Table, part.Name)
			if len(got) != 1 || got[0] != types[part.Type] {
				t.Errorf("class %s: the column %s of %s is %v, want %s not null", class.Name, part.Name, class.Table, got, types[part.Type])
			}
		}
		unique := list(t, conn, `SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = $1::regclass AND indisunique AND indpred IS NULL
			AND (SELECT array_agg(attname::text ORDER BY attname::text) FROM pg_attribute WHERE attrelid = indrelid AND attnum = ANY (indkey))
			  = (SELECT array_agg(c ORDER BY c) FROM unnest($2::text[]) c)`, class.Table, columns)
		if len(unique) == 0 {
			t.Errorf("class %s: %v does not identify one row of %s", class.Name, columns, class.Table)
		}
		comment := list(t, conn, "SELECT obj_description($1::regclass, 'pg_class')", class.Table)[0]
		if match := lockClass.FindStringSubmatch(comment); match == nil || match[1] != class.Name {
			t.Errorf("class %s locks %s, whose comment names another: %q", class.Name, class.Table, comment)
		}
	}
	if seen < 8 {
		t.Errorf("only %d row classes have a table", seen)
	}
}

// TestNoHiddenSubtransactions looks for what drops locks silently, and for foreign keys that are checked at COMMIT.
func TestNoHiddenSubtransactions(t *testing.T) {
	t.Parallel()
	conn := pgtest.New(t).Conn(t)
	// The functions of extensions are not ours.
	const functions = ` FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace JOIN pg_language l ON l.oid = p.prolang
		WHERE ` + ours + ` AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')`
	if n := len(list(t, conn, "SELECT p.proname::text"+functions)); n < 7 {
		t.Errorf("only %d functions were looked at", n)
	}
	// RAISE EXCEPTION is no block; EXCEPTION WHEN begins one.
	const block = `(^|[^[:alnum:]_])exception[[:space:]]+when([^[:alnum:]_]|$)`
	for _, check := range []string{"BEGIN x; EXCEPTION WHEN OTHERS THEN", "exception\n  when unique_violation"} {
		if len(list(t, conn, "SELECT 'found' WHERE $1 ~* '"+block+"'", check)) == 0 {
			t.Errorf("the search would not find %q", check)
		}
	}
	for _, name := range list(t, conn, "SELECT p.oid::regprocedure::text"+functions+" AND l.lanname = 'plpgsql' AND p.prosrc ~* '"+block+"'") {
		t.Errorf("%s has an EXCEPTION block", name)
	}
	for _, name := range list(t, conn, "SELECT p.oid::regprocedure::text"+functions+` AND p.prosrc ~* '(savepoint|pg_advisory|pg_try_advisory|[^[:alnum:]_]for[[:space:]]+(no[[:space:]]+key[[:space:]]+)?update|lock[[:space:]]+table)'`) {
		t.Errorf("%s makes a savepoint or takes a lock; locks are taken by transactions, in order", name)
	}
	for _, name := range list(t, conn, "SELECT p.oid::regprocedure::text"+functions+" AND l.lanname NOT IN ('plpgsql', 'sql')") {
		t.Errorf("%s is written in a language that is not looked into", name)
	}
	for _, name := range list(t, conn, `SELECT conrelid::regclass || ': ' || conname FROM pg_constraint WHERE contype = 'f' AND condeferrable`) {
		t.Errorf("foreign key %s can be deferred", name)
	}
	for _, name := range list(t, conn, "SELECT p.oid::regprocedure::text"+functions+" AND obj_description(p.oid, 'pg_proc') IS NULL") {
		t.Errorf("function %s has no comment", name)
	}
}

// TestSettlingNeedsTheRendezvous calls the functions that materialize outside a transaction that holds it.
func TestSettlingNeedsTheRendezvous(t *testing.T) {
	t.Parallel()
	conn := pgtest.New(t).Conn(t)
	for _, call := range []string{"core.assert_rendezvous()", "core.settle_pool(gen_random_uuid(), 'a', 'w', now())", "core.materialize_pool(gen_random_uuid(), 'a', 'w', now())"} {
		for _, setting := range []string{"", "none", "shared", "exclusive"} {
			_, err := conn.Exec(t.Context(), fmt.Sprintf("SELECT set_config('lockorder.rendezvous', '%s', false); SELECT %s", setting, call))
			if held := setting == "shared" || setting == "exclusive"; (err == nil) != held || !held && lockorder.SQLState(err) != "BU001" {
				t.Errorf("%s with the rendezvous %q: %v", call, setting, err)
			}
		}
	}
}
