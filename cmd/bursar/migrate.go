package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/bursarhq/bursar/db"
)

func newMigrateCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database to the newest schema",
		Long: `Applies the migrations that the database does not have yet. Run it before a new version of the worker starts; several may
run at once, one of them does the work.

Environment:
  BURSAR_MIGRATE_URL  a direct connection to the database, where DATABASE_URL goes through a pooler
  DATABASE_URL        the database, when BURSAR_MIGRATE_URL is not set`,
		Example: `  DATABASE_URL=postgres://… bursar migrate`,
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			url := cmp.Or(a.getenv("BURSAR_MIGRATE_URL"), a.getenv("DATABASE_URL"))
			if url == "" {
				return errNoDatabaseURL
			}
			applied, err := db.Migrate(cmd.Context(), url)
			for _, m := range applied {
				fmt.Fprintf(a.out, "applied %s (%s)\n", m.Name, m.Took.Round(time.Millisecond))
			}
			if err != nil {
				return err
			}
			if len(applied) == 0 {
				fmt.Fprintln(a.out, "nothing to do: the schema is the newest")
			}
			return nil
		},
	}
}
