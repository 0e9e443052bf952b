package lockview

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/internal/pgtest"
)

// TestPreparedTransactions shows what holds a lock and has no process. The server of the tests allows none, so the rows are
// made up.
func TestPreparedTransactions(t *testing.T) {
	t.Parallel()
	rows := []sessionRow{
		{At: noon, PID: 0, Locks: []lockRow{{Type: "advisory", Mode: "ExclusiveLock", Granted: true, ClassID: 1, ObjID: 2, ObjSubID: 1, Tag: "k"}}},
		{At: noon, PID: 7, Application: "x/1#path", Blockers: []int{0}, Locks: []lockRow{{Type: "advisory", Mode: "ExclusiveLock", ClassID: 1, ObjID: 2, ObjSubID: 1, Tag: "k"}}},
	}
	s := Snapshot{At: noon, Sessions: build(rows)}
	s.Sessions[0].Prepared = []string{"tx-1"}
	s.arrange()
	require.Equal(t, "0(7)", draw(s.Chains))
	require.Equal(t, "prepared transaction tx-1", s.Chains[0].Name())
	require.Contains(t, s.Chains[0].Advice, "ROLLBACK PREPARED")
	require.False(t, s.Chains[0].Behind[0].Waits.Queued)
}

// TestPreparedTransactionsCanBeListed asks a server for them.
func TestPreparedTransactionsCanBeListed(t *testing.T) {
	t.Parallel()
	gids, err := readPrepared(t.Context(), opened(t, pgtest.New(t).URL()))
	require.NoError(t, err)
	require.Empty(t, gids)
}

// TestRowsWithoutAComment has another application wait for a row: the table is told, and who keeps it.
func TestRowsWithoutAComment(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	q := opened(t, d.URL())
	exec(t, d.Conn(t), `INSERT INTO core.entitlement_sets (slug, name) VALUES ('gold', 'Gold')`)
	holder := as(t, d, "first tool")
	exec(t, holder, `BEGIN`)
	exec(t, holder, `UPDATE core.entitlement_sets SET name = 'A'`)
	for _, name := range []string{"second tool", "third tool"} {
		waiter, done := as(t, d, name), make(chan struct{})
		go func() {
			defer close(done)
			_, _ = waiter.Exec(t.Context(), `UPDATE core.entitlement_sets SET name = 'B'`)
		}()
		waiting := map[string]int{"second tool": 1, "third tool": 2}[name]
		lookUntil(t, q, func(s Snapshot) bool { n, _ := s.Waiting(); return n == waiting })
		defer func() { _ = waiter.PgConn().CancelRequest(t.Context()); <-done }()
	}
	s := lookUntil(t, q, func(s Snapshot) bool { return len(s.Sessions) == 3 })
	require.Len(t, s.Chains, 1)
	first := s.Chains[0]
	require.Equal(t, "another application: first tool", first.Name())
	require.Equal(t, "a row, or a unique key, that it wrote", first.Holds[0].String())
	require.Contains(t, first.Advice, "silent in an open transaction")
	second := first.Behind[0]
	require.Equal(t, "a row of core.entitlement_sets", second.Waits.For.String())
	require.False(t, second.Waits.Queued)
	third := second.Behind[0]
	require.Equal(t, "a row of core.entitlement_sets", third.Waits.For.String())
	require.True(t, third.Waits.Queued, "it is in the queue for the row")
}

func TestOneLine(t *testing.T) {
	t.Parallel()
	require.Equal(t, "SELECT 1", oneLine("/* a comment */ SELECT\n\t1 "))
	require.Equal(t, "/* never ended", oneLine("/* never ended"))
	long := oneLine("SELECT '" + strings.Repeat("é", 300) + "'")
	require.Equal(t, longestStatement, len([]rune(long)))
	require.True(t, strings.HasSuffix(long, "…"))
}
