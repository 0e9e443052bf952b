package lockview

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAdvice has one line for each case.
func TestAdvice(t *testing.T) {
	t.Parallel()
	holder := func(s *Session) *Session {
		s.Holder = &Holder{Workflow: "subscription/sub_1", Path: "subscription-reconcile"}
		return s
	}
	rule := func(s *Session) *Session {
		s.Holder = &Holder{Workflow: "act/it's", Path: "catalog-apply"}
		s.Holds = []Lock{{Class: "materialization", Mode: "exclusive"}}
		return s
	}
	active := func(s *Session) *Session { s.State = "active"; return s }
	other := func(s *Session, state string) *Session {
		s.Application, s.Backend, s.State = "psql", "client backend", state
		return s
	}
	for name, c := range map[string]struct {
		session *Session
		want    string
	}{
		"silent": {holder(holding(7, 4)), "Silent between two statements for 4 s: its process is slow, stopped, or cut off. PostgreSQL ends it at 12:00:06Z by itself, 10 s after the last one. " +
			"Temporal runs it again then. The workflow: temporal workflow show --workflow-id subscription/sub_1"},
		"silent for too long": {holder(holding(7, 60)), "Silent in its transaction for 60 s, past the 10 s after which PostgreSQL ends it: it was opened with another bound. " +
			"End it: SELECT pg_terminate_backend(7). Temporal runs it again then. The workflow: temporal workflow show --workflow-id subscription/sub_1"},
		"between two statements": {holder(holding(7, 0)), "It works: between two statements just now. The workflow: temporal workflow show --workflow-id subscription/sub_1"},
		"works": {active(holder(holding(7, 3))), "It works. Its process ends it at 12:00:12Z at the latest. Temporal runs it again then. " +
			"The workflow: temporal workflow show --workflow-id subscription/sub_1"},
		"works for too long": {active(holder(holding(7, 30))), "It runs a statement, and is past the 15 s that its process gives it: it was opened with another bound, or its process has stopped. " +
			"End it: SELECT pg_terminate_backend(7). Temporal runs it again then. The workflow: temporal workflow show --workflow-id subscription/sub_1"},
		"silent rule change": {rule(holding(7, 1)), "Silent between two statements for 1 s: its process is slow, stopped, or cut off. PostgreSQL ends it at 12:00:00Z by itself, 1.8 s after the last one. " +
			`Temporal runs it again then. The workflow: temporal workflow show --workflow-id 'act/it'\''s'`},
		"waits":           {holder(holding(8, 3)).waits(2, "a", 7), "It gives up at 12:00:03Z at the latest, with nothing done. Temporal runs it again then."},
		"waits too long":  {holder(holding(8, 30)).waits(30, "a", 7), "It waits longer than the 5 s that PostgreSQL lets a transaction of Bursar's: it was opened with another bound."},
		"silent other":    {other(holding(9, 90), "idle in transaction"), "Not Bursar's, and silent in an open transaction for 90 s. Nothing known here ends it; ask whose it is, or end it: SELECT pg_terminate_backend(9)"},
		"other's session": {other(holding(9, 90), "idle"), "Not Bursar's. It holds a lock of its session, outside any transaction, until it unlocks or disconnects; to end it: SELECT pg_terminate_backend(9)"},
		"other works":     {other(holding(9, 400), "active"), "Not Bursar's, and running a statement for 7 min; to end it: SELECT pg_terminate_backend(9)"},
		"other waits":     {other(holding(9, 4), "active").waits(4, "a", 7), "Not Bursar's; it waits for as long as its own lock_timeout lets it. To end it: SELECT pg_terminate_backend(9)"},
		"gone":            {&Session{PID: 9}, "It has gone since; look again."},
		"hidden":          {&Session{PID: 9, Hidden: true, Application: "psql"}, "What it does is hidden from this role."},
		"autovacuum":      {&Session{PID: 9, Backend: "autovacuum worker", State: "active"}, "Autovacuum gives way by itself to who waits, within about a second, unless it protects against wraparound."},
		"migration":       {&Session{PID: 9, Holds: []Lock{{Class: "migration"}}, State: "idle"}, "A migration runs; others wait for it, up to 5 minutes. A killed one lets go within seconds. If it hangs: SELECT pg_terminate_backend(9)"},
		"prepared":        {&Session{Prepared: []string{"x"}}, "Nothing ends a prepared transaction by itself: COMMIT PREPARED or ROLLBACK PREPARED it by the name that pg_prepared_xacts shows."},
		"a command waits": {func() *Session {
			s := holder(holding(8, 3)).waits(2, "a", 7)
			s.Holder.Workflow = "cmd/org create"
			return s
		}(), "It gives up at 12:00:03Z at the latest, with nothing done. The command then says that nothing was changed."},
		"a cut workflow": {func() *Session { s := holder(holding(7, 0)); s.Holder.Cut = true; return s }(), "It works: between two statements just now. The workflow: temporal workflow list --query 'WorkflowId STARTS_WITH \"subscription/sub_1\"'"},
		"a rule change waits": {func() *Session {
			s := rule(holding(8, 3)).waits(1, "a", 7)
			s.Holds, s.Waits.For = nil, Lock{Class: "materialization", Mode: "exclusive"}
			return s
		}(), "A rule change waits for the exclusive rendezvous in turns of at most 2 s, and lets others through between two; after 30 s it answers \"change in progress\"."},
	} {
		require.Equal(t, c.want, advise(c.session, noon, true), name)
	}
	require.Empty(t, advise(holder(holding(7, 4)), noon, false), "nobody waits for it")
}

func secondsOf(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func TestSeconds(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[float64]string{-1: "0 s", 0: "0 s", 0.04: "0 s", 1.26: "1.3 s", 59: "59 s", 600: "10 min", 36000: "10 h", 864000: "10 days"} {
		require.Equal(t, want, Seconds(secondsOf(seconds)))
	}
}
