package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/internal/pgtest"
)

// Commands work through PgBouncer, whose backends change from one transaction to the next.
func TestThroughPgBouncer(t *testing.T) {
	t.Parallel()
	database := pgtest.New(t)
	s := &shell{t: t, env: map[string]string{"DATABASE_URL": database.PoolerURL(t), "BURSAR_DB_POOLER": "pgbouncer"}}
	s.serve()
	s.must("catalog", "apply", "--yes", s.file(`
resource_keys:
  - {key: sites.active, kind: numeric, aggregation: sum, description: Sites}
sets:
  - {id: basics, name: Basics, rules: {sites.active: 1}}
products:
  - {id: community, name: Community, sets: [basics]}
ladders:
  - {id: membership, name: Membership, tiers: [community]}
organization_types:
  - {id: club, name: Club, default: community}
`))
	s.must("org", "create", "acme", "--name", "Acme", "--type", "club")
	s.must("customer", "link", "cus_1", "acme")
	require.Contains(t, s.must("entitlements", "acme"), "sites.active")

	s.env["BURSAR_DB_POOLER"] = "pgpool"
	require.Contains(t, s.fails(1, "org", "list"), "BURSAR_DB_POOLER is wrong: set it to pgbouncer")
}
