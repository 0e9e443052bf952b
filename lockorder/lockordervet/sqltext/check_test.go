package sqltext

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestLockIn(t *testing.T) {
	for text, want := range map[string]string{
		"SELECT id FROM items FOR UPDATE":            "FOR UPDATE",
		"... FOR\n\tNO  KEY UPDATE":                  "FOR NO KEY UPDATE",
		"FOR KEY SHARE":                              "FOR KEY SHARE",
		"select id from items for share of items":    "for share",
		"SELECT pg_try_advisory_xact_lock_shared(1)": "pg_try_advisory_xact_lock_shared",
		"pg_advisory_" + "%s":                        "pg_advisory_",
		"LOCK TABLE items":                           "LOCK TABLE",
		"SELECT 1; lock table items":                 "lock table",
		"LOCK items IN ACCESS EXCLUSIVE MODE":        "LOCK items IN ACCESS EXCLUSIVE MODE",

		"it waits for update of the items, for share": "",
		"select what waits for update":                "",
		"the lock table is full":                      "",
		"SELECT mode FROM pg_locks":                   "",
		"LOCK family must be given":                   "",
		"FOR UPDATES":                                 "",
		"UPDATE items SET for_update = true":          "",
		"pg_advisor":                                  "",
	} {
		if got := LockIn(text); got != want {
			t.Errorf("LockIn(%q) = %q, not %q", text, got, want)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name, sql string
		want      []string // line, rule and a part of the text
	}{
		{"a query", "-- name: Claim :many\nSELECT id\nFROM items\nfor update skip locked;", []string{"4: lock-text: FOR UPDATE locks outside the order"}},
		{"across lines", "SELECT id FROM items FOR\n  NO KEY\n  UPDATE;", []string{"1: lock-text: FOR NO KEY UPDATE"}},
		{"an advisory lock", "SELECT pg_advisory_xact_lock($1);", []string{"1: lock-text: PG_ADVISORY_XACT_LOCK"}},
		{"tables", "LOCK TABLE items;\nLOCK ONLY items;\nlock items in share mode;", []string{"1: lock-text: LOCK TABLE", "2: lock-text: LOCK ONLY ITEMS", "3: lock-text: LOCK ITEMS"}},
		{"a function", "CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $$\nBEGIN\n  PERFORM 1 FROM items FOR UPDATE;\n  LOCK items;\nEND $$;", []string{"3: lock-text: FOR UPDATE", "4: lock-text: LOCK ITEMS"}},
		{"a string that a function runs", "DO $body$\nBEGIN\n  EXECUTE 'SELECT 1 FROM items FOR UPDATE';\nEND $body$;", []string{"3: lock-text: FOR UPDATE"}},
		{"a string within quotes of another kind", "SELECT $a$ SELECT $b$ x FOR SHARE $b$ $a$;", []string{"1: lock-text: FOR SHARE"}},
		{"transactions", "BEGIN;\nUPDATE items SET n = 1;\nSAVEPOINT s;\nstart transaction;\nCOMMIT;", []string{"1: transaction: BEGIN controls a transaction", "3: transaction: SAVEPOINT", "4: transaction: START TRANSACTION", "5: transaction: COMMIT"}},

		{"comments and strings", "-- FOR UPDATE\n/* LOCK TABLE /* nested */ FOR UPDATE */\nCOMMENT ON TABLE items IS 'taken FOR UPDATE; it''s ok';\nSELECT E'it\\'s FOR UPDATE', \"FOR\" FROM items;", nil},
		{"a message of a function", "CREATE FUNCTION f() RETURNS void AS $$ BEGIN RAISE 'lock family of share'; END $$ LANGUAGE plpgsql;", nil},
		{"a function's own begin", "DO $$ BEGIN; PERFORM 1; END $$;", nil},
		{"names", "SELECT locked, lock_key, $1 FROM pg_locks; UPDATE t SET begin_at = now(); CREATE TABLE lock (id int);", nil},
		{"a key of a row", "ALTER TABLE a ADD FOREIGN KEY (b) REFERENCES b ON UPDATE CASCADE;", nil},

		{"allowed above", "SELECT id FROM items\n-- lockordervet:allow lock-text it claims what is free\nFOR UPDATE SKIP LOCKED;", nil},
		{"allowed in its line", "SELECT id FROM items FOR UPDATE SKIP LOCKED; -- lockordervet:allow lock-text it claims what is free", nil},
		{"without a reason", "-- lockordervet:allow lock-text\nSELECT 1 FOR UPDATE;", []string{"1: allowance: it gives no reason", "2: lock-text: FOR UPDATE"}},
		{"without a rule", "-- lockordervet:allow it is late\nSELECT 1 FOR UPDATE;", []string{"1: allowance: it names no rule", "2: lock-text: FOR UPDATE"}},
		{"for nothing", "-- lockordervet:allow lock-text it was here\nSELECT 1;", []string{"1: allowance: it allows nothing of the rule lock-text"}},
		{"of another rule", "-- lockordervet:allow transaction not this\nSELECT 1 FOR UPDATE;", []string{"1: allowance: it allows nothing", "2: lock-text: FOR UPDATE"}},
		{"too far away", "-- lockordervet:allow lock-text the line is another\n\nSELECT 1 FOR UPDATE;", []string{"1: allowance: it allows nothing", "3: lock-text: FOR UPDATE"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := Check("f.sql", c.sql)
			if len(found) != len(c.want) {
				t.Fatalf("%d findings, not %d: %v", len(found), len(c.want), found)
			}
			for i, want := range c.want {
				if got := found[i].String(); !strings.HasPrefix(got, "f.sql:"+want) {
					t.Errorf("found %q, not %q", got, want)
				}
			}
		})
	}
}

// What does not end is read to its end, and never beyond.
func TestUnfinished(t *testing.T) {
	for _, sql := range []string{"'", "\"", "$$", "$a$ FOR", "/*", "--", "E'\\", "$", "$1", "''", "$$'"} {
		if found := Check("f.sql", sql); len(found) > 0 {
			t.Errorf("%q: %v", sql, found)
		}
	}
}

func FuzzCheck(f *testing.F) {
	f.Add("SELECT $a$ 'x' $a$ /* */ -- y\n FOR UPDATE")
	f.Fuzz(func(t *testing.T, sql string) {
		s := scanSQL(sql)
		if len(s.code) != len(sql) || len(s.top) != len(sql) {
			t.Fatalf("%d and %d bytes of %d", len(s.code), len(s.top), len(sql))
		}
		Check("f.sql", sql)
	})
}

func TestFiles(t *testing.T) {
	file := func(sql string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(sql)} }
	found, files, err := Files(fstest.MapFS{
		"queries/b.sql":       file("SELECT 1 FOR UPDATE;"),
		"queries/a.sql":       file("SELECT 1 FOR SHARE;"),
		"queries/c.txt":       file("SELECT 1 FOR UPDATE;"),
		"x/testdata/d.sql":    file("SELECT 1 FOR UPDATE;"),
		".git/e.sql":          file("SELECT 1 FOR UPDATE;"),
		"db/migrations/1.sql": file("CREATE TABLE t ();"),
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range found {
		names = append(names, f.File)
	}
	if files != 3 || !slices.Equal(names, []string{"queries/a.sql", "queries/b.sql"}) {
		t.Errorf("%d files, and findings in %v", files, names)
	}
}

// TestModule holds the module's own query files and migrations to the rules.
func TestModule(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatal(err)
	}
	found, files, err := Files(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if files < 5 {
		t.Errorf("%d .sql files were found below %s: the queries and migrations are more", files, root)
	}
	for _, f := range found {
		t.Error(f)
	}
}
