package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLadderCommands(t *testing.T) {
	t.Parallel()
	s := newHouse(t)
	require.Equal(t, "There is none yet: bursar catalog apply makes them.\n", s.must("ladder", "list"))
	s.demo()
	require.Equal(t, "LADDER      NAME        TIERS, THE FLOOR FIRST\nmembership  Membership  free, gold\n", s.must("ladder", "list"))
	require.Equal(t, `membership (Membership)

RANK  PRODUCT  NAME             HOLDERS  DEFAULT OF
   1  gold     Gold membership        1
   0  free     Free                   0  club
`, s.must("ladder", "show", "membership"))
	require.Equal(t, "bursar: no ladder is called \"member\"; near it: membership; bursar ladder list shows them\n", s.fails(1, "ladder", "show", "member"))
	require.Equal(t, `PRODUCT  NAME             PLACE                 HOLDERS  SETS
free     Free             tier 0 of membership        0  free
gold     Gold membership  tier 1 of membership        1  gold
`, s.must("product", "list"))
	require.Equal(t, `gold (Gold membership)
  tier 1 of membership
  held by 1 pool
  carries gold

KEY                VALUE
storage.gigabytes  100
support.phone      yes
`, s.must("product", "show", "gold"))
	require.Equal(t, "SET   NAME  RULES\nfree  free  storage.gigabytes=1\ngold  gold  storage.gigabytes=100 support.phone=yes\n", s.must("set", "list"))
	require.Contains(t, s.must("set", "show", "gold"), "carried by gold\n  held by 1 pool\n")
	require.Equal(t, float64(1), decode[map[string]any](t, s.must("product", "show", "gold", "--json"))["holders"])
	require.Len(t, decode[[]any](t, s.must("set", "list", "--json")), 2)
}

func TestTierCommands(t *testing.T) {
	t.Parallel()
	s := newHouse(t)
	s.demo()
	require.Contains(t, s.fails(2, "tier", "remove", "gold"), "either --migrate or --end")
	require.Contains(t, s.fails(2, "tier", "add", "gold"), "--ladder is missing")
	require.Contains(t, s.fails(2, "tier", "add", "gold", "--ladder", "membership", "--rank", "-1"), "the least is 0")
	require.Contains(t, s.fails(1, "tier", "remove", "gold", "--end"), "give --yes")
	require.Equal(t, "bursar: not valid: free is the default of club; change that first: bursar default change\n", s.fails(1, "tier", "remove", "free", "--end", "--yes"))

	shown := `gold is no tier of membership any more; who held it holds free
It reaches 1 pool.
ORGANISATION  POOL     KEY                FROM  TO
acme          default  storage.gigabytes  100   1
acme          default  support.phone      yes   nothing
`
	require.Equal(t, shown+"Nothing was changed.\n", s.must("tier", "remove", "gold", "--migrate", "--dry-run"))
	s.tty, s.in = true, "n\n"
	require.Equal(t, shown+"Do this? [y/N] Nothing was changed.\n", s.must("tier", "remove", "gold", "--migrate"))
	require.Contains(t, s.must("ladder", "list"), "free, gold")
	s.in = "y\n"
	require.Equal(t, shown+`Do this? [y/N] Workflow act/(uuid)
gold is no tier of membership any more; who held it holds free; settled 1 pool, 2 entitlements changed
`, steady(s.must("tier", "remove", "gold", "--migrate")))
	require.Contains(t, s.must("product", "show", "gold"), "its tier was removed; free stands in its place")

	added := decode[acted](t, s.must("tier", "add", "gold", "--ladder", "membership", "--rank", "0", "--yes", "--json"))
	require.Contains(t, added.Workflow, "act/")
	require.Equal(t, "gold becomes tier 0 of membership; no pool holds anything that it reaches", added.Detail)
	require.Contains(t, s.must("tier", "reorder", "membership", "free", "gold", "--yes"), "the tiers of membership are free, gold")
	require.Contains(t, s.fails(1, "tier", "reorder", "membership", "free", "--yes"), "names 1 of the 2 tiers")
	require.Contains(t, s.must("tier", "delete", "gold", "--yes"), "gold is no tier of membership any more")
}

func TestDefaultCommands(t *testing.T) {
	t.Parallel()
	s := newHouse(t)
	s.demo()
	s.organization("other", "Other", "club")
	require.Contains(t, s.fails(2, "default", "change", "club"), "give --none")
	require.Contains(t, s.fails(2, "default", "change", "club", "gold", "--incumbents", "forget"), "say migrate or grandfather")
	require.Equal(t, "bursar: no product is called \"gld\"; near it: gold\n", s.fails(1, "default", "change", "club", "gld", "--dry-run"))
	require.Equal(t, `Vacant, and get it:           0
Hold another default:         1, grandfathered
Hold something else there:    1, untouched
Nothing was changed.
`, s.must("default", "change", "club", "gold", "--incumbents", "grandfather", "--dry-run"))
	out := s.must("default", "change", "club", "gold", "--incumbents", "grandfather", "--yes")
	require.Regexp(t, `^Workflow act/\S+\nthe default of club is gold instead of free; who holds that is grandfathered; committed, and 2 pools are still to be settled\n`, out)
	s.eventually(`SELECT count(*) = 0 FROM core.change_obligations WHERE state <> 'settled'`, "the drain settles both")
	require.Contains(t, s.must("entitlements", "other"), "grant")
	require.Contains(t, s.must("org", "types"), "gold")
}
