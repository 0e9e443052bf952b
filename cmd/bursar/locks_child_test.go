package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/internal/lockview"
	"github.com/bursarhq/bursar/lockorder"
)

// lockChildEnv holds what a child of these tests does, as JSON. Such a child is this test binary as another process.
const lockChildEnv = "BURSAR_TEST_LOCK_CHILD"

// lockChild is a transaction in a process of its own: it takes its keys, then its rows, and says so; then it keeps them until
// its standard input ends.
type lockChild struct {
	URL      string
	Workflow string
	Path     string
	Kind     lockorder.Kind
	Keys     [][]string // each a class and its identity
	Rows     [][]string
	Hold     time.Duration // the bound of the exclusive rendezvous, where it is not the usual one
}

// runLockChild does what the environment asks of a child, if it does.
func runLockChild() (code int, is bool) {
	text := os.Getenv(lockChildEnv)
	if text == "" {
		return 0, false
	}
	var c lockChild
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		fmt.Println(err)
		return 1, true
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		cancel()
	}()
	if err := c.run(ctx); err != nil && ctx.Err() == nil {
		fmt.Println(err)
		return 1, true
	}
	return 0, true
}

func (c lockChild) run(ctx context.Context) error {
	db, err := lockorder.Open(ctx, c.URL, lockorder.Options{
		MaxConns: 1, Budget: time.Hour, RuleChangeBudget: time.Hour, LockTimeout: time.Hour, IdleTimeout: time.Hour,
		ExclusiveHold: c.Hold, Holder: lockview.Namer(c.Workflow),
	})
	if err != nil {
		return err
	}
	defer db.Close()
	return db.Run(ctx, lockorder.Spec{Path: c.Path, Kind: c.Kind, Keys: locksOf(c.Keys)}, func(ctx context.Context, tx *lockorder.Tx) error {
		if err := tx.Lock(ctx, locksOf(c.Rows)...); err != nil {
			return err
		}
		fmt.Println("holds")
		<-ctx.Done()
		return ctx.Err()
	})
}

func locksOf(texts [][]string) []lockorder.Lock {
	var locks []lockorder.Lock
	for _, t := range texts {
		class, err := lockorder.ClassNamed(t[0])
		if err != nil {
			panic(err)
		}
		locks = append(locks, lockorder.New(class, t[1:]...))
	}
	return locks
}

// start starts the child, which t's end ends.
func (c lockChild) start(t *testing.T) (said *bufio.Reader, stop func()) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	text, err := json.Marshal(c)
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), lockChildEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			_ = stdin.Close()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(stop)
	return bufio.NewReader(stdout), stop
}

// hold starts the child and waits until it has its locks.
func (c lockChild) hold(t *testing.T) (stop func()) {
	t.Helper()
	said, stop := c.start(t)
	line, err := said.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "holds", strings.TrimSpace(line))
	return stop
}
