package locktest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/bursarhq/bursar/db"
	"github.com/bursarhq/bursar/lockorder"
)

// Act does something once. What it answers is compared between runs: a word on how it went, without ids that are made
// anew or times. An error fails the run, unless it says that trying again is right; a refusal that belongs to the act is an outcome.
type Act func(ctx context.Context, e *Env) (outcome string, err error)

// raw ends the application name of connections that lockorder knows nothing of.
const raw = " (raw)"

// Env is what an act or a set-up works with.
type Env struct {
	name   string
	url    string
	values map[string]string
	db     *lockorder.DB
	tap    tap // nil where nobody looks
}

// DB is the act's own handle on the database.
func (e *Env) DB() *lockorder.DB { return e.db }

// Client makes HTTP calls to what is outside. Each is a crash point before and after, and a step of an interleaving.
func (e *Env) Client() *http.Client {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.DisableKeepAlives = true // so that no connection outlives the act
	return &http.Client{Transport: tappedTransport{base, e.tap}, Timeout: 30 * time.Second}
}

// URL is where the database is, for set-ups that want a pool of their own.
func (e *Env) URL() string { return e.url }

// Conn is a new connection of its own, for acts that go past lockorder. The caller closes it.
func (e *Env) Conn(ctx context.Context) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(e.url)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = e.name + raw
	if e.tap != nil {
		config.DialFunc = tapDial(config.DialFunc, e.tap)
	}
	return pgx.ConnectConfig(ctx, config)
}

// Step is a step of an interleaving, and a crash point, that is no flight to the database: something is about to change outside.
func (e *Env) Step(what string) {
	if e.tap != nil {
		e.tap.send(what)
		e.tap.answered(what)
	}
}

// Set keeps a value under a name for the acts. Set-ups use it.
func (e *Env) Set(name, value string) { e.values[name] = value }

// Get returns a value that the set-up has kept. A name that it has not kept is a mistake of the test, and panics.
func (e *Env) Get(name string) string {
	value, ok := e.values[name]
	if !ok {
		panic(fmt.Sprintf("locktest: the set-up keeps no value called %q; it keeps %v", name, e.values))
	}
	return value
}

// newEnv opens the database for an act. Flights are shown to the tap, if there is one.
func newEnv(ctx context.Context, name, url string, values map[string]string, o lockorder.Options, seen tap) (*Env, error) {
	own := db.LockOptions()
	if o.NowSQL == "" {
		o.NowSQL = own.NowSQL
	}
	if o.Guard == "" {
		o.Guard, o.GuardState = own.Guard, own.GuardState
	}
	if o.MaxConns == 0 {
		o.MaxConns = 4
	}
	Watch(&o)
	configure := o.Configure
	o.Configure = func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["application_name"] = name
		// The pool would ping a connection that was idle for a second: on a slow machine an act would take other flights.
		c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
		if configure != nil {
			configure(c)
		}
		if seen != nil {
			c.ConnConfig.DialFunc = tapDial(c.ConnConfig.DialFunc, seen)
		}
	}
	opened, err := lockorder.Open(ctx, url, o)
	if err != nil {
		return nil, err
	}
	return &Env{name: name, url: url, values: maps.Clone(values), db: opened, tap: seen}, nil
}
