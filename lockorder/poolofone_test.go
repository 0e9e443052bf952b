package lockorder_test

import (
	"context"
	"os"
	osexec "os/exec"
	"strings"
	"testing"
	"time"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// poolOfOneVariable, when it is set, gives one connection to every database that a test opens without a number of its own.
const poolOfOneVariable = "LOCKORDER_TEST_POOL_OF_ONE"

func onPoolOfOne() bool { return os.Getenv(poolOfOneVariable) != "" }

// rounds is how often a test of many rounds repeats: a fifth as often where the suite runs a second time.
func rounds(n int) int {
	if onPoolOfOne() {
		return max(1, n/5)
	}
	return n
}

// TestSuiteOnAPoolOfOne runs the tests of this package again, in a process of its own, on pools of one connection: a
// transaction that needed a second one would hang. A test that runs several transactions at once asks for its number. It
// runs beside no other test, since many of them measure time.
func TestSuiteOnAPoolOfOne(t *testing.T) {
	const bound = 2 * time.Minute
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bound+10*time.Second) // its own bound names the test that hangs
	defer cancel()
	suite := osexec.CommandContext(ctx, self, "-test.skip=^(TestSuite|TestMutants$)", "-test.timeout="+bound.String(), "-test.parallel=4", "-test.v")
	suite.Env = append(os.Environ(), poolOfOneVariable+"=1")
	out, err := suite.CombinedOutput()
	if err != nil {
		t.Fatalf("on a pool of one: %v\n%s", err, out)
	}
	if n := strings.Count(string(out), "\n--- PASS: "); n < 50 {
		t.Errorf("only %d tests ran on a pool of one:\n%s", n, out)
	}
}

// TestPoolOfOne looks at what the suite stands on: where a test asks for no number, a transaction that needed a second
// connection would get none.
func TestPoolOfOne(t *testing.T) {
	t.Parallel()
	db := open(t, pgtest.New(t))
	run(t, db, plain(), func(context.Context, *lockorder.Tx) error {
		second := plain()
		if second.Budget = 10 * time.Second; onPoolOfOne() {
			second.Budget = 100 * time.Millisecond
		}
		err := db.Run(t.Context(), second, nothing)
		if onPoolOfOne() {
			wantVerdict(t, err, lockorder.VerdictBusy)
			return nil
		}
		return err
	})
}
