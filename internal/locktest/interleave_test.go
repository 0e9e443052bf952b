package locktest

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

const counters = `CREATE TABLE public.counters (id int PRIMARY KEY, n int NOT NULL)`

// statements is an act on a connection of its own: raw transactions, past lockorder.
func statements(list ...string) Act {
	return func(ctx context.Context, e *Env) (string, error) {
		return "done", withConn(ctx, e, func(c *pgx.Conn) error { return execs(ctx, c, list...) })
	}
}

func mustInterleave(t *testing.T, i Interleaving) *interleaveReport {
	t.Helper()
	report, err := interleave(t, i)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d schedules, %d failed, %d begun anew, in %v", report.how, report.schedules, len(report.failed), report.again, report.took)
	return report
}

func wantFinding(t *testing.T, r *interleaveReport, text string) {
	t.Helper()
	if !slices.ContainsFunc(r.findings, func(f string) bool { return strings.Contains(f, text) }) {
		t.Errorf("no finding says %q:\n%s", text, strings.Join(r.findings, "\n"))
	}
}

func TestInterleaveFindsADeadlock(t *testing.T) {
	t.Parallel()
	change := func(first, second string) Act {
		return statements("BEGIN", "UPDATE public.counters SET n = n + 1 WHERE id = "+first, "UPDATE public.counters SET n = n + 1 WHERE id = "+second, "COMMIT")
	}
	report := mustInterleave(t, Interleaving{
		Setup:  tables(counters, `INSERT INTO public.counters VALUES (1, 0), (2, 0)`),
		Actors: []Actor{{"up", change("1", "2")}, {"down", change("2", "1")}},
	})
	wantFinding(t, report, "40P01")
	wantFinding(t, report, "the server's log says")
	wantFinding(t, report, "deadlock detected")
	if report.failed[0] == "" || !slices.ContainsFunc(report.findings, func(f string) bool {
		return strings.HasPrefix(f, "BURSAR_LOCKTEST_SCHEDULE="+report.failed[0]) && strings.Contains(f, "A up: UPDATE")
	}) {
		t.Errorf("the findings do not say the schedule and its steps: %q", report.findings)
	}
}

// The same order on both sides passes, also where one has to wait.
func TestInterleavePassesOneOrder(t *testing.T) {
	t.Parallel()
	change := statements("BEGIN", "UPDATE public.counters SET n = n + 1 WHERE id = 1", "UPDATE public.counters SET n = n + 1 WHERE id = 2", "COMMIT")
	report := mustInterleave(t, Interleaving{
		Setup:     tables(counters, `INSERT INTO public.counters VALUES (1, 0), (2, 0)`),
		Actors:    []Actor{{"one", change}, {"other", change}},
		Schedules: 70, // all: four steps each
	})
	if report.how != "every schedule" || len(report.findings) > 0 {
		t.Errorf("%s: %q", report.how, report.findings)
	}
	// Where a row is held the other cannot go on, which leaves fewer than the 70 ways in which four and four steps can be mixed.
	if report.schedules < 10 || report.schedules >= 70 {
		t.Errorf("%d schedules", report.schedules)
	}
}

// readThenWrite reads a counter and writes what it makes of it, each in a statement of its own.
func readThenWrite(read string) Act {
	return func(ctx context.Context, e *Env) (string, error) {
		return "counted", withConn(ctx, e, func(c *pgx.Conn) error {
			if _, err := c.Exec(ctx, "BEGIN"); err != nil {
				return err
			}
			var n int
			if err := c.QueryRow(ctx, read).Scan(&n); err != nil {
				return err
			}
			if _, err := c.Exec(ctx, `UPDATE public.counters SET n = $1 WHERE id = 1`, n+1); err != nil {
				return err
			}
			_, err := c.Exec(ctx, "COMMIT")
			return err
		})
	}
}

func TestInterleaveFindsALostUpdate(t *testing.T) {
	t.Parallel()
	setup := tables(counters, `INSERT INTO public.counters VALUES (1, 0)`)
	unlocked := readThenWrite(`SELECT n FROM public.counters WHERE id = 1`)
	report := mustInterleave(t, Interleaving{Setup: setup, Actors: []Actor{{"one", unlocked}, {"other", unlocked}}})
	wantFinding(t, report, "the end is that of no serial order")
	wantFinding(t, report, "too much: public.counters id=1 n=1")
	wantFinding(t, report, "missing:  public.counters id=1 n=2")
}

