package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/lockorder"
)

func TestTablesFitTheTerminal(t *testing.T) {
	t.Parallel()
	for width, lines := range map[int]int{0: 2, 200: 2, 50: 3, 10: 4} {
		g := tableWriter("KEY", "WHY")
		g.AppendRow(table.Row{"storage.gigabytes", "Gold membership, subscription sub_1 (active)"})
		var out bytes.Buffer
		renderTo(&out, g, width)
		got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		require.Len(t, got, lines, out.String())
		if width == 50 {
			for _, line := range got {
				require.LessOrEqual(t, len(line), width)
			}
		}
	}
}

func TestErrorsForAPerson(t *testing.T) {
	t.Parallel()
	cause := errors.New("gold is sold out")
	for _, c := range []struct {
		err  error
		want string
	}{
		{cause, "gold is sold out"},
		{&lockorder.Error{Verdict: lockorder.VerdictOther, Path: "x", Kind: lockorder.Plain, Err: cause}, "gold is sold out"},
		{fmt.Errorf("wrapped: %w", &lockorder.Error{Verdict: lockorder.VerdictBusy, Path: "x", Kind: lockorder.Plain, Err: lockorder.ErrBusy}), "nothing was changed; try again (wrapped: "},
		{&lockorder.Error{Verdict: lockorder.VerdictCommitUnknown, Path: "x", Kind: lockorder.Plain, Err: cause}, "may or may not have been done"},
		{&lockorder.Error{Verdict: lockorder.VerdictMisuse, Path: "x", Kind: lockorder.Plain, Err: lockorder.ErrOrder}, "lock out of order"},
	} {
		require.Contains(t, friendly(c.err), c.want)
	}
}

func TestPlural(t *testing.T) {
	t.Parallel()
	require.Equal(t, "1 pool", plural(1, "pool"))
	require.Equal(t, "0 pools", plural(0, "pool"))
}
