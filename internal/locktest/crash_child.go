package locktest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// envChild gives a child process its order.
	envChild = "BURSAR_LOCKTEST_CHILD"
	// childWithin bounds a run of an act.
	childWithin = 60 * time.Second
	// reportFile is the descriptor on which a child reports.
	reportFile = 3
)

// order tells a child process what to do.
type order struct {
	Test   string
	URL    string
	Values map[string]string
	// KillAt is the point at which it dies, from 1; 0 is none.
	KillAt int
}

// childReport is what a child did.
type childReport struct {
	// Points are all that it passed; only of a run that came to its end.
	Points []string
	Error  string
	// Killed is the point at which it died.
	Killed string
}

// childOrder returns the order of this process, nil when it is no child.
func childOrder() *order {
	text := os.Getenv(envChild)
	if text == "" {
		return nil
	}
	o := &order{}
	if err := json.Unmarshal([]byte(text), o); err != nil {
		panic(fmt.Sprintf("locktest: the order in %s: %v", envChild, err))
	}
	return o
}

// child runs the act in a process of its own.
func (c *crasher) child(ctx context.Context, killAt int) (*childReport, error) {
	text, err := json.Marshal(order{Test: c.test, URL: c.d.URL(), Values: c.e.values, KillAt: killAt})
	if err != nil {
		return nil, err
	}
	segments := strings.Split(c.test, "/")
	for i, s := range segments {
		segments[i] = "^" + regexp.QuoteMeta(s) + "$"
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	reading, writing, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer reading.Close()
	ctx, cancel := context.WithTimeout(ctx, childWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-test.run="+strings.Join(segments, "/"), "-test.count=1", "-test.timeout=0")
	cmd.Env = append(os.Environ(), envChild+"="+string(text))
	cmd.ExtraFiles = []*os.File{writing}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.WaitDelay = time.Second
	err = cmd.Start()
	writing.Close()
	if err != nil {
		return nil, fmt.Errorf("start the test binary again: %w", err)
	}
	report := &childReport{}
	decodeErr := json.NewDecoder(bufio.NewReader(reading)).Decode(report)
	waitErr := cmd.Wait()
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("it did not end: %w\n%s", ctx.Err(), output.String())
	case decodeErr != nil:
		return nil, fmt.Errorf("the child process ended (%v) without a report; does test %s call Crash, and can it be found by its name?\n%s", waitErr, c.test, output.String())
	case report.Killed != "" && (!status.Signaled() || status.Signal() != syscall.SIGKILL):
		return nil, fmt.Errorf("the child process says that it died at %q, and ended otherwise: %v", report.Killed, waitErr)
	case report.Killed == "" && waitErr != nil:
		return nil, fmt.Errorf("the child process: %w\n%s", waitErr, output.String())
	}
	return report, nil
}

// obey runs the act in the child process and ends it.
func (o *order) obey(s Scenario) {
	pipe := os.NewFile(reportFile, "report")
	points := &pointCounter{killAt: o.KillAt, report: pipe}
	ctx, cancel := context.WithTimeout(context.Background(), childWithin)
	defer cancel()
	report := childReport{}
	e, err := newEnv(ctx, "act", o.URL, o.Values, s.Options, points)
	if err == nil {
		points.arm(true)
		_, err = runAct(ctx, s.Act, e)
		points.arm(false)
	}
	if err != nil {
		report.Error = err.Error()
	}
	report.Points = points.passed
	if e != nil {
		e.db.Close() // what it leaves open shows
	}
	if err := json.NewEncoder(pipe).Encode(report); err != nil {
		fmt.Fprintln(os.Stderr, "locktest: report:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runAct turns a panic of the act into an error.
func runAct(ctx context.Context, act Act, e *Env) (outcome string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.Join(err, fmt.Errorf("panic: %v", p))
		}
	}()
	return act(ctx, e)
}

// pointCounter counts the points that an act passes, and dies at one.
type pointCounter struct {
	mu     sync.Mutex
	armed  bool
	passed []string
	killAt int
	report *os.File
}

func (p *pointCounter) arm(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = on
}

func (p *pointCounter) send(what string)     { p.pass("before " + what) }
func (p *pointCounter) answered(what string) { p.pass("after " + what) }

// pass holds the lock while it dies, so that nothing else goes on meanwhile.
func (p *pointCounter) pass(point string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.armed {
		return
	}
	p.passed = append(p.passed, point)
	if len(p.passed) != p.killAt {
		return
	}
	if err := json.NewEncoder(p.report).Encode(childReport{Killed: point}); err != nil {
		fmt.Fprintln(os.Stderr, "locktest: report:", err)
		os.Exit(1)
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}
