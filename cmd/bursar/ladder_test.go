package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/entitlements"
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
	const shown = `gold is no tier of membership any more; who held it holds free
It reaches 1 pool, settled with it; entitlements change in 1 of them:

ORGANISATION  POOL     KEY                FROM  TO
acme          default  storage.gigabytes  100   1
acme          default  support.phone      yes   nothing
`
	require.Equal(t, shown+"Nothing was changed.\n", s.must("tier", "remove", "gold", "--migrate", "--dry-run"))
	looked := decode[entitlements.Outcome](t, s.must("tier", "remove", "gold", "--migrate", "--dry-run", "--json"))
	require.Equal(t, []int{1, 2}, []int{looked.Pools, looked.Entitlements})
	s.tty, s.in = true, "n\n"
	require.Equal(t, shown+"Do this? [y/N] Nothing was changed.\n", s.must("tier", "remove", "gold", "--migrate"))
	require.Contains(t, s.must("ladder", "list"), "free, gold")
	s.in = "y\n"
	require.Equal(t, shown+`Do this? [y/N] Workflow act/(uuid)
gold is no tier of membership any more; who held it holds free; settled 1 pool, 2 entitlements changed
`, steady(s.must("tier", "remove", "gold", "--migrate")))
	require.Equal(t, `gold (Gold membership)
  its tier was removed; free stands in its place
  held by 0 pools
  carries gold

KEY                VALUE
storage.gigabytes  100
support.phone      yes
`, s.must("product", "show", "gold"))

	require.Equal(t, `gold becomes tier 1 of membership
No pool holds anything that it reaches.
Nothing was changed.
`, s.must("tier", "add", "gold", "--ladder", "membership", "--dry-run"))
	added := decode[acted](t, s.must("tier", "add", "gold", "--ladder", "membership", "--yes", "--json"))
	require.Regexp(t, `^act/\S+$`, added.Workflow)
	require.Equal(t, "gold becomes tier 1 of membership; no pool holds anything that it reaches", added.Detail)

	// Another floor is another default.
	require.Equal(t, `the tiers of membership are gold, free; gold is its floor, and the default of club
It reaches 1 pool, settled with it; no entitlement changes.
Nothing was changed.
`, s.must("tier", "reorder", "membership", "gold", "free", "--dry-run"))
	require.Equal(t, `Workflow act/(uuid)
the tiers of membership are gold, free; gold is its floor, and the default of club; settled 1 pool, 0 entitlements changed
`, steady(s.must("tier", "reorder", "membership", "gold", "free", "--yes")))
	require.Equal(t, "TYPE  NAME  DEFAULT\nclub  Club  gold\n", s.must("org", "types"))
	require.Equal(t, "bursar: not valid: 1 pool holds free; say what becomes of them: bursar tier remove free --migrate or --end\n", s.fails(1, "tier", "delete", "free", "--yes"))
	require.Contains(t, s.must("tier", "remove", "free", "--end", "--yes"), "free is no tier of membership any more; who held it holds nothing in its place; settled 1 pool, 2 entitlements changed\n")
	require.Contains(t, s.must("entitlements", "acme"), "Gold membership, the default of its type; the floor of membership")
	s.must("tier", "add", "free", "--ladder", "membership", "--yes")
	require.Regexp(t, `^Workflow act/\S+\nfree is no tier of membership any more; no pool holds anything that it reaches\n$`, s.must("tier", "delete", "free", "--yes"))
}

