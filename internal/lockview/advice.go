package lockview

import (
	"fmt"
	"strings"
	"time"

	"github.com/bursarhq/bursar/lockorder"
)

// grace is how much later than its bound a session may be seen before that is worth a word: the server looks no sooner.
const grace = 2 * time.Second

// advise says, of each session that others wait for, what will end it or what to do; of one that only waits, when it
// gives up. The bounds are those of a process that chose none.
func advise(s *Session, at time.Time, waitedFor bool) string {
	switch {
	case s.PID == 0:
		return "Nothing ends a prepared transaction by itself: COMMIT PREPARED or ROLLBACK PREPARED it by the name that pg_prepared_xacts shows."
	case s.Waits != nil:
		return adviseWaiter(s, at)
	case !waitedFor:
		return ""
	case s.Hidden:
		return "What it does is hidden from this role."
	case s.migrates():
		return fmt.Sprintf("A migration runs; others wait for it, up to 5 minutes. A killed one lets go within seconds. If it hangs: %s", terminate(s))
	case s.Holder != nil:
		return adviseHolder(s, at)
	case s.Backend == "autovacuum worker":
		return "Autovacuum gives way by itself to who waits, within about a second, unless it protects against wraparound."
	case s.State == "idle in transaction" || s.State == "idle in transaction (aborted)":
		return fmt.Sprintf("Not Bursar's, and silent in an open transaction%s. Nothing known here ends it; ask whose it is, or end it: %s", sinceText(s.Still, at), terminate(s))
	case s.State == "idle":
		return fmt.Sprintf("Not Bursar's. It holds a lock of its session, outside any transaction, until it unlocks or disconnects; to end it: %s", terminate(s))
	case s.State == "" && s.Application == "":
		return "It has gone since; look again."
	}
	return fmt.Sprintf("Not Bursar's, and running a statement%s; to end it: %s", sinceText(s.Still, at), terminate(s))
}

// adviseHolder is for a session of Bursar's that others wait for and that waits for nobody.
func adviseHolder(s *Session, at time.Time) string {
	bounds := lockorder.Defaults()
	idle, whole := bounds.IdleTimeout, bounds.Budget
	if s.exclusive() {
		idle, whole = min(idle, 2*bounds.ExclusiveHold), bounds.ExclusiveHold
	}
	if strings.HasPrefix(s.State, "idle in transaction") && s.Still != nil {
		end := s.Still.Add(idle)
		if at.After(end.Add(grace)) {
			return fmt.Sprintf("Silent in its transaction%s, past the %s after which PostgreSQL ends it: it was opened with another bound. End it: %s.%s%s",
				sinceText(s.Still, at), Seconds(idle), terminate(s), again(s), see(s))
		}
		if at.Sub(*s.Still) < 100*time.Millisecond {
			return "It works: between two statements just now." + see(s)
		}
		return fmt.Sprintf("Silent between two statements%s: its process is slow, stopped, or cut off. PostgreSQL ends it at %s by itself, %s after the last one.%s%s",
			sinceText(s.Still, at), clock(end), Seconds(idle), again(s), see(s))
	}
	if s.Since == nil {
		return strings.TrimSpace(see(s))
	}
	end := s.Since.Add(whole)
	if at.After(end.Add(grace)) {
		return fmt.Sprintf("It runs a statement, and is past the %s that its process gives it: it was opened with another bound, or its process has stopped. End it: %s.%s%s",
			Seconds(whole), terminate(s), again(s), see(s))
	}
	return fmt.Sprintf("It works. Its process ends it at %s at the latest.%s%s", clock(end), again(s), see(s))
}

// adviseWaiter is for a session that waits.
func adviseWaiter(s *Session, at time.Time) string {
	if s.Holder == nil {
		return "Not Bursar's; it waits for as long as its own lock_timeout lets it. To end it: " + terminate(s)
	}
	if s.Waits.For.Class == "materialization" && s.Waits.For.Mode == "exclusive" {
		return "A rule change waits for the exclusive rendezvous in turns of at most 2 s, and lets others through between two; after 30 s it answers \"change in progress\"."
	}
	bound := lockorder.Defaults().LockTimeout
	if s.Waits.Since == nil {
		return ""
	}
	end := s.Waits.Since.Add(bound)
	if at.After(end.Add(grace)) {
		return fmt.Sprintf("It waits longer than the %s that PostgreSQL lets a transaction of Bursar's: it was opened with another bound.", Seconds(bound))
	}
	return fmt.Sprintf("It gives up at %s at the latest, with nothing done.%s", clock(end), again(s))
}

// exclusive tells whether it holds the rendezvous exclusive.
func (s *Session) exclusive() bool {
	for _, l := range s.Holds {
		if l.Class == "materialization" && l.Mode == "exclusive" {
			return true
		}
	}
	return false
}

// again says what follows when a transaction of Bursar's is ended.
func again(s *Session) string {
	switch {
	case s.Holder.IsWorkflow():
		return " Temporal runs it again then."
	case strings.HasPrefix(s.Holder.Workflow, command):
		return " The command then says that nothing was changed."
	}
	return ""
}

// see says how to look at the workflow.
func see(s *Session) string {
	if s.Holder == nil || !s.Holder.IsWorkflow() {
		return ""
	}
	if s.Holder.Cut {
		return fmt.Sprintf(" The workflow: temporal workflow list --query %s", quote("WorkflowId STARTS_WITH \""+s.Holder.Workflow+"\""))
	}
	return fmt.Sprintf(" The workflow: temporal workflow show --workflow-id %s", quote(s.Holder.Workflow))
}

// quote makes one word for a shell, where that needs quotes.
func quote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/_-.:", r)
	}
	if strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func terminate(s *Session) string { return fmt.Sprintf("SELECT pg_terminate_backend(%d)", s.PID) }

func sinceText(t *time.Time, at time.Time) string {
	if t == nil {
		return ""
	}
	return " for " + Seconds(at.Sub(*t))
}

// Seconds writes a duration for a person.
func Seconds(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 10*time.Second:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05Z") }
