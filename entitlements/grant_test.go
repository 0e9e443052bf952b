package entitlements_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/lockorder"
)

// grantAct is an act on grants.
type grantAct interface {
	Do(ctx context.Context, tx *lockorder.Tx, act entitlements.Act) (entitlements.GrantOutcome, error)
}

// grantPaths are the paths of the acts, as package activities names them.
func grantPath(do grantAct) string {
	switch do.(type) {
	case entitlements.IssueGrant:
		return "grant-issue"
	case entitlements.ExtendGrant:
		return "grant-extend"
	case entitlements.ManageGrant:
		return "grant-manage"
	case entitlements.RevokeGrant:
		return "grant-revoke"
	}
	return "grant-resume"
}

func (h *house) tryGrant(ctx context.Context, workflow string, do grantAct) (out entitlements.GrantOutcome, err error) {
	path := grantPath(do)
	err = h.db.Run(ctx, lockorder.Spec{Path: path, Kind: lockorder.Materializing}, func(ctx context.Context, tx *lockorder.Tx) (err error) {
		out, err = do.Do(ctx, tx, entitlements.Act{Name: path, Workflow: workflow})
		return err
	})
	return out, err
}

func (h *house) granted(do grantAct) entitlements.GrantOutcome {
	h.t.Helper()
	out, err := h.tryGrant(h.t.Context(), "test/1", do)
	require.NoError(h.t, err)
	return out
}

// issue grants a product to an organisation until a time, nil for never.
func (h *house) issue(org, product string, until *time.Time) uuid.UUID {
	h.t.Helper()
	id := uuid.New()
	h.granted(entitlements.IssueGrant{ID: id, Organization: org, Product: product, Quantity: 1, Until: until})
	return id
}

// sweep does what is due of every grant, as the activity does, and returns what it did, by grant.
func (h *house) sweep() map[uuid.UUID]string {
	h.t.Helper()
	did := map[uuid.UUID]string{}
	for _, list := range []func(context.Context, lockorder.Querier, entitlements.DueGrant, int) ([]entitlements.DueGrant, error){
		entitlements.EndingGrants, entitlements.BeginningGrants,
	} {
		due, err := list(h.t.Context(), h.db.Reader(), entitlements.DueGrant{}, 1000)
		require.NoError(h.t, err)
		for _, d := range due {
			did[d.ID] = h.sweepOne(d)
		}
	}
	return did
}

func (h *house) sweepOne(due entitlements.DueGrant) (did string) {
	h.t.Helper()
	require.NoError(h.t, h.db.Run(h.t.Context(), lockorder.Spec{Path: "grant-expire", Kind: lockorder.Materializing},
		func(ctx context.Context, tx *lockorder.Tx) (err error) {
			did, err = entitlements.SweepGrant(ctx, tx, entitlements.Act{Name: "grant-expire", Workflow: "grant-expiry"}, due)
			return err
		}))
	return did
}

// passTo moves the bounds of a grant and its position so far into the past that its end has just come; a bound is moved by the
// same as the other.
func (h *house) passEnd(grant uuid.UUID) {
	h.t.Helper()
	h.shift(grant, `(SELECT core.clock() - ends_at FROM core.grants WHERE id = $1)`)
}

// passBeginning is passEnd for the beginning.
func (h *house) passBeginning(grant uuid.UUID) {
	h.t.Helper()
	h.shift(grant, `(SELECT core.clock() - starts_at FROM core.grants WHERE id = $1)`)
}

func (h *house) shift(grant uuid.UUID, by string) {
	h.t.Helper()
	var interval string
	require.NoError(h.t, h.pool.QueryRow(h.t.Context(), `SELECT `+by+`::text`, grant).Scan(&interval))
	for _, sql := range []string{
		`UPDATE core.positions SET starts_at = starts_at + $2::interval, ends_at = ends_at + $2::interval WHERE grant_id = $1 AND status <> 'ended'`,
		`UPDATE core.grants SET starts_at = starts_at + $2::interval, ends_at = ends_at + $2::interval WHERE id = $1`,
	} {
		_, err := h.pool.Exec(h.t.Context(), sql, grant, interval)
		require.NoError(h.t, err)
	}
}

// line returns the states of a grant's line, in its order.
func (h *house) line(grant uuid.UUID) string {
	h.t.Helper()
	all, err := entitlements.GrantLine(h.t.Context(), h.db.Reader(), grant)
	require.NoError(h.t, err)
	states := make([]string, len(all))
	for i, g := range all {
		states[i] = g.State
	}
	return strings.Join(states, " ")
}

