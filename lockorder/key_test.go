package lockorder_test

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// Two workspaces that share a hashtext: the published pair.
var (
	workspaceA = uuid.MustParse("17963da0-ab4a-4574-8eca-202bc22ceb7d")
	workspaceB = uuid.MustParse("b1d30740-dd19-43ff-b650-978f27bfc618")
)

// sortLocks sorts keys of one class, or rows with an identity of one part, as transactions take them.
func sortLocks(locks []lockorder.Lock) {
	slices.SortFunc(locks, func(a, b lockorder.Lock) int {
		if a.Class().Kind == lockorder.Row {
			return strings.Compare(identity(a), identity(b))
		}
		return cmp.Compare(a.Key(), b.Key())
	})
}

var knownAnswers = []struct {
	lock lockorder.Lock
	text string
	key  int64
}{
	{lockorder.New(lockorder.Materialization), "bursar:materialization", -9104575358558129625},
	{lockorder.SubscriptionKey("sub_1PqRsT2eZvKYlo2C"), "bursar:subscription:sub_1PqRsT2eZvKYlo2C", -3665128543489699651},
	{lockorder.InvoiceKey("in_1PqRsT2eZvKYlo2C"), "bursar:invoice:in_1PqRsT2eZvKYlo2C", 1894564841501681177},
	{lockorder.ProductKey(uuid.MustParse("9b2f1c1e-1d1b-4c5e-9a43-2f7f5b0f7a10")), "bursar:product:9b2f1c1e-1d1b-4c5e-9a43-2f7f5b0f7a10", 6624483717101204389},
	{lockorder.WorkspaceKey(workspaceA), "bursar:workspace:17963da0-ab4a-4574-8eca-202bc22ceb7d", 8035307198156179396},
	{lockorder.WorkspaceKey(workspaceB), "bursar:workspace:b1d30740-dd19-43ff-b650-978f27bfc618", -148746545014421041},
	{lockorder.LifecycleKey(workspaceA), "bursar:lifecycle:17963da0-ab4a-4574-8eca-202bc22ceb7d", 81864751639425832},
	{lockorder.DesiredStateKey("c1", "organization", "a:b"), "bursar:desired-state:c1:organization:a%3Ab", 1302692274493701487},
	{lockorder.DesiredStateKey("c1", "organization:a", "b"), "bursar:desired-state:c1:organization%3Aa:b", 31119508865334223},
	{lockorder.DomainsKey(), "bursar:domains", 6052211708705085523},
	{lockorder.MigrationKey("bursar"), "bursar:migration:bursar", -2472991287482019171},
}

func TestKnownAnswers(t *testing.T) {
	t.Parallel()
	conn := pgtest.New(t).Conn(t)
	for _, known := range knownAnswers {
		if known.lock.Err() != nil || known.lock.Text() != known.text || known.lock.Key() != known.key {
			t.Errorf("%s has the text %q and the key %d, want %q and %d (%v)",
				known.lock, known.lock.Text(), known.lock.Key(), known.text, known.key, known.lock.Err())
		}
		sql := query[int64](t, conn, "SELECT core.lock_key($1, $2)", known.lock.Class().Name, parts(known.lock))
		if sql != known.key {
			t.Errorf("core.lock_key gives %d for %q, want %d", sql, known.text, known.key)
		}
	}
}

// parts is a lock's identity as a SQL array, empty rather than null.
func parts(l lockorder.Lock) []string { return append([]string{}, l.Identity()...) }

func TestIdentities(t *testing.T) {
	t.Parallel()
	if a, b := lockorder.DesiredStateKey("x", "a:b", "c"), lockorder.DesiredStateKey("x", "a", "b:c"); a.Key() == b.Key() {
		t.Error("the join of parts is ambiguous: (a:b, c) and (a, b:c) share a key")
	}
	if a, b := lockorder.DesiredStateKey("x", "a%3Ab", "c"), lockorder.DesiredStateKey("x", "a:b", "c"); a.Key() == b.Key() {
		t.Error("an escape written out and an escaped separator share a key")
	}
	upper, lower := lockorder.New(lockorder.Workspace, strings.ToUpper(workspaceA.String())), lockorder.WorkspaceKey(workspaceA)
	if upper.Err() != nil || upper.Key() != lower.Key() || upper.Text() != lower.Text() {
		t.Errorf("one UUID in two cases is two keys: %v", upper.Err())
	}
	zoned := lockorder.New(lockorder.Usage, workspaceA.String(), "k", "2026-01-02T03:00:00+02:00")
	if zoned.Err() != nil || zoned.Identity()[2] != "2026-01-02T01:00:00.000000Z" {
		t.Errorf("one instant in two zones is two locks: %v %v", zoned.Identity(), zoned.Err())
	}
}

