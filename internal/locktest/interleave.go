package locktest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

const (
	// defaultSchedules is how many schedules are run where not all are.
	defaultSchedules = 60
	// mostTries is how often an act may begin anew within one schedule.
	mostTries = 12
	// mostFailures is how many failed schedules are told of.
	mostFailures = 3
	// actWithin bounds a run of an act.
	actWithin = 60 * time.Second
)

// Actor is an act and what reports call it.
type Actor struct {
	Name string
	Act  Act
}

// Interleaving is two or three acts that may run at once.
type Interleaving struct {
	// Setup makes what the acts find, once. What it starts outside the database has to live until the test ends.
	Setup func(t testing.TB, e *Env)
	// Reset puts what is outside the database back to what Setup left, before each run. Rows are put back without it.
	Reset  func(ctx context.Context, e *Env) error
	Actors []Actor
	// Again tells which errors of an act mean that nothing was done and trying again is right: then it begins anew once the
	// others cannot go on, or have ended. Without it these are refusals as busy, and lock time-outs.
	Again func(error) bool
	// Waits are pieces of the statements that may wait in the server although they take no lock of lockorder: an insert that may meet
	// another's of the same unique key. Any other such wait is reported: the lock that it should have been is missing.
	Waits []string
	// Outside tells what the acts have done outside the database, to be compared too.
	Outside func(ctx context.Context, e *Env) (string, error)
	// Schedules is how many are run where there are more; 0 means 60.
	Schedules int
	// Options are those of the acts' databases. NowSQL and MaxConns are filled in, and Watch is told.
	Options lockorder.Options

	schedule string // the only one to run, where it is set
}

// Busy tells whether an error is a transaction's that was refused as busy, or whose wait for a lock ended.
func Busy(err error) bool {
	switch lockorder.VerdictOf(err) {
	case lockorder.VerdictBusy, lockorder.VerdictLockTimeout:
		return true
	}
	return false
}

// Interleave runs the acts in many schedules, as the package's comment says, and reports on t every one after which the
// tables are as after no serial order, an invariant does not hold, or a deadlock was broken or avoided.
func Interleave(t *testing.T, i Interleaving) {
	t.Helper()
	report, err := interleave(t, i)
	if err != nil {
		t.Fatalf("locktest: %v", err)
	}
	for _, finding := range report.findings {
		t.Errorf("%s", finding)
	}
	t.Logf("%s: %d schedules, %d serial ends, %d begun anew, in %v", report.how, report.schedules, report.serial, report.again, report.took.Round(time.Millisecond))
}

// interleaveReport is what Interleave found.
type interleaveReport struct {
	how       string
	schedules int
	serial    int // how many different ends the serial orders have
	again     int // how often an act began anew
	findings  []string
	failed    []string // the schedules with findings
	took      time.Duration
}

func interleave(t *testing.T, i Interleaving) (*interleaveReport, error) {
	t.Helper()
	begun := time.Now()
	if n := len(i.Actors); n < 2 || n > 3 {
		return nil, fmt.Errorf("an interleaving has two or three actors, not %d", n)
	}
	if i.Again == nil {
		i.Again = Busy
	}
	// The server looks for deadlocks, and tells of those that it avoided, only for who waits longer than this.
	d, e, err := newDatabase(t, i.Options, i.Setup, pgtest.Setting("deadlock_timeout", "10ms"), pgtest.Deadlocks()) // the report tells of them
	if err != nil {
		return nil, err
	}
	var names []string
	for _, a := range i.Actors {
		names = append(names, a.Name)
	}
	x := &interleaver{Interleaving: i, d: d, e: e, stage: newStage(names...), report: &interleaveReport{}}
	x.stage.blocked = x.blocked
	for n, a := range i.Actors {
		env, err := newEnv(t.Context(), a.Name, d.URL(), e.values, i.Options, x.stage.seats[n])
		if err != nil {
			return nil, err
		}
		t.Cleanup(env.db.Close)
		x.envs = append(x.envs, env)
	}
	if err := x.run(t.Context()); err != nil {
		return nil, err
	}
	x.readLog(d.ServerLog(t))
	x.report.took = time.Since(begun)
	return x.report, nil
}

// interleaver runs one interleaving.
type interleaver struct {
	Interleaving
	d      *database
	e      *Env
	envs   []*Env
	stage  *stage
	serial []string // the ends of the serial orders
	report *interleaveReport
	ran    []ranSchedule
	// unannounced are the statements of this schedule that waited and take no lock, with who sent them.
	unannounced []string
}

// ranSchedule is when a schedule was run.
type ranSchedule struct {
	name       string
	from, till time.Time
}

// result is what an act came to.
type result struct {
	outcome string
	err     error
	again   int
}

func (x *interleaver) run(ctx context.Context) error {
	steps, err := x.runSerial(ctx)
	if err != nil {
		return err
	}
	most, err := mostOf(x.Schedules)
	if err != nil {
		return err
	}
	seed, err := seedOf()
	if err != nil {
		return err
	}
	how, next := plan(steps, most, seed)
	if schedule := cmp.Or(x.schedule, os.Getenv(envSchedule)); schedule != "" {
		how, next = "the schedule "+schedule, once(replay(schedule))
	}
	x.report.how = how
	for choose := next(); choose != nil && len(x.report.failed) < mostFailures; choose = next() {
		if err := x.runSchedule(ctx, choose); err != nil {
			return err
		}
	}
	return nil
}

func once(c chooser) func() chooser {
	return func() (next chooser) {
		next, c = c, nil
		return next
	}
}