func in(d time.Duration) *time.Time {
	t := time.Now().Add(d).UTC().Truncate(time.Second)
	return &t
}

func TestAGrantTakesItsPlaceOnTheLadder(t *testing.T) {
	h := newHouse(t)
	acme := h.org("acme", "club")
	require.Equal(t, "free default active", h.holds(acme.DefaultPool))

	silver := h.issue("acme", "silver", in(time.Hour))
	require.Equal(t, "active", h.line(silver))
	require.Equal(t, "silver grant active", h.holds(acme.DefaultPool), "the floor gives way")
	require.Equal(t, "speed=5 storage=10", h.has(acme.DefaultPool))

	gold := h.issue("acme", "gold", nil)
	require.Equal(t, "replaced", h.line(silver), "what has conferred and is displaced is replaced")
	lower := h.issue("acme", "silver", nil)
	require.Equal(t, "waiting", h.line(lower), "what never conferred waits")
	require.Equal(t, "speed=20 storage=100 support=true", h.has(acme.DefaultPool))
	disk := h.issue("acme", "disk", nil)
	require.Equal(t, "active", h.line(disk), "off a ladder everything confers")

	out := h.granted(entitlements.RevokeGrant{Grant: gold})
	require.Equal(t, entitlements.GrantRevoked, out.Grant.State)
	require.Equal(t, 3, out.Entitlements)
	require.Equal(t, "active", h.line(silver), "it resumes: it began first")
	require.Equal(t, "waiting", h.line(lower))
	h.granted(entitlements.RevokeGrant{Grant: silver})
	require.Equal(t, "active", h.line(lower))
	h.granted(entitlements.RevokeGrant{Grant: lower})
	require.Equal(t, "disk grant active, free default active", h.holds(acme.DefaultPool), "the floor returns")

	again := h.issue("acme", "gold", nil)
	require.Equal(t, "active", h.line(again), "a revoked grant can be followed by a new one")
}

func TestASubscriptionAndAGrantShareALadder(t *testing.T) {
	h := newHouse(t)
	acme := h.org("acme", "club")
	h.converge("sub_1", acme.DefaultPool, item{"it_1", "gold", 1})
	silver := h.issue("acme", "silver", nil)
	require.Equal(t, "waiting", h.line(silver))
	h.suspend("sub_1")
	require.Equal(t, "waiting", h.line(silver), "what is suspended keeps its place")
	require.Empty(t, h.has(acme.DefaultPool))
	h.end("sub_1")
	require.Equal(t, "active", h.line(silver))
	h.converge("sub_2", acme.DefaultPool, item{"it_2", "gold", 1})
	require.Equal(t, "replaced", h.line(silver))
}

func TestIssuingAgainChangesNothing(t *testing.T) {
	h := newHouse(t)
	acme := h.org("acme", "club")
	issue := entitlements.IssueGrant{ID: uuid.New(), Organization: "acme", Product: "gold", Quantity: 2, Until: in(time.Hour), Note: "for a year's work"}
	first := h.granted(issue)
	require.False(t, first.Repeated)
	require.Equal(t, "for a year's work", first.Grant.Note)
	before := h.rows(acme.DefaultPool)
	again := h.granted(issue)
	require.True(t, again.Repeated)
	require.Equal(t, first.Grant, again.Grant)
	require.Equal(t, before, h.rows(acme.DefaultPool))

	issue.Quantity = 3
	_, err := h.tryGrant(t.Context(), "", issue)
	require.ErrorIs(t, err, entitlements.ErrExists, "another grant of that id")
}

func TestAGrantThatBeginsLater(t *testing.T) {
	h := newHouse(t)
	acme := h.org("acme", "club")
	id := uuid.New()
	h.granted(entitlements.IssueGrant{ID: id, Organization: "acme", Product: "gold", Quantity: 1, From: in(time.Hour), Until: in(2 * time.Hour)})
	require.Equal(t, "waiting", h.line(id))
	require.Equal(t, "free default active, gold grant active", h.holds(acme.DefaultPool), "the floor stays until then")
	require.Equal(t, "speed=1 storage=1", h.has(acme.DefaultPool))
	require.Empty(t, h.sweep())

	h.passBeginning(id)
	require.Equal(t, "speed=1 storage=1", h.has(acme.DefaultPool), "the tables wait for the sweep")
	report, err := entitlements.Effective(t.Context(), h.db.Reader(), acme.ID, time.Time{})
	require.NoError(t, err)
	require.Equal(t, "gold", report.Lines[0].Reasons[0].Product, "reads do not")
	require.Equal(t, map[uuid.UUID]string{id: entitlements.SweptBegun}, h.sweep())
	require.Equal(t, "active", h.line(id))
	require.Equal(t, "gold grant active", h.holds(acme.DefaultPool))
	require.Equal(t, "speed=20 storage=100 support=true", h.has(acme.DefaultPool))
	require.Empty(t, h.sweep(), "it has begun")

	// One that begins and ends between two sweeps never confers.
	h.passEnd(id)
	require.Equal(t, map[uuid.UUID]string{id: entitlements.SweptExpired}, h.sweep())
	missed := uuid.New()
	h.granted(entitlements.IssueGrant{ID: missed, Organization: "acme", Product: "gold", Quantity: 1, From: in(time.Hour), Until: in(2 * time.Hour)})
	h.passEnd(missed)
	require.Equal(t, map[uuid.UUID]string{missed: entitlements.SweptExpired}, h.sweep())
	require.Equal(t, "speed=1 storage=1", h.has(acme.DefaultPool))
}