func TestBadIdentities(t *testing.T) {
	t.Parallel()
	db := open(t, pgtest.New(t))
	stranger := *lockorder.Subscription
	bad := map[string]lockorder.Lock{
		"empty part":      lockorder.SubscriptionKey(""),
		"too few parts":   lockorder.New(lockorder.DesiredState, "a", "b"),
		"too many parts":  lockorder.New(lockorder.Domains, "a"),
		"not UTF-8":       lockorder.SubscriptionKey("sub_\xff"),
		"NUL":             lockorder.SubscriptionKey("sub_\x00"),
		"not a UUID":      lockorder.New(lockorder.Product, "9b2f1c1e"),
		"UUID in braces":  lockorder.New(lockorder.Product, "{9b2f1c1e-1d1b-4c5e-9a43-2f7f5b0f7a10}"),
		"not an instant":  lockorder.New(lockorder.Usage, workspaceA.String(), "k", "today"),
		"too fine a time": lockorder.New(lockorder.Usage, workspaceA.String(), "k", "2026-01-02T03:00:00.0000001Z"),
		"no class":        lockorder.New(nil, "a"),
		"a strange class": lockorder.New(&stranger, "sub_1"),
		"the zero Lock":   {},
	}
	for name, l := range bad {
		if l.Err() == nil {
			t.Errorf("%s: no error", name)
		}
		err := db.Run(t.Context(), plain(l), func(context.Context, *lockorder.Tx) error {
			t.Errorf("%s: the transaction opened", name)
			return nil
		})
		wantVerdict(t, err, lockorder.VerdictMisuse)
		run(t, db, plain(), func(ctx context.Context, tx *lockorder.Tx) error {
			for what, err := range map[string]error{"Lock": tx.Lock(ctx, l), "Require": tx.Require(l)} {
				if !errors.Is(err, lockorder.ErrForbidden) {
					t.Errorf("%s: %s answers %v", name, what, err)
				}
			}
			return nil // COMMIT says whether a statement failed meanwhile
		})
	}
	if _, err := lockorder.ClassNamed("sub"); err == nil || !strings.Contains(err.Error(), "subscription") {
		t.Errorf("an unknown class does not list the known ones: %v", err)
	}
}

// TestPublishedPair holds the keys of two workspaces that share a hashtext at once.
func TestPublishedPair(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := open(t, d, twoConns)
	if err := db.Run(t.Context(), plain(lockorder.WorkspaceKey(workspaceA)), func(context.Context, *lockorder.Tx) error {
		return db.Run(t.Context(), plain(lockorder.WorkspaceKey(workspaceB)), nothing)
	}); err != nil {
		t.Errorf("the two workspaces wait on each other: %v", err)
	}

	// The control: by hashtext they do.
	a, b := d.Conn(t), d.Conn(t)
	exec(t, a, "BEGIN")
	exec(t, a, "SELECT pg_advisory_xact_lock(hashtext($1))", workspaceA.String())
	exec(t, b, "BEGIN")
	if query[bool](t, b, "SELECT pg_try_advisory_xact_lock(hashtext($1))", workspaceB.String()) {
		t.Error("the control is wrong: the pair does not share a hashtext")
	}
}

// goKey derives a key as SQL callers name it: by family and parts.
func goKey(family string, parts []string) (int64, error) {
	class, err := lockorder.ClassNamed(family)
	if err != nil {
		return 0, err
	}
	if class.Kind == lockorder.Row {
		return 0, errors.New("a row class has no keys")
	}
	l := lockorder.New(class, parts...)
	return l.Key(), l.Err()
}

// FuzzLockKey holds core.lock_key to the Go derivation: the same numbers, and an error where the other has one.
func FuzzLockKey(f *testing.F) {
	conn := pgtest.New(f).Conn(f)
	for _, known := range knownAnswers {
		p := [3]string{}
		copy(p[:], known.lock.Identity())
		f.Add(known.lock.Class().Name, len(known.lock.Identity()), p[0], p[1], p[2])
	}
	f.Add("workspace", 1, "17963DA0-AB4A-4574-8ECA-202BC22CEB7D", "", "")
	f.Add("workspace", 1, "17963da0-ab4a-4574-8eca-202bc22ceb7d\n", "", "")
	f.Add("workspace", 1, "17963da0ab4a45748eca202bc22ceb7d", "", "")
	f.Add("workspace", 1, "urn:uuid:17963da0-ab4a-4574-8eca-202bc22ceb7d", "", "")
	f.Add("workspace", 1, "17963da0-ab4a-4574-8eca_202bc22ceb7d", "", "")
	f.Add("subscription", 0, "", "", "")
	f.Add("subscription", 1, "", "", "")
	f.Add("subscription", 1, "a\x00b", "", "")
	f.Add("subscription", 1, "a\xffb", "", "")
	f.Add("subscription", 1, "\xed\xa0\x80", "", "")
	f.Add("subscription", 2, "a", "b", "")
	f.Add("subscription", 1, "%:%25%3A", "", "")
	f.Add("subscription", 1, "žluťoučký \U0001F40E \u0301", "", "")
	f.Add("desired-state", 3, "\\", "'", "\"{},NULL")
	f.Add("desired-state", 3, "NULL", "a", "")
	f.Add("domains", 1, "a", "", "")
	f.Add("pool", 1, "17963da0-ab4a-4574-8eca-202bc22ceb7d", "", "")
	f.Add("materialization\n", 0, "", "", "")
	f.Add("", 0, "", "", "")
	f.Fuzz(func(t *testing.T, family string, n int, a, b, c string) {
		parts := []string{a, b, c}[:(n%4+4)%4] // three are the most that a family takes
		want, wantErr := goKey(family, parts)
		var got int64
		gotErr := conn.QueryRow(t.Context(), "SELECT core.lock_key($1, $2)", family, parts).Scan(&got)
		if (wantErr == nil) != (gotErr == nil) || wantErr == nil && got != want {
			t.Errorf("%q %q: Go gives %d (%v), SQL %d (%v)", family, parts, want, wantErr, got, gotErr)
		}
		if state := lockorder.SQLState(gotErr); gotErr != nil && state != "22023" && state != "22021" {
			t.Errorf("%q %q: SQL fails with %v, not with what is wrong with them", family, parts, gotErr)
		}
	})
}