func TestInterleavePassesALockedUpdate(t *testing.T) {
	t.Parallel()
	locked := readThenWrite(`SELECT n FROM public.counters WHERE id = 1 FOR NO KEY UPDATE`)
	report := mustInterleave(t, Interleaving{
		Setup: tables(counters, `INSERT INTO public.counters VALUES (1, 0)`), Actors: []Actor{{"one", locked}, {"second", locked}, {"third", locked}},
	})
	if len(report.findings) > 0 || report.schedules != 60 {
		t.Errorf("%d schedules, findings: %q", report.schedules, report.findings)
	}
}

// A waits behind B in a queue, B waits for C, and C waits for A: the server mends it by letting A go first, without any error.
func TestInterleaveFindsADeadlockThatWasAvoided(t *testing.T) {
	t.Parallel()
	report := mustInterleave(t, Interleaving{
		Actors: []Actor{
			{"first", statements("BEGIN", "SELECT pg_advisory_xact_lock(1)", "SELECT pg_advisory_xact_lock_shared(2)", "COMMIT")},
			{"second", statements("BEGIN", "SELECT pg_advisory_xact_lock(2)", "COMMIT")},
			{"third", statements("BEGIN", "SELECT pg_advisory_xact_lock_shared(2)", "SELECT pg_advisory_xact_lock(1)", "COMMIT")},
		},
		schedule: "CCAABBCA",
	})
	wantFinding(t, report, "avoided deadlock")
}

// An act that is refused as busy begins anew once the other cannot go on or has ended, and what it answers counts.
func TestInterleaveBeginsAnewWhatIsBusy(t *testing.T) {
	t.Parallel()
	// Both want the row, and neither waits for it.
	act := func(ctx context.Context, e *Env) (outcome string, err error) {
		err = withConn(ctx, e, func(c *pgx.Conn) error {
			err := execs(ctx, c, "BEGIN", "SELECT FROM public.counters WHERE id = 1 FOR UPDATE NOWAIT")
			if err != nil {
				return err
			}
			var n int
			if err := c.QueryRow(ctx, `UPDATE public.counters SET n = n + 1 WHERE id = 1 RETURNING n`).Scan(&n); err != nil {
				return err
			}
			outcome = []string{"", "was first", "was second"}[n]
			return execs(ctx, c, "COMMIT")
		})
		return outcome, err
	}
	setup := tables(counters, `INSERT INTO public.counters VALUES (1, 0)`)
	report := mustInterleave(t, Interleaving{Setup: setup, Actors: []Actor{{"one", act}, {"other", act}}})
	if len(report.findings) > 0 || report.serial != 2 || report.again == 0 {
		t.Errorf("%d serial ends, %d begun anew: %q", report.serial, report.again, report.findings)
	}
	report = mustInterleave(t, Interleaving{Setup: setup, Actors: []Actor{{"one", act}, {"other", act}}, Again: func(error) bool { return false }})
	wantFinding(t, report, "55P03")
}

// A wait for a row that nobody locked by lockorder is found, though it does no harm here, unless it is allowed.
func TestInterleaveFindsAWaitThatIsNoLock(t *testing.T) {
	t.Parallel()
	act := note(`INSERT INTO public.counters VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = counters.n + 1`)
	i := Interleaving{Setup: tables(counters), Actors: []Actor{{"one", act}, {"other", act}}}
	wantFinding(t, mustInterleave(t, i), "waits in a statement that takes no lock of lockorder: INSERT INTO public.counters")
	i.Waits = []string{"INSERT INTO public.counters"}
	if report := mustInterleave(t, i); len(report.findings) > 0 {
		t.Errorf("allowed and reported: %q", report.findings)
	}
}

func TestInterleaveRefusesWhatItCannotProve(t *testing.T) {
	t.Parallel()
	idle := Actor{"idle", func(context.Context, *Env) (string, error) { return "", nil }}
	busy := Actor{"busy", statements("SELECT 1")}
	fails := Actor{"fails", statements("SELECT nothing")}
	for want, actors := range map[string][]Actor{
		"two or three actors": {busy}, "idle takes no step": {busy, idle}, "fails although it runs alone": {fails, busy},
	} {
		if _, err := interleave(t, Interleaving{Actors: actors}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
