package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/internal/lockpath"
	"github.com/bursarhq/bursar/lockorder"
)

// TestLocksKey prints the known answers, without a database.
func TestLocksKey(t *testing.T) {
	t.Parallel()
	s := &shell{t: t, env: map[string]string{}}
	for text, key := range map[string]int64{
		"bursar:materialization":                                -9104575358558129625,
		"bursar:subscription:sub_1PqRsT2eZvKYlo2C":              -3665128543489699651,
		"bursar:invoice:in_1PqRsT2eZvKYlo2C":                    1894564841501681177,
		"bursar:product:9b2f1c1e-1d1b-4c5e-9a43-2f7f5b0f7a10":   6624483717101204389,
		"bursar:workspace:b1d30740-dd19-43ff-b650-978f27bfc618": -148746545014421041,
		"bursar:lifecycle:17963da0-ab4a-4574-8eca-202bc22ceb7d": 81864751639425832,
		"bursar:domains":          6052211708705085523,
		"bursar:migration:bursar": -2472991287482019171,
	} {
		parts := strings.Split(text, ":")[1:]
		require.Regexp(t, fmt.Sprintf(`^key       %d\npg_locks  classid \d+, objid \d+, objsubid 1\ntext      %s\n$`, key, text), s.must(append([]string{"locks", "key"}, parts...)...))
		got := decode[struct {
			Number         int64
			ClassID, ObjID uint32
			Text           string
		}](t, s.must(append([]string{"locks", "key", "--json"}, parts...)...))
		require.Equal(t, key, got.Number)
		require.Equal(t, key, int64(uint64(got.ClassID)<<32|uint64(got.ObjID)))
		require.Equal(t, text, got.Text)
	}
	require.Contains(t, s.must("locks", "key", "desired-state", "c1", "organization", "a:b"), "bursar:desired-state:c1:organization:a%3Ab\n")
	require.Contains(t, s.must("locks", "key", "product", "9B2F1C1E-1D1B-4C5E-9A43-2F7F5B0F7A10"), "key       6624483717101204389\n")

	for want, args := range map[string][]string{
		"FAMILY is missing; there are: migration, materialization,":                     nil,
		`no family is called "subscripton"; there are: migration, materialization,`:     {"subscripton", "sub_1"},
		"subscription takes 1 part: subscription id; 0 were given":                      {"subscription"},
		"desired-state takes 3 parts: connection, recipient kind, recipient id; 1 was":  {"desired-state", "c1"},
		"domains takes no part; 1 was given":                                            {"domains", "x"},
		"the subscription id of subscription is empty":                                  {"subscription", ""},
		`product id "x" is not a UUID`:                                                  {"product", "x"},
		"pool locks rows of core.pools, which have no key; families with keys are: mig": {"pool", "x"},
	} {
		require.Contains(t, s.fails(2, append([]string{"locks", "key"}, args...)...), want)
	}
}

func TestLocksExplainUsage(t *testing.T) {
	t.Parallel()
	s := &shell{t: t, env: map[string]string{}}
	require.Contains(t, s.fails(2, "locks", "explain"), "KEY is missing")
	require.Contains(t, s.fails(2, "locks", "explain", "1", "-2"), "one argument too many")
	require.Contains(t, s.fails(2, "locks", "explain", "one"), `"one" is no key`)
	require.Contains(t, s.fails(2, "locks", "explain", "--what", "1"), "unknown flag: --what")
	require.Contains(t, s.must("locks", "explain", "--help"), "bursar locks explain -9104575358558129625")
	for _, key := range []string{"-9104575358558129625", "2175143155/308163111"} {
		require.Contains(t, s.fails(1, "locks", "explain", key), "DATABASE_URL is not set", "the key is understood")
	}
}

// TestLocksCensus lists every class, and every path under each class that it takes.
func TestLocksCensus(t *testing.T) {
	t.Parallel()
	s := &shell{t: t, env: map[string]string{}}
	all := decode[[]censusJSON](t, s.must("locks", "census", "--json"))
	require.Len(t, all, len(lockorder.Classes()))
	taken := map[string]map[string]bool{}
	for i, c := range all {
		require.Equal(t, lockorder.Classes()[i].Name, c.Class)
		require.NotEmpty(t, c.Serializes)
		taken[c.Class] = map[string]bool{}
		for _, p := range c.Paths {
			require.NotEmpty(t, p.By)
			taken[c.Class][p.Name] = true
		}
	}
	require.NotEmpty(t, lockpath.All())
	for _, p := range lockpath.All() {
		for _, step := range p.Steps() {
			require.True(t, taken[step.Class.Name][p.Name], "%s takes %s", p.Name, step.Class.Name)
		}
	}
	table := s.must("locks", "census")
	require.Contains(t, table, "RANK  CLASS")
	require.Contains(t, table, "catalog-apply, exclusive: bursar catalog apply")
	require.Contains(t, table, "subscription-reconcile, shared: activity ReconcileSubscription")
	one := s.must("locks", "census", "pool")
	require.Contains(t, one, "rank 110, a row of core.pools, FOR NO KEY UPDATE")
	require.Contains(t, one, "  catalog-apply\n")
	require.Contains(t, s.must("locks", "census", "migration"), "By bursar migrate.")
	require.Contains(t, s.fails(2, "locks", "census", "pols"), `no lock class is called "pols"; there are: migration`)
}