// TestLockKeyProperty compares the two derivations over thousands of identities.
func TestLockKeyProperty(t *testing.T) {
	t.Parallel()
	conn := pgtest.New(t).Conn(t)
	var families []*lockorder.Class
	for _, c := range lockorder.Classes() {
		if c.Kind != lockorder.Row {
			families = append(families, c)
		}
	}
	text := rapid.StringOfN(rapid.OneOf(rapid.SampledFrom([]rune(":%25A3\\'\"{}, é\u0301漢\U0001F40E")), rapid.Rune().Filter(func(r rune) bool { return r != 0 })), 1, 40, -1)
	id := rapid.Custom(func(t *rapid.T) string {
		b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid")
		s := uuid.Must(uuid.FromBytes(b)).String()
		if rapid.Bool().Draw(t, "upper") {
			s = strings.ToUpper(s)
		}
		return s
	})
	compared := 0
	rapid.Check(t, func(t *rapid.T) {
		var locks []lockorder.Lock
		batch := &pgx.Batch{}
		for range 60 {
			class := rapid.SampledFrom(families).Draw(t, "family")
			identity := []string{}
			for _, p := range class.Identity {
				if p.Type == "uuid" {
					identity = append(identity, id.Draw(t, p.Name))
				} else {
					identity = append(identity, text.Draw(t, p.Name))
				}
			}
			l := lockorder.New(class, identity...)
			if l.Err() != nil {
				t.Fatal(l.Err())
			}
			locks = append(locks, l)
			batch.Queue("SELECT core.lock_key($1, $2)", class.Name, identity)
		}
		results := conn.SendBatch(context.Background(), batch)
		for _, l := range locks {
			var key int64
			if err := results.QueryRow().Scan(&key); err != nil || key != l.Key() {
				t.Errorf("%s: Go gives %d, SQL %d (%v)", l, l.Key(), key, err)
			}
		}
		if err := results.Close(); err != nil {
			t.Fatal(err)
		}
		compared += len(locks)
	})
	if compared < 5000 {
		t.Errorf("only %d identities were compared", compared)
	}
}

// TestFamiliesAgree compares the list of families in SQL with the classes in Go, each way.
func TestFamiliesAgree(t *testing.T) {
	t.Parallel()
	conn := pgtest.New(t).Conn(t)
	source := query[string](t, conn, "SELECT prosrc FROM pg_proc WHERE oid = 'core.lock_key(text, text[])'::regprocedure")
	var inSQL, inGo []string
	for _, when := range regexp.MustCompile(`WHEN (.*) THEN wanted`).FindAllStringSubmatch(source, -1) {
		for _, name := range regexp.MustCompile(`'([^']*)'`).FindAllStringSubmatch(when[1], -1) {
			inSQL = append(inSQL, name[1])
		}
	}
	for _, c := range lockorder.Classes() {
		if c.Kind != lockorder.Row {
			inGo = append(inGo, c.Name)
		}
	}
	slices.Sort(inSQL)
	slices.Sort(inGo)
	if !slices.Equal(inSQL, inGo) {
		t.Errorf("core.lock_key knows the families %v, the registry %v", inSQL, inGo)
	}
	if got := query[string](t, conn, "SELECT lock_derivation FROM core.deployment"); got != lockorder.Derivation {
		t.Errorf("the database says that keys are derived by %q, the package by %q", got, lockorder.Derivation)
	}
	if err := conn.QueryRow(t.Context(), "SELECT core.lock_key(NULL, '{}')").Scan(nil); lockorder.SQLState(err) != "22023" {
		t.Errorf("core.lock_key takes a null family: %v", err)
	}
	if err := conn.QueryRow(t.Context(), "SELECT core.lock_key('domains', NULL)").Scan(nil); lockorder.SQLState(err) != "22023" {
		t.Errorf("core.lock_key takes null parts: %v", err)
	}
	if err := conn.QueryRow(t.Context(), "SELECT core.lock_key('invoice', '{NULL}')").Scan(nil); lockorder.SQLState(err) != "22023" {
		t.Errorf("core.lock_key takes a null part: %v", err)
	}
}
