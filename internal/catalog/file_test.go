package catalog_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/internal/catalog"
)

// Everything that is wrong is told at once, each with its line and what to do.
func TestAllProblemsAtOnceWithTheirLines(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	before := h.everything()
	_, err := h.apply(`resource_keys:
  - {key: storage, kind: numeric}
  - {key: storage, kind: numeric}
  - {key: Support, kind: boolean}
  - {key: support, kind: boolean, aggregation: sum}
  - {key: speed, kind: fast}
  - {kind: numeric, window: week}
  - {key: nokind}
sets:
  - {id: gold, colour: yellow, rules: {storage: true, support: 3, speeed: 1, speed: -1}}
  - {id: gold}
  - {id: Bad Name}
  - {id: big, rules: {storage: 1000000000001, speed: 1.5, support: "yes"}}
products:
  - {id: gold, sets: [gold, gold, golden], stripe: {prices: [price_1, "price 2"]}}
  - {id: silver, stripe: {prices: [price_1]}}
  - {id: free}
  - name: nameless
  - 7
ladders:
  - {id: one, tiers: [free, gold, gold]}
  - {id: two, tiers: [gold, platinum]}
organization_types:
  - {id: club, default: gold}
  - {id: other, default: platinum}
  - {id: third, default: &a free}
extra: 1
`)
	var problems *catalog.Problems
	require.ErrorAs(t, err, &problems)
	require.Equal(t, before, h.everything())
	want := []string{
		"3: resource key storage is here a second time; the first is in line 2",
		`4: "Support" cannot be a resource key`,
		"5: resource key support is boolean and has no aggregation",
		`6: the kind of resource key speed cannot be "fast"; it is one of: numeric, boolean`,
		"7: a resource key has no key",
		`7: the window of this resource key cannot be "week"; it is one of: none, day, month`,
		"8: resource key nokind has no kind",
		`10: a set has no field "colour"; it has: id, name, rules`,
		"10: resource key storage is numeric, so its value in set gold is a whole number, not yes",
		"10: resource key support is boolean, so its value in set gold is true or false, not 3",
		`10: no resource key is called "speeed"; near it: speed`,
		"10: the value of speed is out of range: it is 0 to 1000000000000",
		"11: set gold is here a second time; the first is in line 10",
		`12: "Bad Name" cannot be the id of a set`,
		"13: the value of storage is out of range",
		"13: the value of speed must be a whole number, true or false, not a number that is not whole",
		"13: the value of support must be a whole number, true or false, not text",
		"15: set gold is here a second time",
		`15: no set is called "golden"; near it: gold`,
		`15: "price 2" is not a Stripe id`,
		"16: Stripe price price_1 is here a second time; the first is in line 15",
		"18: a product has no id",
		"19: each of products must be a mapping (name: value), not a whole number",
		"21: product gold is already a tier of ladder one (line 21)",
		"22: product gold is already a tier of ladder one (line 21)",
		`22: no product is called "platinum"`,
		"24: product gold is the default of organisation type club and sits on ladder one above its floor",
		`25: no product is called "platinum"`,
		"26: the default of organisation type third must be text, not an anchor or alias",
		`27: the file has no field "extra"`,
	}
	text := problems.Error()
	for _, w := range want {
		require.Contains(t, text, "catalog.yaml:"+w)
	}
	for _, line := range strings.Split(text, "\n") {
		require.True(t, strings.HasPrefix(line, "catalog.yaml:"), line)
	}
	require.Len(t, problems.List, len(want), text)
	require.Equal(t, "catalog.yaml:3:", text[:len("catalog.yaml:3:")], "by line")
}

func TestNotYAML(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"sets:\n  - {id: a\n":                "catalog.yaml:2: this is not YAML",
		"sets: []\nsets: []\n":               `catalog.yaml:2: this is not YAML: mapping key "sets" already defined`,
		"sets: []\nproducts: [}\nladders: ]": "this is not YAML",
	} {
		_, err := catalog.Parse("catalog.yaml", []byte(text))
		require.ErrorContains(t, err, want)
		var problems *catalog.Problems
		require.True(t, errors.As(err, &problems))
	}
}

func TestProblemsBesideTheDatabase(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.mustApply(base)
	for text, want := range map[string]string{
		"resource_keys:\n  - {key: storage, kind: boolean}\n":             "catalog.yaml:2: resource key storage is numeric and sets use it (free, gold, silver), so its kind cannot change",
		"ladders:\n  - {id: second, tiers: [gold]}\n":                     "catalog.yaml:2: product gold is a tier of ladder membership, which the file does not name",
		"ladders:\n  - id: membership\n    tiers: [silver, free, gold]\n": "catalog.yaml:2: product free is the default of organisation type club and sits on ladder membership above its floor",
		"sets:\n  - {id: gold, rules: {support: 5}}\n":                    "catalog.yaml:2: resource key support is boolean",
		"- a\n":                         "catalog.yaml:1: the file must be a mapping (name: value), not a list",
		"sets: {a: b}\n":                "catalog.yaml:1: sets must be a list, not a mapping",
		"sets: []\n---\nproducts: []\n": "catalog.yaml:3: a second document begins here",
	} {
		_, err := h.apply(text)
		require.ErrorContains(t, err, want)
	}
	// A kind may change where no rule uses the key.
	h.mustApply("resource_keys:\n  - {key: later, kind: numeric, window: month}\n")
	p := h.mustApply("resource_keys:\n  - {key: later, kind: boolean}\n")
	require.Len(t, p.Changes, 3)
	require.Equal(t, "boolean max none", h.one(`SELECT concat_ws(' ', kind, aggregation, usage_window) FROM core.resource_keys WHERE key = 'later'`))
}
