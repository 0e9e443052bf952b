package locktest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bursarhq/bursar/lockorder"
)

const notes = `CREATE TABLE public.notes (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp())`

// note writes a line in one transaction with the statement.
func note(sql string) Act {
	return func(ctx context.Context, e *Env) (string, error) {
		return "noted", e.DB().Run(ctx, lockorder.Spec{Path: "test-note", Kind: lockorder.Plain}, func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := tx.Exec(ctx, sql)
			return err
		})
	}
}

func mustCrash(t *testing.T, s Scenario) *crashReport {
	t.Helper()
	report, err := crash(t, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d points in %v:\n%s", len(report.points), report.took, strings.Join(report.points, "\n"))
	return report
}

// failedAt returns the points with findings, by what they are.
func (r *crashReport) failedAt() []string {
	var out []string
	for _, point := range r.failed {
		if point > len(r.points) {
			out = append(out, "end")
		} else {
			out = append(out, r.points[point-1])
		}
	}
	return out
}

func TestCrashFindsAnActThatIsNotIdempotent(t *testing.T) {
	t.Parallel()
	report := mustCrash(t, Scenario{Setup: tables(notes), Act: note(`INSERT INTO public.notes (text) VALUES ('once')`)})
	// Until COMMIT has been done nothing stands, and the second run makes the one line that there should be.
	if got, want := report.failedAt(), []string{"after COMMIT", "end"}; !slices.Equal(got, want) {
		t.Errorf("found at %q, want %q: %s", got, want, report.findings)
	}
	if len(report.points) < 6 {
		t.Errorf("few points: %q", report.points)
	}
	for _, f := range report.findings {
		if !strings.Contains(f, "too much: public.notes") {
			t.Errorf("finding: %s", f)
		}
	}
}

func TestCrashPassesAnIdempotentAct(t *testing.T) {
	t.Parallel()
	Crash(t, Scenario{Setup: tables(notes), Act: note(`INSERT INTO public.notes (text) SELECT 'once' WHERE NOT EXISTS (SELECT FROM public.notes)`)})
}

// Two transactions, of which the first is found done by the second run and the second never made up for.
func TestCrashFindsWhatIsNeverMadeUpFor(t *testing.T) {
	t.Parallel()
	report := mustCrash(t, Scenario{Setup: tables(notes), Act: func(ctx context.Context, e *Env) (string, error) {
		var begun bool
		if err := e.DB().Reader().QueryRow(ctx, `SELECT EXISTS (SELECT FROM public.notes)`).Scan(&begun); err != nil || begun {
			return "done already", err
		}
		for _, text := range []string{"debit", "credit"} {
			if _, err := note(`INSERT INTO public.notes (text) VALUES ('`+text+`')`)(ctx, e); err != nil {
				return "", err
			}
		}
		return "done", nil
	}})
	first := slices.Index(report.points, "after COMMIT")
	last := len(report.points) - 2 // before the second COMMIT
	var want []int
	for i := first; i <= last; i++ {
		want = append(want, i+1)
	}
	if first < 0 || !slices.Equal(report.failed, want) {
		t.Errorf("found at %v (%q), want %v", report.failed, report.failedAt(), want)
	}
}

func TestCrashFindsACallThatIsMadeTwice(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
	t.Cleanup(server.Close)
	report := mustCrash(t, Scenario{
		Setup: func(_ testing.TB, e *Env) { e.Set("url", server.URL) },
		Reset: func(context.Context, *Env) error { calls.Store(0); return nil },
		Act: func(ctx context.Context, e *Env) (string, error) {
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.Get("url")+"/pay", nil)
			if err != nil {
				return "", err
			}
			response, err := e.Client().Do(request)
			if err != nil {
				return "", err
			}
			return "paid", response.Body.Close()
		},
		Outside: func(context.Context, *Env) (string, error) { return fmt.Sprint(calls.Load(), " calls"), nil },
	})
	if got, want := report.points, []string{"before POST /pay", "after POST /pay"}; !slices.Equal(got, want) {
		t.Errorf("points %q", got)
	}
	if got, want := report.failedAt(), []string{"after POST /pay", "end"}; !slices.Equal(got, want) {
		t.Errorf("found at %q, want %q", got, want)
	}
}

// A transaction that is killed half-way leaves a broken invariant only when it had been committed in two parts.
func TestCrashChecksInvariantsWhereItDied(t *testing.T) {
	t.Parallel()
	report := mustCrash(t, Scenario{
		Setup: tables(`CREATE TABLE public.halves (half int PRIMARY KEY)`),
		Act: func(ctx context.Context, e *Env) (string, error) {
			for _, half := range []string{"1", "2"} {
				if _, err := note(`INSERT INTO public.halves VALUES (`+half+`) ON CONFLICT DO NOTHING`)(ctx, e); err != nil {
					return "", err
				}
			}
			return "both", nil
		},
	})
	if len(report.failed) == 0 {
		t.Fatal("no point is found, although one half stands without the other")
	}
	for _, f := range report.findings {
		if !strings.Contains(f, "before it is run again: invariant test-halves") {
			t.Errorf("finding: %s", f)
		}
	}
}

func init() {
	Invariant("test-halves", func(ctx context.Context, q lockorder.Querier) error {
		var there bool
		if err := q.QueryRow(ctx, `SELECT to_regclass('public.halves') IS NOT NULL`).Scan(&there); err != nil || !there {
			return err
		}
		return NoRows(`SELECT 'one half stands alone' WHERE (SELECT count(*) FROM public.halves) = 1`)(ctx, q)
	})
}

func TestCrashRefusesWhatItCannotProve(t *testing.T) {
	for name, c := range map[string]struct {
		act  Act
		want string
	}{
		"nothing reached": {func(context.Context, *Env) (string, error) { return "", nil }, "reached nothing"},
		"failing":         {func(context.Context, *Env) (string, error) { return "", errors.New("no luck") }, "no luck"},
		"panicking":       {func(_ context.Context, e *Env) (string, error) { return e.Get("unknown"), nil }, `no value called "unknown"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := crash(t, Scenario{Act: c.act}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if _, err := crash(t, Scenario{Act: c.act}); err == nil || !strings.Contains(err.Error(), "called twice") {
				t.Errorf("a second call: %v", err)
			}
		})
	}
}
