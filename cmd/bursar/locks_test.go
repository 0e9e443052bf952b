package main

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/internal/lockview"
	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// lockStage is a database with the organisation acme, its pool and its subscription, and a shell for a role that has
// pg_read_all_stats and nothing else.
type lockStage struct {
	*shell
	d      *pgtest.DB
	poolID string
}

const (
	// acmeSubscription is stored, and its key is negative; newSubscription is not stored, and its key is negative too.
	acmeSubscription = "sub_1PqRsT2eZvKYlo2C"
	newSubscription  = "sub_new2"
)

func newLockStage(t *testing.T) *lockStage {
	t.Helper()
	s := &lockStage{shell: &shell{t: t}, d: pgtest.New(t)}
	conn := s.d.Conn(t)
	for _, sql := range []string{
		`INSERT INTO core.organization_types (slug, name) VALUES ('club', 'Club')`,
		`WITH org AS (INSERT INTO core.organizations (slug, name, type_id) SELECT 'acme', 'Acme', id FROM core.organization_types RETURNING id)
		 INSERT INTO core.pools (organization_id, name, is_default) SELECT id, 'default', true FROM org`,
		`INSERT INTO stripe.customers (id, organization_id, linked_at, linked_by) SELECT 'cus_1', id, now(), 'operator' FROM core.organizations`,
		`INSERT INTO stripe.subscriptions (id, version, customer_id, status, stripe_created_at, reconciled_at)
		 VALUES ('` + acmeSubscription + `', 1, 'cus_1', 'active', now(), now())`,
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT id::text FROM core.pools`).Scan(&s.poolID))
	s.env = map[string]string{"DATABASE_URL": s.watcher()}
	return s
}

// watcher makes a role that may log in and has pg_read_all_stats, and returns its URL.
func (s *lockStage) watcher() string {
	s.t.Helper()
	admin, err := pgx.Connect(s.t.Context(), s.d.AdminURL())
	require.NoError(s.t, err)
	name := "watcher_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	_, err = admin.Exec(s.t.Context(), fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD 'watch' IN ROLE pg_read_all_stats`, name))
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		_, err := admin.Exec(context.Background(), "DROP ROLE "+name)
		require.NoError(s.t, err)
		require.NoError(s.t, admin.Close(context.Background()))
	})
	u, err := url.Parse(s.d.URL())
	require.NoError(s.t, err)
	u.User = url.UserPassword(name, "watch")
	return u.String()
}

// child is a transaction in a process of its own.
func (s *lockStage) child(workflow, path string, kind lockorder.Kind, subscription string, rows ...string) lockChild {
	c := lockChild{URL: s.d.URL(), Workflow: workflow, Path: path, Kind: kind}
	if subscription != "" {
		c.Keys = [][]string{{"subscription", subscription}}
	}
	for _, id := range rows {
		c.Rows = append(c.Rows, []string{"pool", id})
	}
	return c
}

// other is another application's session, that runs the statements and stays; the last may wait.
func (s *lockStage) other(application string, statements ...string) {
	s.t.Helper()
	conn := s.d.Conn(s.t)
	for i, sql := range append([]string{"SET application_name = '" + application + "'"}, statements...) {
		if i < len(statements) {
			_, err := conn.Exec(s.t.Context(), sql)
			require.NoError(s.t, err)
			continue
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = conn.Exec(context.Background(), sql) // ends when its connection is cancelled
		}()
		s.t.Cleanup(func() { _ = conn.PgConn().CancelRequest(context.Background()); <-done })
	}
}