// What is wrong is told before anything starts.
func TestLadderRefusals(t *testing.T) {
	t.Parallel()
	s := newShell(t) // no worker, and no Temporal: nothing is started
	s.demo()
	for says, args := range map[string][]string{
		"either --migrate or --end":              {"tier", "remove", "gold"},
		"--to goes with --migrate":               {"tier", "remove", "gold", "--end", "--to", "free"},
		"--ladder is missing":                    {"tier", "add", "gold"},
		"the least is 0":                         {"tier", "add", "gold", "--ladder", "membership", "--rank", "-1"},
		"all its tiers are needed":               {"tier", "reorder", "membership"},
		"--json asks nothing, so it needs --yes": {"tier", "delete", "gold", "--json"},
		"give --none":                            {"default", "change", "club"},
		"or give --none":                         {"default", "change", "club", "gold", "--none"},
		"say migrate or grandfather":             {"default", "change", "club", "gold", "--incumbents", "forget"},
		"so it needs --yes or --dry-run":         {"default", "change", "club", "gold", "--json"},
		"SET is missing":                         {"rule", "change"},
		"PRODUCT is missing":                     {"product", "show"},
	} {
		require.Contains(t, s.fails(2, args...), says, args)
	}
	for says, args := range map[string][]string{
		`no product is called "gol"; near it: gold`:                       {"tier", "remove", "gol", "--end", "--yes"},
		`no ladder is called "members"; near it: membership`:              {"tier", "add", "gold", "--ladder", "members", "--yes"},
		"gold is tier 1 of membership already":                            {"tier", "add", "gold", "--ladder", "membership", "--yes"},
		"free is the default of club; change that first":                  {"tier", "remove", "free", "--end", "--yes"},
		"1 pool holds gold; say what becomes of them":                     {"tier", "delete", "gold", "--yes"},
		"holders of gold cannot be migrated to itself":                    {"tier", "remove", "gold", "--migrate", "--to", "gold", "--yes"},
		"names 1 of the 2 tiers of membership; name all of them":          {"tier", "reorder", "membership", "free", "--yes"},
		"gold is no tier of membership, or is named twice":                {"tier", "reorder", "membership", "gold", "gold", "--yes"},
		`no organisation type is called "clib"`:                           {"default", "change", "clib", "gold", "--yes"},
		`no product is called "gld"; near it: gold`:                       {"default", "change", "club", "gld", "--yes"},
		"the default of club is free already":                             {"default", "change", "club", "free", "--yes", "--json"},
		"nobody can be asked here, since the standard input is no termin": {"default", "change", "club", "gold"},
		"nothing was changed: give --yes":                                 {"tier", "remove", "gold", "--end"},
	} {
		require.Contains(t, s.fails(1, args...), says, args)
	}
}

func TestDefaultCommands(t *testing.T) {
	t.Parallel()
	s := newHouse(t)
	s.demo()
	s.organization("other", "Other", "club")
	const shown = `The default of club becomes gold.

ORGANISATIONS THAT HOLD            WHAT BECOMES OF THEM
another default                 1  keep that, as a grant without an end
nothing on its ladder           0  get it
it, or something on its ladder  1  are left as they are
`
	require.Equal(t, shown+"Nothing was changed.\n", s.must("default", "change", "club", "gold", "--incumbents", "grandfather", "--dry-run"))
	require.Equal(t, entitlements.Buckets{Incumbents: 1, Untouched: 1}, decode[entitlements.Buckets](t, s.must("default", "change", "club", "gold", "--dry-run", "--json")))
	s.tty, s.in = true, "n\n"
	require.Equal(t, shown+"Do this? [y/N] Nothing was changed.\n", s.must("default", "change", "club", "gold", "--incumbents", "grandfather"))
	s.in = "y\n"
	out := s.must("default", "change", "club", "gold", "--incumbents", "grandfather")
	require.Regexp(t, `(?s)Do this\? \[y/N\] Workflow act/\S+\nthe default of club is gold instead of free; who holds that is grandfathered; committed, and 2 pools are still to be settled\n`+
		`Workflow rule-change/\S+ settles what is owed\n.*  2 of 2 settled\n$`, out)
	require.Contains(t, s.must("entitlements", "other"), "grant")
	require.Contains(t, s.must("org", "types"), "gold")

	require.Equal(t, `The default of club becomes nothing.

ORGANISATIONS THAT HOLD     WHAT BECOMES OF THEM
another default          0  hold nothing instead
no default               2  are left as they are
Nothing was changed.
`, s.must("default", "change", "club", "--none", "--dry-run"))
	done := decode[struct {
		acted
		Progress entitlements.ChangeProgress
	}](t, s.must("default", "change", "club", "--none", "--yes", "--json"))
	require.Equal(t, []int{2, 2, 2}, []int{done.Change.Owed, done.Progress.Owed, done.Progress.Settled})
	require.Regexp(t, `^Workflow act/\S+\nthe default of club is free .*2 pools are still to be settled\n2 pools still to be settled: workflow rule-change/\S+ does it; 'bursar rule status \S+' tells how far it is\n$`,
		s.must("default", "change", "club", "free", "--yes", "--no-wait"))
	s.eventually(`SELECT count(*) = 0 FROM core.change_obligations WHERE state <> 'settled'`, "the drain settles both")
}

// What would be refused is told before a workflow starts, also to who asks not to be asked.
func TestNothingStartsThatWouldBeRefused(t *testing.T) {
	t.Parallel()
	s := newShell(t) // there is no worker, and no Temporal: what started anything would fail otherwise
	s.env["TEMPORAL_ADDRESS"] = "127.0.0.1:1"
	s.demo()
	require.Equal(t, "bursar: no resource key is called \"storage\"; near it: storage.gigabytes\n", s.fails(1, "rule", "change", "gold", "storage=5", "--yes"))
	require.Contains(t, s.fails(1, "org", "create", "acme", "--name", "Acme", "--type", "club"), "exists already")
	require.Contains(t, s.fails(2, "grant", "revoke", "6f1c3c1e-8f0e-4d39-a2e5-0d7f5a0a9b11", "--json"), "needs --yes")
}
