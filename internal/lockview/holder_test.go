package lockview

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
	"pgregory.net/rapid"

	"github.com/bursarhq/bursar/internal/lockpath"
)

// somePaths are paths of which one begins another, and some share a beginning.
var somePaths = []string{"subscription-reconcile", "subscription-park", "customer-link", "customer-link-checkout", "rule-change-drain", "x"}

func TestHolderNames(t *testing.T) {
	t.Parallel()
	const id = "9b2f1c1e-1d1b-4c5e-9a43-2f7f5b0f7a10"
	for _, c := range []struct{ workflow, path, name string }{
		{"subscription/sub_1PqRsT2eZvKYlo2C", "subscription-park", "subscription/sub_1PqRsT2eZvKYlo2C#subscription-park"},
		{"cmd/org create", "x", "cmd/org create#x"},
		{"subscription/sub_1PqRsT2eZvKYlo2CabcdEFGH", "subscription-reconcile", "subscription/sub_1PqRsT2eZvKYlo2CabcdEFGH#subscription-reconci~"},
		{"workspace/" + id, "subscription-reconcile", "workspace/" + id + "#subscription-re~"},
		{"workflow/" + id, "customer-link-checkout", "workflow/" + id + "#customer-link-ch~"},
		{"rule-change/" + id, "customer-link-checkout", "rule-change/" + id + "#" + pathHash("customer-link-checkout")}, // "customer-link~" begins two
	} {
		got := Holder{Workflow: c.workflow, Path: c.path}.name(somePaths)
		require.Equal(t, c.name, got)
		require.LessOrEqual(t, len(got), maxName)
		h, ok := parseHolder(got, somePaths)
		require.True(t, ok)
		require.Equal(t, Holder{Workflow: c.workflow, Path: c.path}, h)
	}
	long := "checkout/cs_live_" + strings.Repeat("a", 58)
	h, ok := parseHolder(Holder{Workflow: long, Path: "customer-link-checkout"}.name(somePaths), somePaths)
	require.True(t, ok)
	require.True(t, h.Cut)
	require.Equal(t, "customer-link-checkout", h.Path)
	require.True(t, strings.HasPrefix(long, h.Workflow) && len(h.Workflow) > 50, h.Workflow)
	require.Empty(t, h.Object(), "a cut id names nothing")
}

// TestHolderNamesLeadBack takes workflows and paths at random: every name fits and leads back to its path, and to its workflow
// where that is not longer than an id with a UUID behind a word.
func TestHolderNamesLeadBack(t *testing.T) {
	t.Parallel()
	var known []string
	for _, p := range lockpath.All() {
		known = append(known, p.Name)
	}
	require.NotEmpty(t, known)
	rapid.Check(t, func(t *rapid.T) {
		h := Holder{Workflow: rapid.StringMatching(`[a-z-]{1,12}/[a-zA-Z0-9_.#:-]{1,90}`).Draw(t, "workflow"), Path: rapid.SampledFrom(known).Draw(t, "path")}
		name := h.name(known)
		got, ok := parseHolder(name, known)
		switch {
		case len(name) > maxName:
			t.Fatalf("%q is %d bytes", name, len(name))
		case !ok || got.Path != h.Path:
			t.Fatalf("%q leads to %+v", name, got)
		case got.Cut && !strings.HasPrefix(h.Workflow, got.Workflow):
			t.Fatalf("%q leads to %+v", name, got)
		case len(h.Workflow) <= 57 && (got.Cut || got.Workflow != h.Workflow):
			t.Fatalf("%q does not keep the workflow's id: %+v", name, got)
		}
	})
}

// TestPathsHaveHashesOfTheirOwn looks for two paths that would share a shortened name.
func TestPathsHaveHashesOfTheirOwn(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, p := range lockpath.All() {
		if other := seen[pathHash(p.Name)]; other != "" {
			t.Errorf("paths %s and %s share the hash %s; rename the newer", other, p.Name, pathHash(p.Name))
		}
		seen[pathHash(p.Name)] = p.Name
	}
}

func TestOtherApplicationsAreNoHolders(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "psql", "PgBouncer", "#path", "x#", "x#Path", "x#a b", "pgAdmin 4 - DB:bursar", "tool#1"} {
		if h, ok := ParseHolder(name); ok {
			t.Errorf("%q is taken for %+v", name, h)
		}
	}
}

// TestNamer names a transaction inside an activity by its workflow, and outside by the process.
func TestNamer(t *testing.T) {
	t.Parallel()
	name := Namer("worker")
	require.Equal(t, "worker#subscription-park", name(t.Context(), "subscription-park"))
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	act := func(ctx context.Context) (string, error) { return name(ctx, "subscription-park"), nil }
	env.RegisterActivity(act)
	value, err := env.ExecuteActivity(act)
	require.NoError(t, err)
	var got string
	require.NoError(t, value.Get(&got))
	h, ok := ParseHolder(got)
	require.True(t, ok, got)
	require.Equal(t, "default-test-workflow-id", h.Workflow)
}

func TestHolderForAPerson(t *testing.T) {
	t.Parallel()
	require.Equal(t, "subscription/sub_1 · subscription-park", Holder{Workflow: "subscription/sub_1", Path: "subscription-park"}.String())
	require.Equal(t, "subscription-park", Holder{Path: "subscription-park"}.String())
	require.True(t, Holder{Workflow: "parked-retry-2026-12-01T00:00:00Z"}.IsWorkflow())
	require.False(t, Holder{Workflow: Command("parked-x retry")}.IsWorkflow())
	require.False(t, Holder{Workflow: "worker"}.IsWorkflow())
	require.Equal(t, "sub_1", Holder{Workflow: "subscription/sub_1"}.Object())
	require.Empty(t, Holder{Workflow: "cmd/org"}.Object())
}
