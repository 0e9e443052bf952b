package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/catalog"
)

func TestCatalogApplyShowsAsksAndApplies(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.tty = true
	path := s.file(catalogFile)
	const difference = `+ resource key storage.gigabytes (numeric, sum)
+ resource key support.phone (boolean)
+ set free (free)
+ set free: storage.gigabytes 1
+ set gold (gold)
+ set gold: storage.gigabytes 100
+ set gold: support.phone yes
+ product free (Free)
+ product free: set free
+ product gold (Gold membership)
+ product gold: set gold
+ ladder membership (Membership)
+ ladder membership: tiers free < gold
+ organisation type club (Club)
+ organisation type club: default free
+ Stripe price price_gold: product gold

It reaches no pool: nobody holds what changes.

`
	s.in = "n\n"
	code, out, err := s.run("catalog", "apply", path)
	require.Equal(t, 1, code)
	require.Equal(t, difference+"Apply this? [y/N] ", out)
	require.Equal(t, "bursar: not applied; nothing was changed\n", err)
	require.Equal(t, difference+"This was a dry run; nothing was changed.\n", s.must("catalog", "apply", path, "--dry-run"), "nothing was changed")

	s.in = "y\n"
	require.Equal(t, difference+"Apply this? [y/N] Applied: 16 changes, 0 pools settled.\n", s.must("catalog", "apply", path))
	require.Equal(t, "Nothing to change: the catalogue is as the file says.\n", s.must("catalog", "apply", path))
}

func TestCatalogApplyShowsWhatChangesForHolders(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.demo()
	text := strings.ReplaceAll(catalogFile, "storage.gigabytes: 100, support.phone: true", "storage.gigabytes: 150")
	text = strings.ReplaceAll(text, "name: Club,", "name: Sports club,")
	require.Equal(t, `~ set gold: storage.gigabytes 100 → 150
- set gold: support.phone, which was yes
~ organisation type club: name Club → Sports club

It reaches 1 pool; entitlements change in 1 of them:

ORGANISATION  POOL     KEY                FROM  TO
acme          default  storage.gigabytes  100   150
acme          default  support.phone      yes   nothing

Applied: 3 changes, 1 pool settled.
`, s.must("catalog", "apply", s.file(text), "--yes"))
}

func TestCatalogApplyWhereNobodyCanBeAsked(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	path := s.file(catalogFile)
	require.Contains(t, s.fails(1, "catalog", "apply", path), "give --yes")
	s.in, s.tty = catalogFile, true
	require.Contains(t, s.fails(1, "catalog", "apply", "-"), "give --yes", "the file has used up the standard input")
	require.Contains(t, s.must("catalog", "apply", "-", "--yes"), "Applied: 16 changes")
	s.tty = false
	require.Contains(t, s.must("catalog", "apply", path), "Nothing to change", "nothing needs to be asked")
	require.Equal(t, "Nothing to change: the catalogue is as the file says.\nNot in the file, left as is: resource key storage.gigabytes, support.phone\nNot in the file, left as is: set free, gold\n"+
		"Not in the file, left as is: product free, gold\nNot in the file, left as is: ladder membership\nNot in the file, left as is: organisation type club\nNot in the file, left as is: Stripe price price_gold\n",
		s.must("catalog", "apply", s.file("")))
}

func TestCatalogApplyAsJSON(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.demo()
	path := s.file(strings.ReplaceAll(catalogFile, "storage.gigabytes: 100", "storage.gigabytes: 150"))
	type result struct {
		Applied bool `json:"applied"`
		catalog.Preview
	}
	require.Contains(t, s.fails(2, "catalog", "apply", path, "--json"), "--json asks nothing")
	require.Contains(t, s.fails(2, "catalog", "apply", path, "--yes", "--dry-run"), "give one of them")
	shown := decode[result](t, s.must("catalog", "apply", path, "--json", "--dry-run"))
	require.False(t, shown.Applied)
	require.Equal(t, 1, shown.Pools)
	require.Equal(t, []catalog.ValueChange{{Key: "storage.gigabytes", From: entitlements.Number(100), To: entitlements.Number(150)}}, shown.Effects[0].Changes)
	done := decode[result](t, s.must("catalog", "apply", path, "--json", "--yes"))
	require.True(t, done.Applied)
	require.Empty(t, shown.Change)
	require.NotEmpty(t, done.Change)
	done.Change = ""
	require.Equal(t, shown.Preview, done.Preview)
	require.Empty(t, decode[result](t, s.must("catalog", "apply", path, "--json", "--yes")).Changes)
}

func TestCatalogProblemsAreToldWithTheirLines(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	path := s.file("sets:\n  - {id: gold, rules: {nothing: 1}}\n  - {id: gold}\n")
	require.Equal(t, "bursar: 2 problems in "+path+"; nothing was changed\n"+
		path+":2: no resource key is called \"nothing\"; add it under resource_keys or mend the name\n"+
		path+":3: set gold is here a second time; the first is in line 2: keep one\n", s.fails(1, "catalog", "apply", path))
	require.Contains(t, s.fails(1, "catalog", "apply", "/nowhere/catalog.yaml"), "no such file")
}

func TestCatalogApplyTellsWhatItFrees(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.demo()
	s.exec(`INSERT INTO stripe.parked_work (kind, object_id, reason, detail, subscription_id, waiting_prices, waiting_products, parked_at, last_tried_at)
		VALUES ('subscription', 'sub_9', 'unmapped_price', 'Price price_new is not mapped.', 'sub_9', '{price_new}', '{prod_new}', now(), now())`)
	out := s.must("catalog", "apply", s.file(strings.ReplaceAll(catalogFile, "prices: [price_gold]", "prices: [price_gold, price_new]")), "--yes")
	require.Contains(t, out, "1 parked object can go on now and will be tried again by the worker shortly.")
}
