package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/workflows/contract"
)

// acting is the outcome of an act on a grant, for a program.
type acting struct {
	Workflow string `json:"workflow"`
	Data     struct {
		Grant        entitlements.Grant `json:"grant"`
		Entitlements int                `json:"entitlements"`
	} `json:"data"`
}

func TestGrantCommands(t *testing.T) {
	t.Parallel()
	s := newHouse(t)
	s.must("catalog", "apply", s.file(catalogFile), "--yes")
	s.organization("acme", "Acme", "club")
	require.Equal(t, "There is no such grant.\n", s.must("grant", "list"))

	issued := s.must("grant", "issue", "gold", "--org", "acme", "--until", "2090-01-01", "--note", "for the conference")
	require.Regexp(t, `^Workflow act/[0-9a-f-]{36}\nIssued grant [0-9a-f-]{36}: gold for acme, from \S+ until 2090-01-01T00:00:00Z, active; 2 entitlements changed\n$`, issued)
	require.Regexp(t, `GRANT +ORGANISATION  PRODUCT  STATE   FROM +UNTIL +NOTE\n\S+  acme +gold +active  \S+ \S+  2090-01-01 00:00:00Z  for the conference\n`, s.must("grant", "list", "--org", "acme"))
	require.Contains(t, s.must("entitlements", "acme"), "Gold membership, grant ")
	gold := regexp.MustCompile(`grant ([0-9a-f-]{36})`).FindStringSubmatch(issued)[1]

	extended := decode[acting](t, s.must("grant", "extend", gold, "--until", "2091-01-01", "--json"))
	require.Equal(t, "active", extended.Data.Grant.State)
	require.Zero(t, extended.Data.Entitlements)
	second := extended.Data.Grant.ID.String()
	require.Contains(t, s.fails(1, "grant", "extend", gold, "--forever"), "was extended already: grant "+second)
	managed := s.must("grant", "manage", gold, "--quantity", "3", "--forever", "--note", "for good")
	require.Contains(t, managed, "gold × 3 for acme")
	require.Contains(t, managed, "without an end, active; 1 entitlement changed")
	require.Contains(t, s.must("grant", "resume", gold), "no entitlement changed")

	shown := steady(s.must("grant", "show", second))
	require.Equal(t, 2, strings.Count(shown, "It goes on from:"))
	require.Contains(t, shown, "  until     for ever\n")
	require.Contains(t, shown, "by grant-issue (workflow act/(uuid))\n")
	require.Contains(t, shown, "  extended  (moment) by grant-manage (workflow act/(uuid))\n")
	require.Contains(t, shown, "  note      for good\n")
	line := decode[[]entitlements.Grant](t, s.must("grant", "show", gold, "--json"))
	require.Len(t, line, 3)
	require.Equal(t, gold, line[0].ID.String())

	require.Contains(t, s.fails(1, "grant", "revoke", gold), "nobody can be asked here")
	require.Contains(t, s.must("grant", "revoke", gold, "--yes"), "Revoked grant "+line[2].ID.String())
	require.Contains(t, s.fails(1, "grant", "revoke", gold, "--yes"), "was revoked at ")
	require.Contains(t, s.must("entitlements", "acme"), "the grant was revoked")
	require.Equal(t, "There is no such grant.\n", s.must("grant", "list"))
	require.Len(t, decode[[]entitlements.Grant](t, s.must("grant", "list", "--all", "--json")), 3)
	require.Len(t, decode[[]entitlements.Grant](t, s.must("grant", "list", "--state", "extended,revoked", "--json")), 3)

	orphan := decode[acting](t, s.must("grant", "issue", "gold", "--unassigned", "--json")).Data.Grant
	require.Equal(t, "waiting", orphan.State)
	require.Contains(t, s.must("grant", "list"), "no organisation yet")
	require.Contains(t, s.must("grant", "manage", orphan.ID.String(), "--org", "acme"), "gold for acme")
}

