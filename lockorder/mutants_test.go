package lockorder_test

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// runMutants plants each mutant and runs the tests that must catch it: go test ./lockorder -run TestMutants -v -args -mutants
var runMutants = flag.Bool("mutants", false, "plant each mutant and run the tests that must fail")

// mutant is a fault that some test must catch.
type mutant struct {
	name              string
	file, text, fault string // the text occurs once in the file; the fault stands in its place
	tests             string // a pattern of tests, of which one fails
}

var mutants = []mutant{
	{"sort removed", "open.go", "	slices.SortFunc(out, compare)\n", "", "TestDeclaredKeysAreSorted|TestAnyKeys"},
	{"repeats kept", "open.go", "return slices.CompactFunc(out, func(a, b Lock) bool { return compare(a, b) == 0 })", "return out", "TestAnyKeys"},
	{"ranks swapped", "key.go", "cmp.Compare(a.class.Rank, b.class.Rank)", "cmp.Compare(b.class.Rank, a.class.Rank)", "TestOrder|TestAnyKeys"},
	{"settings not local", "open.go", "set_config('lock_timeout', $1, true)", "set_config('lock_timeout', $1, false)", "TestSettings"},
	{"tries go on past a busy key", "open.go", `"CASE WHEN NOT %s($%d) THEN %d ELSE "`, `"CASE WHEN NOT %s($%d) AND false THEN %d ELSE "`, "TestOpeningStopsAtBusyKey"},
	{"SKIP LOCKED over a set", "row.go", "AND s.state <> '%s' OFFSET 0", "AND '%s' <> '' OFFSET 0", "TestRowsAreLockedInOrder"},
	{"lane off", "lane.go", "max(1, int(min(share, 1)*float64(conns)))", "1000", "TestLane"},
	{"place kept", "lane.go", "return func() { <-l }, nil", "return func() {}, nil", "TestLanePlaceIsGivenBack"},
	{"refused lock committed", "db.go", "if tx.lost != nil {", "if false {", "TestRefusedLockIsNotCommitted"},
	{"handed statements unguarded", "open.go", "if guard != \"\" {", "if false {", "TestHandedDoNotRunWhenBusy"},
	{"handed locks allowed", "handed.go", "errors.Join(checkLockless(sql), checkArguments(args))", "errors.Join(checkArguments(args))", "TestHandedFail"},
	{"COMMIT's tag unchecked", "tx.go", `tag.String() == "COMMIT"`, `tag.String() != ""`, "TestVerdicts"},
	{"rendezvous upgraded for a class that shares its key", "open.go", "return k.key == keys[0].key", "return false", "TestOneKeyForAll|TestRendezvousShared"},
	{"shared key waited for", "lock.go", "tx.shared != nil && *tx.shared == k.key", "tx.shared == nil", "TestOneKeyForAll|TestRendezvousShared"},
	{"may wait without a place", "maywait.go", "	if !tx.exclusive() {\n		_, leave, err := tx.mayWait()", "	if false {\n		_, leave, err := tx.mayWait()", "TestMayWait"},
	{"COMMIT unbounded", "tx.go", "context.WithDeadline(context.WithoutCancel(ctx), tx.deadline)", "context.WithTimeout(context.WithoutCancel(ctx), endTimeout)", "TestSlowCommit"},
	{"guard's state ignored", "handed.go", "return SQLState(err) == o.GuardState", "return err != nil", "TestGuards"},
	{"rollback on the cancelled context", "tx.go", "	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)\n	defer cancel()\n	for range 3 {",
		"	ctx, cancel := context.WithTimeout(ctx, endTimeout)\n	defer cancel()\n	for range 3 {", "TestCancelAtAnyInstant|TestSettings"},
	{"budget does not bound the wait for a connection", "db.go", "db.pool.Acquire(ctx)", "db.pool.Acquire(context.WithoutCancel(ctx))", "TestCancelledWaiters"},
	{"lock time-out at the budget's end", "db.go", "timedOut && time.Until(tx.deadline) < briefWait", "false", "TestBudget"},
	{"rendezvous not announced", "open.go", "CASE WHEN got > 0 THEN $4", "CASE WHEN got > 300 THEN $4", "TestRendezvousSetting"},
	{"nested open allowed", "db.go", "	if ctx.Value(openMark{}) != nil {", "	if false {", "TestNested"},
	{"lock after the time was read", "lock.go", "if !tx.now.IsZero() {", "if false {", "TestOrder"},
	{"upgrade allowed", "open.go", "	case Materialization:\n", "	case nil:\n", "TestOrder|TestSpecs"},
	{"waits under the exclusive rendezvous", "lock.go", "	case tx.exclusive():\n", "	case false:\n", "TestNothingWaitsUnderTheExclusiveRendezvous"},
	{"exclusive hold not budgeted", "turns.go", "until.Before(tx.deadline) {", "until.Before(time.Time{}) {", "TestHandedBudgets"},
	{"no pause between turns", "turns.go", "least := max(turn, leastPause)", "least := max(turn/10, time.Millisecond)", "TestTurnsAndPauses"},
	{"busy row ends the rule change, not the turn", "turns.go", "case t.over, refused != nil", "case refused != nil", "TestBusyRowEndsTheTurn"},
}

// TestMutants checks that each mutant still has its place; with -mutants it plants each, and some named test must fail.
func TestMutants(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		path := filepath.Join(here, m.file)
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(source), m.text); n != 1 {
			t.Errorf("%s: its text occurs %d times in %s, want once: %q", m.name, n, m.file, m.text)
			continue
		}
		if *runMutants {
			t.Run(m.name, func(t *testing.T) { plant(t, path, strings.Replace(string(source), m.text, m.fault, 1), m.tests) })
		}
	}
}

// plant runs tests with another source in the place of a file, which is not touched, and fails the test when they pass.
func plant(t *testing.T, path, source, tests string) {
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{changed: []byte(source), overlay: list} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	began := time.Now()
	out, err := osexec.CommandContext(ctx, "go", "test", "-overlay", overlay, "-count", "1", "-timeout", "2m", "-run", "^("+tests+")$", ".", "-rapid.nofailfile").CombinedOutput()
	text := string(out)
	switch {
	case err == nil:
		t.Errorf("not caught:\n%s", text)
	case !strings.Contains(text, "--- FAIL") && !strings.Contains(text, "panic:"):
		t.Errorf("it did not run: %v\n%s", err, text)
	default:
		t.Logf("caught in %s: %s", time.Since(began).Round(time.Second), firstFailure(text))
	}
}

// firstFailure is the first line of a test's output that names a failed test.
func firstFailure(text string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, "--- FAIL") || strings.HasPrefix(line, "panic:") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}