// runSerial runs the acts one by one in every order, keeps the ends, and returns how many steps each act took.
func (x *interleaver) runSerial(ctx context.Context) (steps []int, err error) {
	steps = make([]int, len(x.Actors))
	for _, order := range permutations(len(x.Actors)) {
		if err := x.restore(ctx); err != nil {
			return nil, err
		}
		results := make([]result, len(x.Actors))
		for _, i := range order {
			before := x.stage.seats[i].steps
			results[i].outcome, results[i].err = runAct(ctx, x.Actors[i].Act, x.envs[i])
			if err := results[i].err; err != nil {
				return nil, fmt.Errorf("%s fails although it runs alone: %w", x.Actors[i].Name, err)
			}
			steps[i] = max(steps[i], x.stage.seats[i].steps-before)
		}
		end, wrong, err := x.end(ctx, results)
		if err != nil {
			return nil, err
		}
		if len(wrong) > 0 {
			return nil, fmt.Errorf("after the acts one by one: %s", strings.Join(wrong, "\n"))
		}
		if !slices.Contains(x.serial, end) {
			x.serial = append(x.serial, end)
		}
	}
	for i, n := range steps {
		if n == 0 {
			return nil, fmt.Errorf("%s takes no step; it has to use Env.DB, Env.Client, Env.Conn or Env.Step", x.Actors[i].Name)
		}
	}
	x.report.serial = len(x.serial)
	return steps, nil
}

// runSchedule runs the acts at once and lets the chooser decide who goes on.
func (x *interleaver) runSchedule(ctx context.Context, choose chooser) error {
	if err := x.restore(ctx); err != nil {
		return err
	}
	from := time.Now()
	x.stage.raise()
	x.unannounced = nil
	results := make([]result, len(x.Actors))
	ended := make(chan struct{})
	acting, cancel := context.WithTimeout(ctx, actWithin)
	defer cancel()
	for i := range x.Actors {
		go func() {
			defer func() { x.stage.seats[i].end(); ended <- struct{}{} }()
			results[i] = x.act(acting, i)
		}()
	}
	var steps []int
	var trace []string
	var stuck error
	for {
		ready, err := x.stage.settle(acting)
		if stuck = err; err != nil || len(ready) == 0 {
			break
		}
		i := choose(len(steps), ready)
		steps = append(steps, i)
		trace = append(trace, fmt.Sprintf("  %c %s: %s", 'A'+i, x.Actors[i].Name, x.stage.letGo(i)))
	}
	x.stage.clear()
	for range x.Actors {
		<-ended
	}
	name := letters(steps)
	x.report.schedules++
	x.ran = append(x.ran, ranSchedule{name, from, time.Now()})
	return x.judge(ctx, name, trace, results, stuck)
}

// act runs one act until it needs not begin anew.
func (x *interleaver) act(ctx context.Context, i int) (r result) {
	for {
		r.outcome, r.err = runAct(ctx, x.Actors[i].Act, x.envs[i])
		if r.err == nil || deadlocked(r.err) || !x.Again(r.err) || r.again == mostTries || ctx.Err() != nil {
			return r
		}
		r.again++
		x.stage.seats[i].again()
	}
}

// deadlocked tells whether a transaction was the victim of a deadlock, also where the error is kept as a text.
func deadlocked(err error) bool {
	return err != nil && (lockorder.SQLState(err) == "40P01" || strings.Contains(err.Error(), "40P01"))
}

// judge reports what is wrong after a schedule.
func (x *interleaver) judge(ctx context.Context, name string, trace []string, results []result, stuck error) error {
	var wrong []string
	if stuck != nil {
		wrong = append(wrong, stuck.Error())
	}
	wrong = append(wrong, x.unannounced...)
	failed := false
	for i, r := range results {
		x.report.again += r.again
		if r.err != nil {
			failed = true
			wrong = append(wrong, fmt.Sprintf("%s fails after %d further tries: %v", x.Actors[i].Name, r.again, r.err))
		}
	}
	end, left, err := x.end(ctx, results)
	if err != nil {
		return err
	}
	wrong = append(wrong, left...)
	if !failed && stuck == nil && !slices.Contains(x.serial, end) {
		nearest := ""
		for _, s := range x.serial {
			if diff := differ(s, end); nearest == "" || len(diff) < len(nearest) {
				nearest = diff
			}
		}
		wrong = append(wrong, "the end is that of no serial order; from the nearest it differs by:\n"+nearest)
	}
	if len(wrong) > 0 {
		x.report.failed = append(x.report.failed, name)
		x.report.findings = append(x.report.findings, fmt.Sprintf("%s=%s:\n%s\nthe steps:\n%s", envSchedule, name, strings.Join(wrong, "\n"), strings.Join(trace, "\n")))
	}
	return nil
}

func (x *interleaver) restore(ctx context.Context) error {
	if err := x.d.restore(ctx); err != nil {
		return err
	}
	if x.Reset != nil {
		if err := x.Reset(ctx, x.e); err != nil {
			return fmt.Errorf("reset: %w", err)
		}
	}
	return nil
}

// end returns what stands when nothing is under way, and what is wrong with it.
func (x *interleaver) end(ctx context.Context, results []result) (state string, wrong []string, err error) {
	if wrong, err = x.d.look(ctx); err != nil {
		return "", nil, err
	}
	if state, err = x.d.dump(ctx); err != nil {
		return "", nil, err
	}
	for i, r := range results {
		state += fmt.Sprintf("\n%s answered %s", x.Actors[i].Name, r.outcome)
	}
	if x.Outside != nil {
		outside, err := x.Outside(ctx, x.e)
		if err != nil {
			return "", nil, fmt.Errorf("outside: %w", err)
		}
		state += "\noutside: " + outside
	}
	return state, wrong, nil
}