func TestExpiry(t *testing.T) {
	h := newHouse(t)
	acme := h.org("acme", "club")
	lower := h.issue("acme", "silver", nil)
	gold := h.issue("acme", "gold", in(time.Hour))
	require.Equal(t, "replaced", h.line(lower))
	require.Empty(t, h.sweep())

	h.passEnd(gold)
	report, err := entitlements.Effective(t.Context(), h.db.Reader(), acme.ID, time.Time{})
	require.NoError(t, err)
	for _, l := range report.Lines {
		require.Equal(t, "silver", l.Reasons[0].Product, "%s: no read is given what has ended, whether or not a sweep has run", l.Key)
	}
	overdue, err := entitlements.ListGrants(t.Context(), h.db.Reader(), entitlements.GrantFilter{Overdue: true})
	require.NoError(t, err)
	require.Len(t, overdue, 1)

	require.Equal(t, map[uuid.UUID]string{gold: entitlements.SweptExpired}, h.sweep())
	require.Equal(t, "expired", h.line(gold))
	require.Equal(t, "active", h.line(lower))
	require.Equal(t, "speed=5 storage=10", h.has(acme.DefaultPool))
	require.Equal(t, "true", h.one(`SELECT (p.ended_at = g.ends_at AND g.closed_at > g.ends_at AND p.end_reason = 'expired')::text
		FROM core.positions p JOIN core.grants g ON g.id = p.grant_id WHERE g.id = $1`, gold), "it was held until its end, and closed later")
	require.Equal(t, entitlements.SweptNothing, h.sweepOne(entitlements.DueGrant{ID: gold, Pool: acme.DefaultPool}), "a second time changes nothing")
	require.Equal(t, "active", h.line(h.issue("acme", "gold", nil)), "an expired grant can be followed by a new one")

	orphan := h.issue("", "gold", in(time.Hour))
	h.passEnd(orphan)
	require.Equal(t, map[uuid.UUID]string{orphan: entitlements.SweptExpired}, h.sweep(), "one that is for nobody expires too")
}

func TestExtending(t *testing.T) {
	h := newHouse(t)
	acme := h.org("acme", "club")
	first := uuid.New()
	h.granted(entitlements.IssueGrant{ID: first, Organization: "acme", Product: "silver", Quantity: 3, Until: in(time.Hour), Note: "trial"})
	rival := h.issue("acme", "silver", nil)
	require.Equal(t, "waiting", h.line(rival))
	before := h.one(`SELECT string_agg(ctid || ' ' || xmin, ' ') FROM core.pool_entitlements WHERE pool_id = $1`, acme.DefaultPool)

	second := uuid.New()
	extend := entitlements.ExtendGrant{ID: second, Grant: first, Until: in(2 * time.Hour)}
	out := h.granted(extend)
	require.Equal(t, "extended active", h.line(first))
	require.Equal(t, int64(3), out.Grant.Quantity)
	require.Equal(t, "trial", out.Grant.Note)
	require.Zero(t, out.Entitlements)
	require.Equal(t, before, h.one(`SELECT string_agg(ctid || ' ' || xmin, ' ') FROM core.pool_entitlements WHERE pool_id = $1`, acme.DefaultPool))
	require.Equal(t, "waiting", h.line(rival), "the extension has the place of what it extends")
	require.True(t, h.granted(extend).Repeated)

	third := h.granted(entitlements.ExtendGrant{ID: uuid.New(), Grant: second, Note: "for good"}).Grant
	require.Nil(t, third.EndsAt)
	require.Equal(t, "for good", third.Note)
	require.Equal(t, "extended extended active", h.line(second))

	gold := h.issue("acme", "gold", in(time.Hour))
	require.Equal(t, "extended extended replaced", h.line(first))
	waiting := h.issue("acme", "silver", in(time.Hour))
	later := h.granted(entitlements.ExtendGrant{ID: uuid.New(), Grant: waiting, Until: in(3 * time.Hour)}).Grant
	require.Equal(t, "waiting", later.State, "what waits can be extended")
	h.granted(entitlements.RevokeGrant{Grant: gold})
	require.Equal(t, "extended extended active", h.line(first))
	h.granted(entitlements.RevokeGrant{Grant: first})
	require.Equal(t, "extended extended revoked", h.line(second), "any grant of the line stands for its head")
	require.Equal(t, "1", h.one(`SELECT count(DISTINCT position_id)::text FROM core.effective_positions($1, core.clock()) WHERE confers`, acme.DefaultPool))
}