// A grant whose end has come is expired by what the keeper's schedule starts; until then it is shown as overdue.
func TestGrantsExpireByThemselves(t *testing.T) {
	t.Parallel()
	s := newHouse(t)
	s.must("catalog", "apply", s.file(catalogFile), "--yes")
	s.organization("acme", "Acme", "club")
	gold := decode[acting](t, s.must("grant", "issue", "gold", "--org", "acme", "--until", "2090-01-01", "--json")).Data.Grant.ID.String()
	c, err := client.Dial(client.Options{HostPort: s.env["TEMPORAL_ADDRESS"], Namespace: s.env["TEMPORAL_NAMESPACE"]})
	require.NoError(t, err)
	defer c.Close()
	schedule := c.ScheduleClient().GetHandle(t.Context(), contract.ScheduleGrantExpiry)
	require.NoError(t, schedule.Pause(t.Context(), client.SchedulePauseOptions{}))

	s.exec(`UPDATE core.positions SET starts_at = '2020-01-01', ends_at = '2020-06-01' WHERE grant_id = $1`, gold)
	s.exec(`UPDATE core.grants SET starts_at = '2020-01-01', ends_at = '2020-06-01' WHERE id = $1`, gold)
	require.Contains(t, s.must("grant", "list", "--overdue"), "no sweep has come by yet")
	require.Contains(t, s.must("entitlements", "acme"), "Free, the default of its type", "reads do not wait for it")
	s.exec(`CREATE FUNCTION core.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the ledger is full'; END $$`)
	s.exec(`CREATE TRIGGER refuse BEFORE INSERT ON core.ledger FOR EACH ROW EXECUTE FUNCTION core.refuse()`)
	require.NoError(t, schedule.Trigger(t.Context(), client.ScheduleTriggerOptions{}))
	require.Eventually(t, func() bool { return strings.Contains(s.must("grant", "list", "--overdue"), "the ledger is full") }, 30*time.Second, 100*time.Millisecond)

	s.exec(`DROP TRIGGER refuse ON core.ledger`)
	require.NoError(t, schedule.Trigger(t.Context(), client.ScheduleTriggerOptions{}))
	require.Eventually(t, func() bool { return strings.Contains(s.must("grant", "show", gold), ", expired\n") }, 30*time.Second, 100*time.Millisecond)
	require.Equal(t, "There is no such grant.\n", s.must("grant", "list", "--overdue"))
	require.Contains(t, s.must("entitlements", "acme"), "the grant's time is over")
}

// What cannot be done is told before a workflow is started: there is no Temporal here.
func TestGrantCommandsRefuse(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.demo()
	const unknown = "6f1c3c1e-8f0e-4d39-a2e5-0d7f5a0a9b11"
	for want, args := range map[string][]string{
		"either --org ORG or --unassigned":                 {"issue", "gold"},
		"either --org ORG or --unassigned.":                {"issue", "gold", "--org", "acme", "--unassigned"},
		`--until: "tomorrow" is no moment`:                 {"issue", "gold", "--org", "acme", "--until", "tomorrow"},
		"--until is empty":                                 {"issue", "gold", "--org", "acme", "--until", ""},
		`"gold" is not the id of a grant`:                  {"show", "gold"},
		"either --until MOMENT or --forever":               {"extend", unknown},
		`no state of a grant is called "over"; they are w`: {"list", "--state", "over"},
		"give one of them":                                 {"list", "--state", "active", "--all"},
		"PRODUCT is missing":                               {"issue", "--org", "acme"},
	} {
		require.Contains(t, s.fails(2, append([]string{"grant"}, args...)...), strings.TrimSuffix(want, "."))
	}
	for want, args := range map[string][]string{
		`no organisation is called "amce"; near it: acme`: {"issue", "gold", "--org", "amce"},
		`no product is called "golf"; near it: gold`:      {"issue", "golf", "--org", "acme"},
		"the quantity is -3; it takes 1 to 1000000":       {"issue", "gold", "--org", "acme", "--quantity", "-3"},
		"the end 2020-01-01T00:00:00Z is past":            {"issue", "gold", "--org", "acme", "--until", "2020-01-01"},
		"the end comes after the beginning":               {"issue", "gold", "--org", "acme", "--from", "2090-01-01", "--until", "2089-01-01"},
		"no grant is called":                              {"extend", unknown, "--forever"},
		"bursar grant list shows them":                    {"revoke", unknown, "--yes"},
		"nothing is to be changed":                        {"manage", unknown},
		`"` + unknown + `"`:                               {"resume", unknown},
	} {
		require.Contains(t, s.fails(1, append([]string{"grant"}, args...)...), want)
	}
	require.Empty(t, decode[[]any](t, s.must("grant", "list", "--all", "--json")))
}
