package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/entitlements"
)

const (
	waitFor    = 90 * time.Second
	checkEvery = 200 * time.Millisecond
)

const ruleCatalogue = `
resource_keys:
  - {key: storage, kind: numeric}
  - {key: support, kind: boolean}
sets:
  - {id: basic, rules: {storage: 10}}
products:
  - {id: basic, name: Basic, sets: [basic]}
organization_types:
  - {id: club, name: Club, default: basic}
`

// organizations makes org-0, org-1 and so on.
func (s *shell) organizations(n int) {
	s.t.Helper()
	operator := &activities.Operator{DB: s.database()}
	for i := range n {
		_, err := operator.CreateOrganization(s.t.Context(), activities.NewOrganizationRequest{Slug: fmt.Sprintf("org-%d", i), Name: "Org", Type: "club"})
		require.NoError(s.t, err)
	}
}

func TestRuleCommands(t *testing.T) {
	t.Parallel()
	s := newHouse(t)
	s.must("catalog", "apply", s.file(ruleCatalogue), "--yes")
	s.organization("acme", "Acme", "club")

	require.Equal(t, "KEY      VALUE\nstorage  10\n", s.must("rule", "list", "basic"))
	const shown = "set basic: storage 10 → 20, support nothing → yes\nIt reaches 1 pool, settled with it; entitlements change in 1 of them:\n\n" +
		"ORGANISATION  POOL     KEY      FROM     TO\nacme          default  storage  10       20\nacme          default  support  nothing  yes\n"
	require.Equal(t, shown, s.must("rule", "preview", "basic", "storage=20", "support=yes"))
	require.Equal(t, shown+"Nothing was changed.\n", s.must("rule", "change", "basic", "storage=20", "support=yes", "--dry-run"))
	require.Equal(t, "KEY      VALUE\nstorage  10\n", s.must("rule", "list", "basic"))
	preview := decode[rulePreview](t, s.must("rule", "preview", "basic", "storage-", "--json"))
	require.Equal(t, []entitlements.ValueChange{{Key: "storage", From: entitlements.Number(10)}}, preview.Effects[0].Changes)

	require.Regexp(t, `^Workflow act/[0-9a-f-]{36}\nset basic: storage 10 → 20, support nothing → yes; settled 1 pool, 2 entitlements changed\n$`,
		s.must("rule", "change", "basic", "storage=20", "support=yes", "--yes"))
	require.Equal(t, map[string]any{"storage": 20.0, "support": true}, decode[map[string]any](t, s.must("rule", "list", "basic", "--json")))
	require.Contains(t, s.fails(1, "rule", "change", "basic", "storage=20", "--yes"), "set basic gives that already")

	// Above the cap the pools are owed, and the command follows the drain.
	s.organizations(entitlements.SyncCap)
	out := s.must("rule", "change", "basic", "storage=30", "support-", "--yes")
	require.Regexp(t, `(?s)^Workflow act/\S+\nset basic: storage 20 → 30, support yes → nothing; committed, and 51 pools are still to be settled\nWorkflow rule-change/\S+ settles what is owed\n.*  51 of 51 settled\n$`, out)
	list := decode[[]entitlements.ChangeProgress](t, s.must("rule", "status", "--json"))
	require.Len(t, list, 3, "the catalogue's change too")
	require.Equal(t, []int{51, 51, 0, 0}, []int{list[0].Owed, list[0].Settled, list[0].Open, list[0].Parked})
	require.Regexp(t, `^set basic: .*\n  committed .* by rule-change-commit of workflow act/\S+\n  owed 51 pools: 51 settled, 0 open, 0 parked\n  drained by workflow rule-change/\S+\n$`, s.must("rule", "status", list[0].ID.String()))
	require.Contains(t, s.must("rule", "status", list[1].ID.String()), "it settled every pool that it reached itself")
	require.Contains(t, s.must("entitlements", "acme"), "30")

	// The catalogue above the cap likewise; its drain is started by the command.
	applied := s.must("catalog", "apply", s.file(`sets: [{id: basic, rules: {storage: 40}}]`), "--yes")
	require.Contains(t, applied, "It reaches 51 pools, too many to be settled with it")
	require.Regexp(t, `Applied: 1 change, 51 pools owed\. Workflow rule-change/\S+ settles them\. 'bursar rule status \S+' tells how far it is\.`, applied)
	require.Eventually(t, func() bool {
		last := decode[[]entitlements.ChangeProgress](t, s.must("rule", "status", "--json"))[0]
		return last.Settled == 51
	}, waitFor, checkEvery)
	require.Equal(t, "Nothing is parked.\n", s.must("parked"))
}