// until looks until as many sessions wait.
func (s *lockStage) until(waiting int) lockview.Snapshot {
	s.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		snapshot := decode[lockview.Snapshot](s.t, s.must("locks", "--json"))
		n, _ := snapshot.Waiting()
		if n == waiting {
			return snapshot
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%d sessions wait, not %d:\n%s", n, waiting, s.must("locks"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

var changing = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`), "(moment)"},
	{regexp.MustCompile(`\d\d:\d\d:\d\dZ`), "(time)"},
	{regexp.MustCompile(`\b\d+(\.\d)? s\b( at the latest)?`), "(while)"},
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "(uuid)"},
	{regexp.MustCompile(`pid \d+|terminate_backend\(\d+\)|(?m)^\d+ +`), "(pid) "},
	{regexp.MustCompile(`^\S+ at`), "(database) at"},
}

// still replaces what differs from look to look.
func still(out string) string {
	for _, c := range changing {
		out = c.what.ReplaceAllString(out, c.with)
	}
	return out
}

// TestLocksNamesAChainOfWaits has three processes wait in a chain, one of them for a row, a rule change that waits for the
// exclusive rendezvous behind them, and another application beside them; and looks as a role that may only watch.
func TestLocksNamesAChainOfWaits(t *testing.T) {
	t.Parallel()
	s := newLockStage(t)
	require.Regexp(t, ` at \S+ \S+: nobody holds a lock, and nobody waits\.\n$`, s.must("locks"))
	for _, id := range []string{acmeSubscription, newSubscription} {
		require.Negative(t, lockorder.SubscriptionKey(id).Key(), id)
	}

	s.child("subscription/"+acmeSubscription, "subscription-reconcile", lockorder.Materializing, acmeSubscription, s.poolID).hold(t)
	s.child("subscription/"+newSubscription, "subscription-reconcile", lockorder.Materializing, newSubscription, s.poolID).start(t)
	s.until(1)
	s.child("cmd/parked retry", "subscription-park", lockorder.Plain, newSubscription).start(t)
	s.until(2)
	s.other("invoicer", `SELECT pg_advisory_lock(-123456789), pg_advisory_lock(5, -7)`, `SELECT 1`)
	s.other("invoicer 2", `SELECT pg_advisory_lock(-123456789)`)
	s.until(3)
	// It waits in turns; a look that meets one sees it behind both who hold the rendezvous.
	s.child("act/9b2f1c1e-1d1b-4c5e-9a43-2f7f5b0f7a10", "catalog-apply", lockorder.RuleChange, "").start(t)
	snapshot := s.until(4)

	session := sessionsByName(snapshot)
	first := session["subscription/"+acmeSubscription+" · subscription-reconcile"]
	second := session["subscription/"+newSubscription+" · subscription-reconcile"]
	third := session["cmd/parked retry · subscription-park"]
	change := session["act/9b2f1c1e-1d1b-4c5e-9a43-2f7f5b0f7a10 · catalog-apply"]
	require.Len(t, snapshot.Sessions, 6, "%v", session)
	require.NotNil(t, first)
	require.NotNil(t, second)
	require.NotNil(t, third)
	require.NotNil(t, change)

	names := func(locks ...lockview.Lock) (texts []string) {
		for _, l := range locks {
			texts = append(texts, l.String())
		}
		return texts
	}
	row := "pool " + s.poolID + " (acme, pool default)"
	shared, exclusive := "materialization (the rendezvous), shared", "materialization (the rendezvous), exclusive"
	require.ElementsMatch(t, []string{shared, "subscription " + acmeSubscription + " (acme)", row}, names(first.Holds...))
	require.Nil(t, first.Waits)
	require.Equal(t, "idle in transaction", first.State)
	require.NotNil(t, first.Since)
	require.Contains(t, first.Advice, "temporal workflow show --workflow-id subscription/"+acmeSubscription)
	require.Equal(t, []string{"activity ReconcileSubscription"}, first.By)

	require.ElementsMatch(t, []string{shared, "subscription " + newSubscription}, names(second.Holds...))
	require.Equal(t, row, second.Waits.For.String())
	require.Equal(t, []int{first.PID}, second.Waits.On)

	require.Empty(t, third.Holds)
	require.Equal(t, "subscription "+newSubscription, third.Waits.For.String())
	require.Equal(t, lockorder.SubscriptionKey(newSubscription).Key(), third.Waits.For.Key.Number)
	require.Equal(t, []int{second.PID}, third.Waits.On)

	require.Equal(t, exclusive, change.Waits.For.String())
	require.ElementsMatch(t, []int{first.PID, second.PID}, change.Waits.On)
	require.Contains(t, change.Advice, "turns")

	invoicer := session["another application: invoicer"]
	require.ElementsMatch(t, []string{"key -123456789 (4294967295/4171510507) of another application, exclusive", "key pair (5, -7) of another application, exclusive"}, names(invoicer.Holds...))
	require.Equal(t, lockview.OwnerOther, session["another application: invoicer 2"].Waits.For.Owner)

	var out string
	require.Eventually(t, func() bool { out = s.must("locks"); return strings.Contains(out, "catalog-apply") }, 15*time.Second, 20*time.Millisecond)
	require.Equal(t, `(database) at (moment): 6 sessions with locks; 4 wait, the longest for (while) so far.

subscription/sub_1PqRsT2eZvKYlo2C · subscription-reconcile, (pid)`+" "+`
│ holds materialization (the rendezvous), shared
│       pool (uuid) (acme, pool default)
│       subscription sub_1PqRsT2eZvKYlo2C (acme)
│ open  (while), since (time); idle in transaction for (while); activity ReconcileSubscription
│ last  locks rows
│ → (advice)
├─ waits (while) for pool (uuid) (acme, pool default)
│  subscription/sub_new2 · subscription-reconcile, (pid)`+" "+`
│  │ holds subscription sub_new2
│  │       materialization (the rendezvous), shared
│  │ open  (while), since (time); activity ReconcileSubscription
│  │ → (advice)
│  └─ waits (while) for subscription sub_new2
│     cmd/parked retry · subscription-park, (pid)`+" "+`
│       open  (while), since (time); activity ParkSubscription
│       → (advice)
└─ waits (while) for materialization (the rendezvous), exclusive
   act/(uuid) · catalog-apply, (pid)`+" "+`
     open  (while), since (time); bursar catalog apply
     also  waits for (pid)`+" "+`
     → (advice)

another application: invoicer, (pid) , role bursar_test, from 127.0.0.1
│ holds key -123456789 (4294967295/4171510507) of another application, exclusive
│       key pair (5, -7) of another application, exclusive
│ last  SELECT 1
│ → (advice)
└─ waits (while) for key -123456789 (4294967295/4171510507) of another application, exclusive
   another application: invoicer 2, (pid) , role bursar_test, from 127.0.0.1
     open  (while), since (time)
     → (advice)
`, regexp.MustCompile(`→ .*`).ReplaceAllString(still(out), "→ (advice)"))

	// Each of them by its number.
	explained := s.must("locks", "explain", fmt.Sprint(lockorder.SubscriptionKey(newSubscription).Key()))
	require.Contains(t, explained, "bursar:subscription:"+newSubscription)
	require.Contains(t, explained, "held by       subscription/"+newSubscription)
	require.Contains(t, explained, "awaited by    cmd/parked retry")
	require.Contains(t, s.must("locks", "explain", "-123456789"), "another application's: nobody of Bursar's has it")
	require.Contains(t, s.must("locks", "explain", "--json", "4294967295/4171510507"), `"number": -123456789`)

	// One organisation's chain, whole.
	for _, name := range []string{"acme", "cus_1", acmeSubscription} {
		about := s.must("locks", "--org", name)
		require.Contains(t, about, "cmd/parked retry")
		require.NotContains(t, about, "invoicer")
		require.Contains(t, about, " of what concerns acme")
	}
	require.Contains(t, s.fails(1, "locks", "--org", "acne"), `no organisation is called "acne"; bursar org list shows them`)
	require.Contains(t, s.fails(1, "locks", "--org", "sub_9"), "subscription sub_9 leads to no organisation")
}

// TestLocksUnderTheExclusiveRendezvous has a rule change hold the rendezvous, and a materializing transaction wait.
func TestLocksUnderTheExclusiveRendezvous(t *testing.T) {
	t.Parallel()
	s := newLockStage(t)
	change := s.child("cmd/catalog apply", "catalog-apply", lockorder.RuleChange, "")
	change.Hold = time.Hour
	stop := change.hold(t)
	s.child("subscription/"+acmeSubscription, "subscription-reconcile", lockorder.Materializing, acmeSubscription).start(t)
	held := sessionsByName(s.until(1))
	holder, waiter := held["cmd/catalog apply · catalog-apply"], held["subscription/"+acmeSubscription+" · subscription-reconcile"]
	require.Equal(t, "materialization (the rendezvous), exclusive", holder.Holds[0].String())
	require.Equal(t, "materialization (the rendezvous), shared", waiter.Waits.For.String())
	require.Equal(t, []int{holder.PID}, waiter.Waits.On)
	require.NotEmpty(t, holder.Advice)
	explained := s.must("locks", "explain", "2175143155/308163111")
	require.Contains(t, explained, "is            materialization (the rendezvous)\n")
	require.Contains(t, explained, "awaited by    subscription/"+acmeSubscription)

	// Once it is gone the waiter holds the rendezvous shared. A rule change that waits keeps the next one in the queue.
	stop()
	s.until(0)
	s.other("act/1#catalog-apply", `BEGIN`, fmt.Sprintf(`SELECT pg_advisory_xact_lock(%d)`, lockorder.New(lockorder.Materialization).Key()))
	s.until(1)
	s.child("cmd/org create", "organization-create", lockorder.Materializing, "").start(t)
	snapshot := s.until(2)
	queued := sessionsByName(snapshot)["cmd/org create · organization-create"]
	require.True(t, queued.Waits.Queued)
	require.Len(t, snapshot.Chains, 1)
	require.Equal(t, queued.PID, snapshot.Chains[0].Behind[0].Behind[0].Process)
	require.Contains(t, s.must("locks"), "stands in the queue")
}

func sessionsByName(s lockview.Snapshot) map[string]*lockview.Session {
	m := map[string]*lockview.Session{}
	for _, one := range s.Sessions {
		m[one.Name()] = one
	}
	return m
}

// TestLocksWatch watches until it is interrupted: frame after frame, and one document a line for a program.
func TestLocksWatch(t *testing.T) {
	t.Parallel()
	s := newLockStage(t)
	s.child("subscription/"+acmeSubscription, "subscription-reconcile", lockorder.Materializing, acmeSubscription).hold(t)
	for _, args := range [][]string{{"locks", "--watch", "100ms"}, {"locks", "--watch=100ms", "--json"}} {
		ctx, interrupt := context.WithCancel(t.Context())
		out, lines := newLineCounter(4)
		a := newApp(strings.NewReader(""), out, out)
		a.getenv = func(name string) string { return s.env[name] }
		code := make(chan int)
		go func() { code <- a.run(ctx, args) }()
		select {
		case <-lines:
		case <-time.After(20 * time.Second):
			t.Fatal("it printed too little")
		}
		interrupt()
		require.Zero(t, <-code, "an interrupt is no failure")
		text := out.String()
		require.NotContains(t, text, "bursar: ")
		if len(args) == 2+1 && args[2] == "--json" {
			for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
				require.Len(t, decode[lockview.Snapshot](t, line).Sessions, 1)
			}
			continue
		}
		require.Contains(t, text, "HOLDS")
		require.NotContains(t, text, "\x1b", "no terminal: nothing is redrawn")
	}
	require.Contains(t, s.fails(2, "locks", "--watch=1ms"), "give an interval of 100ms or more")
	require.Contains(t, s.fails(2, "locks", "--watch", "soon"), `there is no command "bursar locks soon"`)
	require.Contains(t, s.fails(2, "locks", "5s"), `there is no command "bursar locks 5s"`)
}

// lineCounter keeps what is written, and closes a channel at its nth line.
type lineCounter struct {
	mu      sync.Mutex
	text    bytes.Buffer
	left    int
	reached chan struct{}
}

func newLineCounter(n int) (*lineCounter, <-chan struct{}) {
	c := &lineCounter{left: n, reached: make(chan struct{})}
	return c, c.reached
}

func (c *lineCounter) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.left
	c.left -= bytes.Count(p, []byte("\n"))
	if before > 0 && c.left <= 0 {
		close(c.reached)
	}
	return c.text.Write(p)
}

func (c *lineCounter) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// TestLocksOnATerminal redraws in place, cuts what does not fit, and ends with a signal.
func TestLocksOnATerminal(t *testing.T) {
	t.Parallel()
	frame := "one\ntwo\nthree\nfour\nfive\nsix\n"
	require.Equal(t, "\x1b[Hone\x1b[K\ntwo\x1b[K\nthree\x1b[K\nfour\x1b[K\nfive\x1b[K\nsix\x1b[K\nevery 2s; Ctrl-C ends\x1b[K\n\x1b[J", redrawn(frame, 0, 2*time.Second))
	require.Equal(t, redrawn(frame, 0, 2*time.Second), redrawn(frame, 8, 2*time.Second), "it fits")
	cut := redrawn(frame, 6, 2*time.Second)
	require.Contains(t, cut, "three\x1b[K\nfour\x1b[K\n2 lines more below: make the window taller, or leave out --watch; every 2s")
	require.NotContains(t, cut, "five")
	require.LessOrEqual(t, strings.Count(cut, "\n"), 5, "one less than the height: the cursor stands below")
}

// TestLocksWhereThereIsNoDatabase tells what to do.
func TestLocksWhereThereIsNoDatabase(t *testing.T) {
	t.Parallel()
	s := &shell{t: t, env: map[string]string{}}
	require.Contains(t, s.fails(1, "locks"), "DATABASE_URL is not set")
	s.env["DATABASE_URL"] = "postgres://someone:hunter2@127.0.0.1:1/none"
	got := s.fails(1, "locks")
	require.Contains(t, got, "look at DATABASE_URL")
	require.NotContains(t, got, "hunter2")
	s.env["DATABASE_URL"] = pgtest.NewEmpty(t).URL()
	require.Contains(t, s.must("locks"), "nobody holds a lock, and nobody waits.")
}
