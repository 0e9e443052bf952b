package lockorder_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// TestOpeningStopsAtBusyKey plays the three transactions: one holds A; the opening tries A and B and waits; a third
// takes B, and the first wants it too. Nothing deadlocks, since the opening holds nothing that comes after what it waits
// for.
func TestOpeningStopsAtBusyKey(t *testing.T) {
	t.Parallel()
	for _, kind := range []lockorder.Kind{lockorder.Plain, lockorder.Materializing} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			d := pgtest.New(t, pgtest.Setting("deadlock_timeout", "100ms"))
			db := open(t, d)
			look, first, third := d.Conn(t), d.Conn(t), d.Conn(t)
			keys := subscriptions(3)
			before, a, b := keys[0], keys[1], keys[2]

			exec(t, first, "BEGIN")
			exec(t, first, "SELECT pg_advisory_xact_lock($1)", a.Key())
			opened := start(func() error {
				return db.Run(t.Context(), lockorder.Spec{Path: "opening", Kind: kind, Keys: []lockorder.Lock{b, a, before}}, nothing)
			})
			until(t, "the opening waits for A", func() bool { return lockWaiters(t, look, a) == 1 })

			if got := lockState(t, look, 0, b); got != "" {
				t.Errorf("while the opening waits for A it is %q for B, which comes later", got)
			}
			if got := lockState(t, look, 0, before); got != "granted" {
				t.Errorf("while the opening waits for A it is %q for the key before it", got)
			}
			wantRendezvous := map[lockorder.Kind]string{lockorder.Plain: "", lockorder.Materializing: "granted"}[kind]
			if got := lockState(t, look, 0, rendezvous()); got != wantRendezvous {
				t.Errorf("while the opening waits for A the rendezvous is %q, want %q", got, wantRendezvous)
			}
			exec(t, third, "BEGIN")
			if !query[bool](t, third, "SELECT pg_try_advisory_xact_lock($1)", b.Key()) {
				t.Fatal("the third transaction cannot take B")
			}
			wants := start(func() error {
				_, err := first.Exec(context.Background(), "SELECT pg_advisory_xact_lock($1)", b.Key())
				return err
			})
			until(t, "the first waits for B", func() bool { return lockWaiters(t, look, b) == 1 })
			time.Sleep(250 * time.Millisecond) // a deadlock would be found after 100 ms; none is there to be signalled
			exec(t, third, "COMMIT")
			if err := receive(t, wants, "B"); err != nil {
				t.Errorf("the first transaction: %v", err)
			}
			exec(t, first, "COMMIT")
			if err := receive(t, opened, "the opening"); err != nil {
				t.Errorf("the opening: %v", err)
			}
		})
	}
}

// lockWaiters counts who waits for an advisory key.
func lockWaiters(t *testing.T, conn *pgx.Conn, l lockorder.Lock) int {
	t.Helper()
	return query[int](t, conn, `SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database AND d.datname = current_database()
		WHERE locktype = 'advisory' AND (classid::bigint << 32 | objid::bigint) = $1 AND NOT granted`, l.Key())
}

// TestPipelineOfTriesDeadlocks is the control: tries that go on past a busy key end the same scene in a deadlock.
func TestPipelineOfTriesDeadlocks(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t, pgtest.Deadlocks(), pgtest.Setting("deadlock_timeout", "100ms"))
	look, first, opening := d.Conn(t), d.Conn(t), d.Conn(t)
	keys := subscriptions(2)
	a, b := keys[0], keys[1]
	exec(t, first, "BEGIN")
	exec(t, first, "SELECT pg_advisory_xact_lock($1)", a.Key())

	batch := &pgx.Batch{}
	batch.Queue("BEGIN")
	batch.Queue("SELECT pg_try_advisory_xact_lock($1)", a.Key())
	batch.Queue("SELECT pg_try_advisory_xact_lock($1)", b.Key())
	if err := opening.SendBatch(t.Context(), batch).Close(); err != nil {
		t.Fatal(err)
	}
	opened := start(func() error {
		_, err := opening.Exec(context.Background(), "SELECT pg_advisory_xact_lock($1)", a.Key())
		return err
	})
	until(t, "the opening waits for A", func() bool { return lockWaiters(t, look, a) == 1 })
	_, firstErr := first.Exec(t.Context(), "SELECT pg_advisory_xact_lock($1)", b.Key())
	exec(t, first, "ROLLBACK") // lets the opening go on, where it was not the victim
	openErr := receive(t, opened, "the opening")
	if lockorder.SQLState(firstErr) != "40P01" && lockorder.SQLState(openErr) != "40P01" {
		t.Errorf("no deadlock: %v, %v", firstErr, openErr)
	}
}

// flights counts the round trips of connections: each run of writes that follows a read, or begins, is one.
type flights struct {
	mu    sync.Mutex
	n     int
	delay time.Duration // added to each flight
}

func (f *flights) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &flightConn{Conn: conn, flights: f, landed: true}, nil
}

func (f *flights) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

type flightConn struct {
	net.Conn
	*flights
	landed bool
}

func (c *flightConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	took := c.landed
	if took {
		c.n++
		c.landed = false
	}
	c.mu.Unlock()
	if took && c.delay > 0 {
		time.Sleep(c.delay)
	}
	return c.Conn.Write(b)
}

func (c *flightConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	c.landed = c.landed || n > 0
	c.mu.Unlock()
	return n, err
}

// through makes connections count their flights.
func (f *flights) through(o *lockorder.Options) {
	o.MaxConns = 1
	o.Configure = func(c *pgxpool.Config) { c.ConnConfig.DialFunc = f.dial }
}