func TestManaging(t *testing.T) {
	h := newHouse(t)
	acme, tern := h.org("acme", "club"), h.org("tern", "club")
	first := h.issue("acme", "disk", nil)
	five := int64(5)
	out := h.granted(entitlements.ManageGrant{ID: uuid.New(), Grant: first, Quantity: &five, Until: in(time.Hour)})
	require.Equal(t, "speed=1 storage=36", h.has(acme.DefaultPool))
	require.NotNil(t, out.Grant.EndsAt)
	out = h.granted(entitlements.ManageGrant{ID: uuid.New(), Grant: first, Until: in(time.Minute)})
	require.Equal(t, five, out.Grant.Quantity)
	out = h.granted(entitlements.ManageGrant{ID: uuid.New(), Grant: out.Grant.ID, Forever: true})
	require.Nil(t, out.Grant.EndsAt)
	require.Equal(t, "extended extended extended active", h.line(first))

	orphan := h.issue("", "gold", nil)
	require.Equal(t, "waiting", h.line(orphan))
	assign := entitlements.ManageGrant{ID: uuid.New(), Grant: orphan, Organization: "tern"}
	out = h.granted(assign)
	require.Equal(t, "tern", out.Grant.Organization)
	require.Equal(t, "extended active", h.line(orphan))
	require.Equal(t, "speed=20 storage=100 support=true", h.has(tern.DefaultPool))
	require.True(t, h.granted(assign).Repeated)
	require.Equal(t, "true", h.one(`SELECT (a.starts_at = a.issued_at)::text FROM core.grants a WHERE id = $1`, assign.ID), "nobody held it before")
	h.refuses(entitlements.ManageGrant{ID: uuid.New(), Grant: orphan, Organization: "acme"}, "is for tern")
	h.refuses(entitlements.ManageGrant{ID: uuid.New(), Grant: orphan, Organization: "tern"}, "is like that already")
	h.refuses(entitlements.ManageGrant{ID: uuid.New(), Grant: orphan, Organization: "terne"}, "near it: tern")
}

func TestResuming(t *testing.T) {
	h := newHouse(t)
	acme := h.org("acme", "club")
	gold := h.issue("acme", "gold", nil)
	require.Zero(t, h.granted(entitlements.ResumeGrant{Grant: gold}).Entitlements)
	_, err := h.pool.Exec(t.Context(), `UPDATE core.pool_entitlements SET numeric_value = 3 WHERE pool_id = $1 AND resource_key = 'speed'`, acme.DefaultPool)
	require.NoError(t, err)
	require.Equal(t, 1, h.granted(entitlements.ResumeGrant{Grant: gold}).Entitlements, "it repairs")
	require.Equal(t, "speed=20 storage=100 support=true", h.has(acme.DefaultPool))
	h.refuses(entitlements.ResumeGrant{Grant: h.issue("", "gold", nil)}, "names no organisation")
}

// refuses expects an act to be refused, both before it starts and when it is done, with a text, and to change nothing.
func (h *house) refuses(do grantAct, text string) {
	h.t.Helper()
	before := h.one(`SELECT string_agg(g.ctid || ' ' || g.xmin, ' ' ORDER BY id) FROM core.grants g`)
	err := do.(interface {
		Check(context.Context, lockorder.Querier) error
	}).Check(h.t.Context(), h.db.Reader())
	require.ErrorContains(h.t, err, text, "before it starts")
	_, err = h.tryGrant(h.t.Context(), "test/other", do)
	require.ErrorContains(h.t, err, text, "when it is done")
	require.Equal(h.t, before, h.one(`SELECT string_agg(g.ctid || ' ' || g.xmin, ' ' ORDER BY id) FROM core.grants g`))
}

