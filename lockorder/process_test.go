package lockorder_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	osexec "os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// The environment of a child: what it does, where, and its idle bound.
const (
	childMode = "LOCKORDER_TEST_CHILD"
	childURL  = "LOCKORDER_TEST_URL"
	childIdle = "LOCKORDER_TEST_IDLE"
)

// awaited is the key that a child waits for.
var awaited = lockorder.SubscriptionKey("sub_awaited")

// child is this test binary as another client of the database. It prints the process id of its backend and then does
// nothing until it is killed. Its standard input ends with its parent: then it exits.
func child(mode string) {
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		os.Exit(0)
	}()
	err := func() error {
		ctx := context.Background()
		if mode == "raw" { // waits for the key without any bound
			conn, err := pgx.Connect(ctx, os.Getenv(childURL))
			if err != nil {
				return err
			}
			fmt.Println(conn.PgConn().PID())
			_, err = conn.Exec(ctx, fmt.Sprintf("BEGIN; SELECT pg_advisory_xact_lock(%d)", awaited.Key()))
			return err
		}
		idle, err := time.ParseDuration(os.Getenv(childIdle))
		if err != nil {
			return err
		}
		db, err := lockorder.Open(ctx, os.Getenv(childURL), lockorder.Options{
			MaxConns: 1, Budget: time.Hour, RuleChangeBudget: time.Hour, ExclusiveHold: time.Hour, LockTimeout: time.Hour, IdleTimeout: idle, Pooled: throughPooler(),
		})
		if err != nil {
			return err
		}
		if mode == "wait" { // its one connection is known before it waits
			var pid uint32
			if err := db.Reader().QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
				return err
			}
			fmt.Println(pid)
			return db.Run(ctx, lockorder.Spec{Path: "child", Kind: lockorder.Plain, Keys: []lockorder.Lock{awaited}}, nothing)
		}
		return db.Run(ctx, lockorder.Spec{Path: "child", Kind: lockorder.RuleChange}, func(ctx context.Context, tx *lockorder.Tx) error {
			if mode == "hold" {
				fmt.Println(tx.PID())
			}
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	fmt.Println(err)
	os.Exit(1)
}

// startChild starts a child, and returns its process and its backend's id.
func startChild(t *testing.T, d *pgtest.DB, mode string, idle time.Duration) (*os.Process, uint32) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	url := urlOf(t, d)
	if mode == "raw" {
		url = d.URL()
	}
	cmd := osexec.Command(self)
	cmd.Env = append(os.Environ(), childMode+"="+mode, childURL+"="+url, childIdle+"="+idle.String())
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	var pid uint32
	if _, scanErr := fmt.Sscan(line, &pid); err != nil || scanErr != nil {
		t.Fatalf("the child said %q (%v)", strings.TrimSpace(line), err)
	}
	return cmd.Process, pid
}

func signalTo(t *testing.T, p *os.Process, s syscall.Signal) {
	t.Helper()
	if err := p.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// TestStoppedClient stops a client that holds the exclusive rendezvous.
func TestStoppedClient(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d)
	look := d.Conn(t)
	const idle = 700 * time.Millisecond
	process, pid := startChild(t, d, "hold", idle)
	signalTo(t, process, syscall.SIGSTOP)
	stopped := time.Now()
	if got := lockState(t, look, pid, rendezvous()); got != "granted" {
		t.Fatalf("the child's rendezvous is %q", got)
	}
	run(t, db, ruleChange(), nothing)
	if took := time.Since(stopped); took > idle+time.Second {
		t.Errorf("the stopped client was cut off after %s, its idle bound is %s", took, idle)
	}

	// The control: with a bound of an hour it is not.
	process, pid = startChild(t, d, "hold", time.Hour)
	signalTo(t, process, syscall.SIGSTOP)
	spec := ruleChange()
	spec.Budget = idle + 1500*time.Millisecond
	wantVerdict(t, db.Run(t.Context(), spec, nothing), lockorder.VerdictBusy)
	if got := lockState(t, look, pid, rendezvous()); got != "granted" {
		t.Errorf("the control is wrong: the child's rendezvous is %q", got)
	}
}

// TestKilledWaiter kills a client that waits for a key, behind which everyone else queues.
func TestKilledWaiter(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	look, holder := d.Conn(t), d.Conn(t)
	exec(t, holder, "BEGIN")
	exec(t, holder, "SELECT pg_advisory_xact_lock_shared($1)", awaited.Key())
	queued := func(pid uint32) bool { return lockState(t, look, pid, awaited) == "waiting" }

	process, pid := startChild(t, d, "wait", 10*time.Second)
	until(t, "the child waits", func() bool { return queued(pid) })
	signalTo(t, process, syscall.SIGKILL)
	killed := time.Now()
	sharer := d.Conn(t)
	exec(t, sharer, "BEGIN")
	exec(t, sharer, "SELECT pg_advisory_xact_lock_shared($1)", awaited.Key())
	exec(t, sharer, "ROLLBACK")
	if took := time.Since(killed); took > 2*time.Second {
		t.Errorf("the killed waiter left the queue after %s", took)
	}
	if queued(pid) {
		t.Error("the killed waiter is still in the queue")
	}

	// The control: without client_connection_check_interval it stays.
	process, pid = startChild(t, d, "raw", 0)
	until(t, "the child waits", func() bool { return queued(pid) })
	signalTo(t, process, syscall.SIGKILL)
	exec(t, sharer, "SET lock_timeout = 2500")
	if _, err := sharer.Exec(t.Context(), "SELECT pg_advisory_lock_shared($1)", awaited.Key()); lockorder.SQLState(err) != "55P03" {
		t.Errorf("the control is wrong: the key behind the killed waiter: %v", err)
	}
	if !queued(pid) {
		t.Error("the control is wrong: the killed waiter has left the queue")
	}
	exec(t, look, "SELECT pg_terminate_backend($1)", int64(pid))
}
