package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/db"
	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

func TestMigrateSaysWhatItDid(t *testing.T) {
	empty := pgtest.NewEmpty(t)
	migrate := func(environ map[string]string) (string, error) {
		var out syncBuffer
		a := newApp(strings.NewReader(""), &out, &out)
		a.getenv = func(name string) string { return environ[name] }
		command := newMigrateCommand(a)
		command.SetContext(t.Context())
		err := command.RunE(command, nil)
		return out.String(), err
	}
	// The direct connection goes before the pooled one.
	out, err := migrate(map[string]string{"BURSAR_MIGRATE_URL": empty.URL(), "DATABASE_URL": "postgres://127.0.0.1:1/none"})
	require.NoError(t, err)
	require.Contains(t, out, "applied 00001_core.sql")
	out, err = migrate(map[string]string{"DATABASE_URL": empty.URL()})
	require.NoError(t, err)
	require.Contains(t, out, "nothing to do")

	database, err := lockorder.Open(t.Context(), empty.URL(), lockorder.Options{MaxConns: 2})
	require.NoError(t, err)
	defer database.Close()
	require.NoError(t, db.Check(t.Context(), database.Reader()))
}
