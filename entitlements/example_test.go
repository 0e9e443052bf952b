package entitlements_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/lockorder"
)

// startBuild is what a service does that lets an organisation build something, as often as it is entitled to.
func startBuild(ctx context.Context, db *lockorder.DB, organization, build string) (string, error) {
	org, err := entitlements.FindOrganization(ctx, db.Reader(), organization)
	if err != nil {
		return "", err
	}
	builds, err := entitlements.Entitled(ctx, db.Reader(), org.ID, "builds", time.Time{})
	if err != nil {
		return "", err
	}
	if builds.Value.IsNothing() {
		return "no builds at all", nil
	}
	spent, err := entitlements.Spend(ctx, db, entitlements.Spending{ID: build, Pool: org.DefaultPool, Key: "builds", N: 1})
	var exhausted *entitlements.Exhausted
	switch {
	case errors.As(err, &exhausted):
		return fmt.Sprintf("%d builds left", exhausted.Left), nil
	case err != nil:
		return "", err // ask again, with the same id
	}
	return fmt.Sprintf("build %d of %s", spent.Used, builds.Value), nil
}

// A service reads what an organisation may use, and spends of it.
func ExampleSpend() {
	start := func(ctx context.Context, db *lockorder.DB) {
		answer, err := startBuild(ctx, db, "acme", "build-4711")
		fmt.Println(answer, err)
	}
	_ = start
}

func TestExampleSpend(t *testing.T) {
	t.Parallel()
	h, pool := newPlan(t)
	h.org("bare", "bare")
	for _, c := range [][3]string{
		{"acme", "build-1", "build 1 of 100"},
		{"acme", "build-2", "build 2 of 100"},
		{"acme", "build-1", "build 1 of 100"},
		{"bare", "build-1", "no builds at all"},
	} {
		answer, err := startBuild(t.Context(), h.db, c[0], c[1])
		require.NoError(t, err)
		require.Equal(t, c[2], answer)
	}
	_, err := entitlements.RaiseTo(t.Context(), h.db, entitlements.Counter{Pool: pool, Key: "builds"}, 100)
	require.NoError(t, err)
	answer, err := startBuild(t.Context(), h.db, "acme", "build-3")
	require.NoError(t, err)
	require.Equal(t, "0 builds left", answer)
}

var sqlBlock = regexp.MustCompile("(?s)```sql\n(.*?)```")

// The README's statements run, and answer something of an organisation that has allowances.
func TestTheStatementsOfTheReadme(t *testing.T) {
	t.Parallel()
	h, pool := newPlan(t)
	_, err := h.pool.Exec(t.Context(), `UPDATE core.ledger SET at = at - interval '2 days'`)
	require.NoError(t, err)
	h.spend(h.db, "a", pool, "builds", 1)
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	blocks := sqlBlock.FindAllStringSubmatch(string(text), -1)
	require.Len(t, blocks, 4)
	for _, b := range blocks {
		rows, err := h.pool.Query(t.Context(), b[1])
		require.NoError(t, err, b[1])
		n := 0
		for rows.Next() {
			n++
		}
		require.NoError(t, rows.Err(), b[1])
		if n == 0 {
			require.Contains(t, b[1], "now() - interval", "answers nothing: %s", b[1]) // its positions began since
		}
	}
}
