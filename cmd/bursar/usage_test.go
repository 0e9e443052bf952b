package main

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUsageCommands(t *testing.T) {
	t.Parallel()
	s := newHouse(t)
	s.must("catalog", "apply", s.file(`
resource_keys:
  - {key: builds, kind: numeric, window: month}
  - {key: seats, kind: numeric}
  - {key: support.phone, kind: boolean}
sets:
  - {id: plan, rules: {builds: 10, seats: 3}}
products:
  - {id: plan, name: Plan, sets: [plan]}
organization_types:
  - {id: club, name: Club, default: plan}
`), "--yes")
	s.organization("acme", "Acme", "club")

	require.Equal(t, "KEY     USED  OF  LEFT  RENEWS\nbuilds     0  10    10  (moment)\nseats      0   3     3  never\n", steady(s.must("usage", "show", "acme")))
	spent := s.must("usage", "spend", "acme", "seats", "2", "--id", "ann")
	require.Regexp(t, `^Spend ann\nWorkflow act/[0-9a-f-]{36}\nSpent 2 of seats: 2 used, 1 left of 3\n$`, spent)
	require.Contains(t, s.must("usage", "spend", "acme", "seats", "2", "--id", "ann"), "Spend ann of seats stands already: it took 2, at 2")
	require.Regexp(t, `bursar: seats of pool [0-9a-f-]{36}: 2 asked for, 1 left of 3\n`, s.fails(1, "usage", "spend", "acme", "seats", "2"))
	require.Contains(t, s.fails(1, "usage", "spend", "acme", "seats", "1", "--id", "ann"), `spend "ann" of seats of pool`)
	require.Contains(t, s.must("usage", "spend", "acme", "builds", "4"), "Spent 4 of builds: 4 used, 6 left of 10; a new window begins 2")
	require.Equal(t, "KEY    USED  OF  LEFT  RENEWS\nseats     2   3     1  never\n", s.must("usage", "show", "acme", "seats"))

	require.Contains(t, s.must("usage", "release", "acme", "seats", "--id", "ann", "--keep", "1"), "Released 1 of spend ann of seats: 1 of it stays spent, and 1 are used\n")
	require.Contains(t, s.must("usage", "release", "acme", "seats", "--id", "ann", "--keep", "1"), "Nothing was released: 1 of spend ann of seats stays spent\n")
	require.Contains(t, s.must("usage", "raise", "acme", "seats", "5"), "Raised seats from 1 to 5; 0 left of 3\n")
	require.Contains(t, s.must("usage", "bound", "acme", "seats", "2"), "Bounded seats from 5 to 2; 1 left of 3\n")
	require.Contains(t, s.must("usage", "bound", "acme", "seats", "2"), "Nothing was changed: 2 of seats are used; 1 left of 3\n")

	type outcome struct {
		Workflow string `json:"workflow"`
		Data     struct {
			ID   string `json:"id"`
			Left int64  `json:"left"`
		} `json:"data"`
	}
	made := decode[outcome](t, s.must("usage", "spend", "acme", "seats", "1", "--json"))
	require.Regexp(t, regexp.MustCompile(`^act/`), made.Workflow)
	require.Len(t, made.Data.ID, 36, "an id is made where none is given")
	require.Zero(t, made.Data.Left)
	require.Len(t, decode[[]map[string]any](t, s.must("usage", "show", "acme", "--json")), 2)
}

// What cannot be done is told before a workflow is started: there is no Temporal here.
func TestUsageCommandsRefuse(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.demo()
	for want, args := range map[string][]string{
		`N is "0"; it takes a whole number from 1 to`:   {"spend", "acme", "storage.gigabytes", "0"},
		`N is "many"; it takes a whole number`:          {"raise", "acme", "storage.gigabytes", "many"},
		`N is "1000000000001"; it takes a whole number`: {"bound", "acme", "storage.gigabytes", "1000000000001"},
		"--id is missing": {"release", "acme", "storage.gigabytes"},
		"--keep is -1":    {"release", "acme", "storage.gigabytes", "--id", "a", "--keep", "-1"},
		"N is missing":    {"spend", "acme", "storage.gigabytes"},
	} {
		require.Contains(t, s.fails(2, append([]string{"usage"}, args...)...), want)
	}
	require.Equal(t, "bursar: no organisation is called \"amce\"; near it: acme\n", s.fails(1, "usage", "spend", "amce", "storage.gigabytes", "1"))
	require.Equal(t, "bursar: no resource key is called \"storage.gigabyte\"; near it: storage.gigabytes\n", s.fails(1, "usage", "spend", "acme", "storage.gigabyte", "1"))
	require.Contains(t, s.fails(1, "usage", "raise", "acme", "support.phone", "1"), "support.phone is a boolean, and only numbers can be used up")
	require.Contains(t, s.fails(1, "usage", "show", "acme", "support.phone"), "support.phone is a boolean")
	require.Contains(t, s.must("usage", "show", "acme"), "storage.gigabytes")
}

// Support sees a grant, by whom it may be ended, and when it ends; and the floor that is due before a sweep has written it.
func TestEntitlementsShowGrantsAndEnds(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.must("catalog", "apply", s.file(catalogFile), "--yes")
	s.organization("acme", "Acme Ltd", "club")
	s.exec(`
		WITH g AS (
			INSERT INTO core.grants (id, pool_id, product_id, state, starts_at, ends_at, line, origin, note, begun_at, conferred_at, issued_at, issued_act)
			SELECT 'a0000000-0000-4000-8000-000000000001', p.id, pr.id, 'active', now(), now() + interval '1 hour', 'a0000000-0000-4000-8000-000000000001', 'operator', 'for the board', now(), now(), now(), 'test'
			FROM core.pools p, core.products pr WHERE pr.slug = 'gold' RETURNING *)
		INSERT INTO core.positions (pool_id, product_id, source, grant_id, status, starts_at, ends_at, created_act)
		SELECT pool_id, product_id, 'grant', id, 'active', starts_at, ends_at, 'test' FROM g`)
	s.exec(`UPDATE core.positions SET status = 'ended', ended_at = now(), ended_act = 'test', end_reason = 'displaced' WHERE source = 'default'`)
	shown := steady(s.must("entitlements", "acme"))
	require.Contains(t, shown, `Gold membership, grant (uuid) (active), "for the board"; tier 1 of membership; until (moment)`)
	require.Contains(t, shown, "Ends that are known:\nENDS                  PRODUCT          HELD THROUGH\n(moment)  Gold membership  grant (uuid) (active), \"for the board\"\n")

	s.exec(`UPDATE core.positions SET starts_at = now() - interval '2 hours', ends_at = now() - interval '1 hour' WHERE source = 'grant'`)
	shown = steady(s.must("entitlements", "acme"))
	require.Contains(t, shown, "Free, the default of its type, due since what was above it ended, and not written yet; the floor of membership")
	require.Contains(t, shown, "over since (moment)")
	require.NotContains(t, shown, "Ends that are known")
}