// What a change leaves unsettled is parked with the reason, shown, and settled once it is mended and retried.
func TestParkedObligations(t *testing.T) {
	t.Parallel()
	s := newHouse(t)
	s.must("catalog", "apply", s.file(ruleCatalogue), "--yes")
	s.organizations(entitlements.SyncCap + 1)
	_, err := s.pool.Exec(t.Context(), `
		CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'out of order'; END $$;
		CREATE TABLE public.refused AS SELECT p.id FROM core.pools p JOIN core.organizations o ON o.id = p.organization_id WHERE o.slug = 'org-7';
		DO $$ BEGIN EXECUTE format('CREATE TRIGGER refuse BEFORE UPDATE ON core.pool_entitlements FOR EACH ROW WHEN (NEW.pool_id = %L) EXECUTE FUNCTION public.refuse()', (SELECT id FROM public.refused)); END $$`)
	require.NoError(t, err)
	require.Regexp(t, `^Workflow act/\S+\n.*51 pools are still to be settled\n51 pools still to be settled: workflow rule-change/\S+ does it; 'bursar rule status \S+' tells how far it is\n$`,
		s.must("rule", "change", "basic", "storage=20", "--yes", "--no-wait"))
	require.Eventually(t, func() bool { return s.must("parked") != "Nothing is parked.\n" }, waitFor, checkEvery)

	parked := decode[[]parkedJSON](t, s.must("parked", "--json"))
	require.Len(t, parked, 1)
	require.Equal(t, []string{"obligation", "org-7", "unsettled"}, []string{parked[0].Kind, parked[0].Organization, parked[0].Reason})
	require.Equal(t, entitlements.MaxAttempts, parked[0].Attempts)
	require.Contains(t, parked[0].Detail, "out of order")
	require.Contains(t, s.must("entitlements", "org-7"), "Parked, and so not applied:")
	require.Contains(t, s.must("rule", "status", parked[0].Change), "50 settled, 0 open, 1 parked")
	require.Contains(t, s.fails(1, "parked", "retry", "9b2f1c1e-1d1b-4c5e-9a43-2f7f5b0f7a10"), "nothing is parked under")

	_, err = s.pool.Exec(t.Context(), `DROP FUNCTION public.refuse() CASCADE`)
	require.NoError(t, err)
	require.Regexp(t, `^1 parked pool will be settled again\.\nWorkflow rule-change/\S+ settles them\.\n$`, s.must("parked", "retry", parked[0].Change))
	require.Eventually(t, func() bool {
		return decode[entitlements.ChangeProgress](t, s.must("rule", "status", parked[0].Change, "--json")).Settled == 51
	}, waitFor, checkEvery)
	require.Equal(t, "Nothing is parked.\n", s.must("parked"))
}

// What cannot be done is told before a workflow is started: there is no Temporal here.
func TestRuleCommandsRefuse(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.must("catalog", "apply", s.file(ruleCatalogue), "--yes")
	for _, c := range []struct {
		code int
		args []string
		want string
	}{
		{2, []string{"rule", "change"}, "SET is missing"},
		{2, []string{"rule", "change", "basic"}, "what shall change?"},
		{2, []string{"rule", "change", "basic", "storage"}, "neither KEY=VALUE nor KEY-"},
		{2, []string{"rule", "change", "basic", "=1"}, "names no resource key"},
		{2, []string{"rule", "change", "basic", "storage=much"}, "neither a whole number, nor yes or no"},
		{2, []string{"rule", "change", "basic", "storage=-1"}, "the least is 0"},
		{2, []string{"rule", "change", "basic", "storage=1000000000001"}, "the most is 1000000000000"},
		{2, []string{"rule", "change", "basic", "storage=1", "storage-"}, "named twice"},
		{2, []string{"rule", "change", "basic", "storage=1", "--json"}, "needs --yes or --dry-run"},
		{1, []string{"rule", "change", "basic", "storage=yes"}, "resource key storage is numeric, so its value is a whole number, not yes"},
		{1, []string{"rule", "change", "basic", "storag=1"}, `no resource key is called "storag"; near it: storage`},
		{1, []string{"rule", "change", "basis", "storage=1"}, `no set is called "basis"; near it: basic`},
		{1, []string{"rule", "change", "basic", "support-"}, "no rule for support to take away"},
		{1, []string{"rule", "preview", "basic", "storage=10"}, "gives that already"},
		{1, []string{"rule", "list", "gold"}, `no set is called "gold"`},
		{2, []string{"rule", "status", "x"}, "is not the id of a change"},
		{1, []string{"rule", "status", "9b2f1c1e-1d1b-4c5e-9a43-2f7f5b0f7a10"}, "no change is called"},
		{1, []string{"rule", "change", "basic", "storage=1"}, "nobody can be asked here"},
	} {
		require.Contains(t, s.fails(c.code, c.args...), c.want, "%v", c.args)
	}
	require.Equal(t, "Nothing was changed yet.\n", newShell(t).must("rule", "status"))
}