// TestFlights counts round trips, with all statements prepared.
func TestFlights(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	var f flights
	db := open(t, d, f.through)
	conn := d.Conn(t)
	rows := pools(t, conn, 3)
	keys := subscriptions(3)
	update := func(ctx context.Context, tx *lockorder.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE core.pools SET name = name WHERE id = $1", identity(rows[0]))
		return err
	}
	tests := []struct {
		name string
		want int
		spec lockorder.Spec
		fn   func(ctx context.Context, tx *lockorder.Tx) error
	}{
		{"nothing", 2, plain(), nothing},
		{"one key and one update, materializing", 3, materializing(keys[0]), update},
		{"one key and one update, rule change", 3, ruleChange(keys[0]), update},
		{"many keys", 2, materializing(keys...), nothing},
		{"rows of one class", 3, materializing(keys[0]), func(ctx context.Context, tx *lockorder.Tx) error {
			return tx.Lock(ctx, rows...)
		}},
		{"rows of two classes", 4, materializing(keys[0]), func(ctx context.Context, tx *lockorder.Tx) error {
			_, err := tx.LockExisting(ctx, append(rows, lockorder.ParkedWorkRow("subscription", "sub_1"))...)
			return err
		}},
		{"a later key", 3, materializing(keys[0]), func(ctx context.Context, tx *lockorder.Tx) error {
			return tx.Lock(ctx, keys[1])
		}},
		{"what is held, asked for again", 3, materializing(keys[0]), func(ctx context.Context, tx *lockorder.Tx) error {
			if err := tx.Lock(ctx, rows...); err != nil {
				return err
			}
			return tx.Lock(ctx, rows[2], keys[0], rows[0])
		}},
		{"the time, twice", 3, plain(), func(ctx context.Context, tx *lockorder.Tx) error {
			if _, err := tx.Now(ctx); err != nil {
				return err
			}
			_, err := tx.Now(ctx)
			return err
		}},
		{"a failure", 2, plain(), func(context.Context, *lockorder.Tx) error { return context.Canceled }},
	}
	for _, test := range tests {
		var took []int
		for range 3 { // the first prepares
			before := f.count()
			if err := db.Run(t.Context(), test.spec, test.fn); err != nil && test.name != "a failure" {
				t.Fatalf("%s: %v", test.name, err)
			}
			took = append(took, f.count()-before)
		}
		if took[1] != test.want || took[2] != test.want {
			t.Errorf("%s: %d flights, want %d (the first time, preparing: %d)", test.name, took[1:], test.want, took[0])
		}
	}
}

// TestExecModes opens under every way in which pgx can be told to send statements.
func TestExecModes(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	rows := pools(t, d.Conn(t), 2)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		db := open(t, d, func(o *lockorder.Options) {
			o.Configure = func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }
		})
		for _, kind := range []lockorder.Kind{lockorder.Plain, lockorder.Materializing, lockorder.RuleChange} {
			spec := lockorder.Spec{Path: "mode", Kind: kind, Keys: subscriptions(2)}
			if err := db.Run(t.Context(), spec, func(ctx context.Context, tx *lockorder.Tx) error {
				return tx.Lock(ctx, rows...)
			}); err != nil {
				t.Errorf("%s, %s: %v", mode, kind, err)
			}
		}
	}
}

// TestManyKeys opens with as many keys as are allowed, and with one more.
func TestManyKeys(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d)
	look := d.Conn(t)
	keys := subscriptions(lockorder.MaxKeys + 1)
	run(t, db, plain(keys[1:]...), func(ctx context.Context, tx *lockorder.Tx) error {
		held := query[int](t, look, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = $1", int64(tx.PID()))
		if held != lockorder.MaxKeys {
			t.Errorf("%d keys are held, want %d", held, lockorder.MaxKeys)
		}
		return nil
	})
	wantTooMany := func(err error) {
		t.Helper()
		wantVerdict(t, err, lockorder.VerdictMisuse)
		wantText(t, err, lockorder.ErrTooManyKeys.Error())
	}
	wantTooMany(db.Run(t.Context(), plain(keys...), nothing))
	wantTooMany(db.Run(t.Context(), materializing(keys[1:]...), nothing))
	wantTooMany(db.Run(t.Context(), plain(keys[:lockorder.MaxKeys]...), func(ctx context.Context, tx *lockorder.Tx) error {
		return tx.Lock(ctx, keys[lockorder.MaxKeys])
	}))
	repeated := append(append([]lockorder.Lock{}, keys[1:]...), keys[1:]...)
	run(t, db, plain(repeated...), nothing)
}

// TestOpenRefuses opens databases that cannot be used, and reads the errors.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t, pgtest.Setting("deadlock_timeout", "2s"))
	for name, test := range map[string]struct {
		url  string
		opts lockorder.Options
		says string
	}{
		"a lock timeout below deadlock_timeout": {d.URL(), lockorder.Options{LockTimeout: 2 * time.Second}, "deadlock_timeout is 2s"},
		"a budget below deadlock_timeout":       {d.URL(), lockorder.Options{Budget: time.Second}, "deadlock_timeout is 2s"},
		"no URL":                                {"postgres://u:geheim@[::1", lockorder.Options{}, "cannot be read"},
		"a password that ends too soon":         {"postgres://u:x@geheim@127.0.0.1/d?sslmode=nope", lockorder.Options{}, "cannot be read"},
		"nobody listens":                        {fmt.Sprintf("postgres://u:geheim@127.0.0.1:%d/x", closedPort(t)), lockorder.Options{}, "cannot be reached"},
	} {
		db, err := lockorder.Open(t.Context(), test.url, test.opts)
		if err == nil {
			db.Close()
		}
		wantText(t, err, test.says)
		if err != nil && containsText(err, "geheim") {
			t.Errorf("%s: the error shows the password: %v", name, err)
		}
	}
}

// closedPort returns a port on which nobody listens.
func closedPort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
