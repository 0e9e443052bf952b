package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bursarhq/bursar/lockorder"
)

// Scenario is an act that may die anywhere and be run again.
type Scenario struct {
	// Setup makes what the act finds, once, and keeps what it needs to know by Env.Set. What it starts outside the database has to
	// live until the test ends.
	Setup func(t testing.TB, e *Env)
	// Reset puts what is outside the database back to what Setup left, before each run. Rows are put back without it.
	Reset func(ctx context.Context, e *Env) error
	// Act is run in child processes and in the test's own, each with an Env of its own: it knows of the set-up what Env.Get gives.
	Act Act
	// Outside tells what the act has done outside the database, to be compared too. It runs in the test's process.
	Outside func(ctx context.Context, e *Env) (string, error)
	// Options are those of the act's database. NowSQL and MaxConns are filled in, and Watch is told.
	Options lockorder.Options
}

// Crash runs the act and kills it at each of its points, as the package's comment says, and reports on t every point after
// which running it again does not lead to the undisturbed end. Call it once in a test, or in a subtest, and do nothing before it.
func Crash(t *testing.T, s Scenario) {
	t.Helper()
	report, err := crash(t, s)
	if err != nil {
		t.Fatalf("locktest: %v", err)
	}
	for _, finding := range report.findings {
		t.Errorf("%s", finding)
	}
	t.Logf("%d crash points in %v", len(report.points), report.took.Round(time.Millisecond))
}

// crashReport is what Crash found.
type crashReport struct {
	points   []string
	failed   []int // the points with findings, from 1; len(points)+1 is the end of the act
	findings []string
	took     time.Duration
}

func (r *crashReport) add(point int, format string, args ...any) {
	where := "the act had ended and nobody knew"
	if point <= len(r.points) {
		where = fmt.Sprintf("killed %s (point %d of %d)", r.points[point-1], point, len(r.points))
	}
	if !slices.Contains(r.failed, point) {
		r.failed = append(r.failed, point)
	}
	r.findings = append(r.findings, where+": "+fmt.Sprintf(format, args...))
}

// crashed are the tests that have called Crash: a child finds its scenario by the name of the test.
var crashed sync.Map

func crash(t *testing.T, s Scenario) (*crashReport, error) {
	t.Helper()
	if order := childOrder(); order != nil && order.Test == t.Name() {
		order.obey(s) // does not return
	}
	if _, again := crashed.LoadOrStore(t.Name(), true); again {
		return nil, errors.New("Crash is called twice in one test, and a child would find the first only; use subtests")
	}
	t.Cleanup(func() { crashed.Delete(t.Name()) }) // tests may be run several times
	begun := time.Now()
	d, e, err := newDatabase(t, s.Options, s.Setup)
	if err != nil {
		return nil, err
	}
	again, err := newEnv(t.Context(), "again", d.URL(), e.values, s.Options, nil)
	if err != nil {
		return nil, err
	}
	t.Cleanup(again.db.Close)
	c := &crasher{scenario: s, test: t.Name(), d: d, e: e, again: again}
	report, err := c.run(t.Context())
	if err != nil {
		return nil, err
	}
	report.took = time.Since(begun)
	return report, nil
}

// crasher runs one scenario.
type crasher struct {
	scenario Scenario
	test     string
	d        *database
	e        *Env // the set-up's
	again    *Env // of the runs after a death
}

func (c *crasher) run(ctx context.Context) (*crashReport, error) {
	r := &crashReport{}
	if err := c.restore(ctx); err != nil {
		return nil, err
	}
	undisturbed, err := c.child(ctx, 0)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the undisturbed run: %w", err)
	case undisturbed.Error != "":
		return nil, fmt.Errorf("the act fails undisturbed: %s", undisturbed.Error)
	case len(undisturbed.Points) == 0:
		return nil, errors.New("the act reached nothing where it could be killed; it has to use Env.DB, Env.Client or Env.Conn")
	}
	r.points = undisturbed.Points
	want, wrong, err := c.end(ctx)
	if err != nil {
		return nil, err
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("after the undisturbed run: %s", strings.Join(wrong, "\n"))
	}
	// The end first: the rows are those of the undisturbed run still.
	for point := len(r.points) + 1; point > 0; point-- {
		if point <= len(r.points) {
			if err := c.die(ctx, r, point); err != nil {
				return nil, err
			}
		}
		if err := c.runAgain(ctx); err != nil {
			r.add(point, "run again, the act fails: %v", err)
		}
		got, wrong, err := c.end(ctx)
		if err != nil {
			return nil, err
		}
		if diff := differ(want, got); diff != "" {
			r.add(point, "run again, the end is another:\n%s", diff)
		}
		for _, w := range wrong {
			r.add(point, "run again: %s", w)
		}
	}
	slices.Sort(r.failed)
	return r, nil
}

// runAgain runs the act in this process, which knows nothing of the one that died.
func (c *crasher) runAgain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, actWithin)
	defer cancel()
	_, err := runAct(ctx, c.scenario.Act, c.again)
	return err
}

// restore puts everything back to what the set-up left.
func (c *crasher) restore(ctx context.Context) error {
	if err := c.d.restore(ctx); err != nil {
		return err
	}
	if c.scenario.Reset != nil {
		if err := c.scenario.Reset(ctx, c.e); err != nil {
			return fmt.Errorf("reset: %w", err)
		}
	}
	return nil
}

// die runs the act until it dies at the point, and looks at what is left of it.
func (c *crasher) die(ctx context.Context, r *crashReport, point int) error {
	if err := c.restore(ctx); err != nil {
		return err
	}
	killed, err := c.child(ctx, point)
	switch {
	case err != nil:
		return fmt.Errorf("the run to point %d: %w", point, err)
	case killed.Killed == "":
		return fmt.Errorf("the act did not reach point %d (%s) a second time; it has to do the same each time (error: %q)", point, r.points[point-1], killed.Error)
	case killed.Killed != r.points[point-1]:
		return fmt.Errorf("point %d was %q in the recording and %q now; the act has to do the same each time", point, r.points[point-1], killed.Killed)
	}
	wrong, err := c.d.look(ctx)
	for _, w := range wrong {
		r.add(point, "before it is run again: %s", w)
	}
	return err
}

// end returns what stands when nothing is under way, and what is wrong with it.
func (c *crasher) end(ctx context.Context) (state string, wrong []string, err error) {
	if wrong, err = c.d.look(ctx); err != nil {
		return "", nil, err
	}
	if state, err = c.d.dump(ctx); err != nil {
		return "", nil, err
	}
	if c.scenario.Outside != nil {
		outside, err := c.scenario.Outside(ctx, c.e)
		if err != nil {
			return "", nil, fmt.Errorf("outside: %w", err)
		}
		state += "\noutside: " + outside
	}
	return state, wrong, nil
}
