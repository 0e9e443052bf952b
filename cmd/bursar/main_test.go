package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/activities"
	"github.com/bursarhq/bursar/db"
	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/locktest"
	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

func TestMain(m *testing.M) {
	if code, is := runLockChild(); is {
		os.Exit(code)
	}
	lockOptions = watchedOptions
	locktest.Main(m, stopTemporal)
}

// watchedOptions are the product's, seen by the order graph.
func watchedOptions() lockorder.Options { return locktest.Watched(db.LockOptions()) }

const catalogFile = `
resource_keys:
  - {key: storage.gigabytes, kind: numeric}
  - {key: support.phone, kind: boolean}
sets:
  - {id: free, rules: {storage.gigabytes: 1}}
  - {id: gold, rules: {storage.gigabytes: 100, support.phone: true}}
products:
  - {id: free, name: Free, sets: [free]}
  - {id: gold, name: Gold membership, sets: [gold], stripe: {prices: [price_gold]}}
ladders:
  - {id: membership, name: Membership, tiers: [free, gold]}
organization_types:
  - {id: club, name: Club, default: free}
`

// shell runs commands as a process would, against a database of its own.
type shell struct {
	t    *testing.T
	env  map[string]string
	in   string
	tty  bool
	pool *pgxpool.Pool
}

func newShell(t *testing.T) *shell {
	t.Helper()
	database := pgtest.New(t)
	return &shell{t: t, env: map[string]string{"DATABASE_URL": database.URL()}, pool: database.Pool(t)}
}

// run returns the exit code and both streams.
func (s *shell) run(args ...string) (code int, out, err string) {
	var stdout, stderr bytes.Buffer
	a := newApp(strings.NewReader(s.in), &stdout, &stderr)
	a.getenv = func(name string) string { return s.env[name] }
	a.interactive = func() bool { return s.tty }
	code = a.run(s.t.Context(), args)
	return code, stdout.String(), stderr.String()
}

// must returns the output of a command that succeeds and has nothing to complain of.
func (s *shell) must(args ...string) string {
	s.t.Helper()
	code, out, err := s.run(args...)
	require.Zero(s.t, code, err)
	require.Empty(s.t, err)
	return out
}

// fails returns the complaint of a command that fails with that exit code and prints nothing else.
func (s *shell) fails(code int, args ...string) string {
	s.t.Helper()
	got, _, err := s.run(args...)
	require.Equal(s.t, code, got, err)
	require.True(s.t, strings.HasPrefix(err, "bursar: "), err)
	return err
}

func (s *shell) file(text string) string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "catalog.yaml")
	require.NoError(s.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func (s *shell) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), sql, args...)
	require.NoError(s.t, err)
}

var (
	moments = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`)
	uuids   = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
)

// steady replaces what differs from run to run.
func steady(out string) string {
	return uuids.ReplaceAllString(moments.ReplaceAllString(out, "(moment)"), "(uuid)")
}

// demo fills the house: a catalogue, the organisation acme, its customer and a subscription to gold.
func (s *shell) demo() {
	s.t.Helper()
	s.must("catalog", "apply", s.file(catalogFile), "--yes")
	s.organization("acme", "Acme Ltd", "club")
	s.must("customer", "link", "cus_1", "acme")
	s.subscription(func(ctx context.Context, tx *lockorder.Tx, act entitlements.Act, q entitlements.Subscription) error {
		_, err := entitlements.ConvergeSubscription(ctx, tx, act, q)
		return err
	})
}

// organization makes an organisation, without the workflow that the command has.
func (s *shell) organization(slug, name, kind string) {
	s.t.Helper()
	operator := &activities.Operator{DB: s.database()}
	_, err := operator.CreateOrganization(s.t.Context(), activities.NewOrganizationRequest{Slug: slug, Name: name, Type: kind})
	require.NoError(s.t, err)
}

func (s *shell) subscription(do func(context.Context, *lockorder.Tx, entitlements.Act, entitlements.Subscription) error) {
	s.t.Helper()
	db, err := lockorder.Open(s.t.Context(), s.env["DATABASE_URL"], watchedOptions())
	require.NoError(s.t, err)
	defer db.Close()
	org, err := entitlements.FindOrganization(s.t.Context(), db.Reader(), "acme")
	require.NoError(s.t, err)
	c, err := entitlements.LoadCatalogue(s.t.Context(), db.Reader())
	require.NoError(s.t, err)
	require.NoError(s.t, db.Run(s.t.Context(), lockorder.Spec{
		Path: "subscription-reconcile", Kind: lockorder.Materializing, Keys: []lockorder.Lock{lockorder.SubscriptionKey("sub_1")},
	}, func(ctx context.Context, tx *lockorder.Tx) error {
		if err := tx.Lock(ctx, lockorder.PoolRow(org.DefaultPool)); err != nil {
			return err
		}
		return do(ctx, tx, entitlements.Act{Name: "subscription-reconcile", Workflow: "subscription/sub_1"}, entitlements.Subscription{
			ID: "sub_1", Pool: org.DefaultPool, Items: []entitlements.Item{{ID: "si_1", Product: c.Products["gold"].ID, Quantity: 1}}})
	}))
}

// park parks a subscription that waits for a customer's link.
func (s *shell) park(subscription, customer string) {
	s.t.Helper()
	s.exec(`INSERT INTO stripe.parked_work (kind, object_id, reason, detail, subscription_id, waiting_customer, parked_at, last_tried_at)
		VALUES ('subscription', $1, 'unknown_customer', 'Customer ' || $2 || ' is linked to no organisation.', $1, $2, now(), now())`, subscription, customer)
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}