func TestBadGrantsAreRefused(t *testing.T) {
	h := newHouse(t)
	h.org("acme", "club")
	good := entitlements.IssueGrant{ID: uuid.New(), Organization: "acme", Product: "gold", Quantity: 1}
	for text, spoil := range map[string]func(*entitlements.IssueGrant){
		"the quantity is 0; it takes 1 to 1000000":   func(g *entitlements.IssueGrant) { g.Quantity = 0 },
		"the quantity is -1;":                        func(g *entitlements.IssueGrant) { g.Quantity = -1 },
		"the quantity is 1000001;":                   func(g *entitlements.IssueGrant) { g.Quantity = 1_000_001 },
		"the end comes after the beginning":          func(g *entitlements.IssueGrant) { g.From, g.Until = in(2*time.Hour), in(time.Hour) },
		"is past; give one that is to come":          func(g *entitlements.IssueGrant) { g.Until = in(-time.Hour) },
		`no organisation is called "acne"`:           func(g *entitlements.IssueGrant) { g.Organization = "acne" },
		`no product is called "golf"; near it: gold`: func(g *entitlements.IssueGrant) { g.Product = "golf" },
		"the note has 1001 characters":               func(g *entitlements.IssueGrant) { g.Note = strings.Repeat("é", 1001) },
		"no text that can be stored":                 func(g *entitlements.IssueGrant) { g.Note = "a\x00b" },
		"the grant has no id":                        func(g *entitlements.IssueGrant) { g.ID = uuid.Nil },
	} {
		bad := good
		spoil(&bad)
		h.refuses(bad, text)
	}
	require.NoError(t, good.Check(t.Context(), h.db.Reader()))

	first := h.issue("acme", "gold", in(time.Hour))
	endless := h.issue("acme", "silver", nil)
	extend := func(change func(*entitlements.ExtendGrant)) entitlements.ExtendGrant {
		e := entitlements.ExtendGrant{ID: uuid.New(), Grant: first, Until: in(2 * time.Hour)}
		change(&e)
		return e
	}
	h.refuses(extend(func(e *entitlements.ExtendGrant) { e.Until = in(time.Minute) }), "an extension ends later")
	h.refuses(extend(func(e *entitlements.ExtendGrant) { e.Grant = endless }), "has no end, so it cannot be extended")
	h.refuses(extend(func(e *entitlements.ExtendGrant) { e.ID = first }), "cannot go on from itself")
	h.refuses(extend(func(e *entitlements.ExtendGrant) { e.ID = endless }), "exists already")
	h.refuses(extend(func(e *entitlements.ExtendGrant) { e.Grant = uuid.New() }), "bursar grant list shows them")
	h.refuses(extend(func(e *entitlements.ExtendGrant) { e.Grant = uuid.Nil }), "no grant is named")
	second := h.granted(extend(func(*entitlements.ExtendGrant) {})).Grant.ID
	h.refuses(extend(func(*entitlements.ExtendGrant) {}), "was extended already: grant "+second.String())
	h.refuses(extend(func(e *entitlements.ExtendGrant) { e.Grant, e.ID = second, first }), "exists already")

	h.refuses(entitlements.ManageGrant{ID: uuid.New(), Grant: first}, "nothing is to be changed")
	h.refuses(entitlements.ManageGrant{ID: uuid.New(), Grant: first, Forever: true, Until: in(time.Hour)}, "and never")
	h.refuses(entitlements.ManageGrant{ID: uuid.New(), Grant: first, Until: in(-time.Minute)}, "past")
	none := int64(0)
	h.refuses(entitlements.ManageGrant{ID: uuid.New(), Grant: first, Quantity: &none}, "the quantity is 0")

	h.granted(entitlements.RevokeGrant{Grant: first})
	require.True(t, h.granted(entitlements.RevokeGrant{Grant: first}).Repeated, "the same workflow again")
	for _, do := range []grantAct{entitlements.RevokeGrant{Grant: first}, entitlements.ResumeGrant{Grant: first},
		entitlements.ExtendGrant{ID: uuid.New(), Grant: second, Until: in(3 * time.Hour)}, entitlements.ManageGrant{ID: uuid.New(), Grant: first, Forever: true}} {
		h.refuses(do, "was revoked at ")
		h.refuses(do, "by grant-revoke (workflow test/1); issue a new one")
	}
	due := h.issue("acme", "gold", in(time.Hour))
	h.passEnd(due)
	h.refuses(entitlements.RevokeGrant{Grant: due}, "has ended, at ")
	h.refuses(extend(func(e *entitlements.ExtendGrant) { e.Grant = due }), "has ended, at ")
}
