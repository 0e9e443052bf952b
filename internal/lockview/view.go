package lockview

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bursarhq/bursar/lockorder"
)

// Look reads who holds what and who waits for whom, and names it.
func Look(ctx context.Context, q lockorder.Querier) (Snapshot, error) {
	snapshot, _, err := look(ctx, q)
	return snapshot, err
}

func look(ctx context.Context, q lockorder.Querier) (Snapshot, *namer, error) {
	m, err := readMeta(ctx, q)
	if err != nil {
		return Snapshot{}, nil, err
	}
	rows, err := readSessions(ctx, q)
	if err != nil {
		return Snapshot{}, nil, err
	}
	snapshot := Snapshot{At: time.Now().UTC(), Database: m.database, Sessions: build(rows)}
	if len(rows) > 0 {
		snapshot.At = rows[0].At.UTC()
	}
	hidden := 0
	for _, s := range snapshot.Sessions {
		if s.Hidden {
			hidden++
		}
		if s.PID == 0 {
			if s.Prepared, err = readPrepared(ctx, q); err != nil {
				return Snapshot{}, nil, err
			}
		}
	}
	names := &namer{q: q, meta: m}
	if hidden > 0 && !m.seesAll {
		names.notes = append(names.notes, fmt.Sprintf("What %s, of other roles, is hidden from the role %s: since when, in which state, with which statement, and which row is waited for. Mend: GRANT pg_read_all_stats TO %s;",
			do(hidden), m.role, pgx.Identifier{m.role}.Sanitize()))
	}
	if err := names.name(ctx, snapshot.Sessions); err != nil {
		return Snapshot{}, nil, fmt.Errorf("the locks cannot be named: %w", err)
	}
	snapshot.arrange()
	snapshot.Notes = names.notes
	return snapshot, names, nil
}

// do is "1 session does", "2 sessions do".
func do(n int) string {
	if n == 1 {
		return "1 session does"
	}
	return fmt.Sprintf("%d sessions do", n)
}

// arrange makes the chains, and the advice, which depends on them.
func (s *Snapshot) arrange() {
	s.Chains = chains(s.Sessions)
	if s.Chains == nil {
		s.Chains = []*Link{}
	}
	waitedFor := map[int]bool{}
	for _, session := range s.Sessions {
		if session.Waits != nil {
			for _, pid := range session.Waits.On {
				waitedFor[pid] = true
			}
		}
	}
	for _, session := range s.Sessions {
		session.Advice = advise(session, s.At, waitedFor[session.PID])
	}
}

// LookAt is Look for one organisation, named by its slug or id, or by a Stripe customer or subscription of its own: the
// chains in which a lock or a workflow of its stands, whole, and other sessions with one. It returns the slug.
func LookAt(ctx context.Context, q lockorder.Querier, organization string) (Snapshot, string, error) {
	snapshot, names, err := look(ctx, q)
	if err != nil {
		return Snapshot{}, "", err
	}
	slug, err := names.organization(ctx, organization)
	if err != nil {
		return Snapshot{}, "", err
	}
	return snapshot.about(slug), slug, nil
}

// organization finds the slug of an organisation.
func (n *namer) organization(ctx context.Context, name string) (string, error) {
	asked := subject{"organization", name}
	switch {
	case strings.HasPrefix(name, "cus_"):
		asked.class = "customer"
	case strings.HasPrefix(name, "sub_"):
		asked.class = "subscription"
	default:
		asked.identity = strings.ToLower(name)
	}
	found, err := n.lookUp(ctx, map[subject]bool{asked: true})
	switch {
	case err != nil:
		return "", fmt.Errorf("looking for the organisation: %w", err)
	case found[asked].organization != "":
		return found[asked].organization, nil
	case len(n.notes) > 0 && n.off:
		return "", fmt.Errorf("the organisation cannot be looked up. %s", n.notes[len(n.notes)-1])
	case asked.class != "organization":
		return "", fmt.Errorf("%s %s leads to no organisation; bursar customer list shows what is linked", asked.class, name)
	}
	return "", fmt.Errorf("no organisation is called %q; bursar org list shows them", name)
}

// about keeps what concerns an organisation.
func (s Snapshot) about(slug string) Snapshot {
	kept := s
	kept.Chains, kept.Sessions = []*Link{}, []*Session{}
	in := map[int]bool{}
	var mark func(*Link)
	mark = func(l *Link) {
		in[l.PID] = true
		for _, b := range l.Behind {
			mark(b)
		}
	}
	for _, l := range s.Chains {
		if l.concerns(slug) {
			kept.Chains = append(kept.Chains, l)
			mark(l)
		}
	}
	for _, session := range s.Sessions {
		if in[session.PID] || session.concerns(slug) {
			kept.Sessions = append(kept.Sessions, session)
		}
	}
	return kept
}

func (l *Link) concerns(slug string) bool {
	if l.Session.concerns(slug) {
		return true
	}
	for _, b := range l.Behind {
		if b.concerns(slug) {
			return true
		}
	}
	return false
}

func (s *Session) concerns(slug string) bool {
	concerned := s.Organization == slug
	each([]*Session{s}, func(_ *Session, l *Lock) { concerned = concerned || l.Organization == slug })
	return concerned
}

// Explanation is what is known of one key.
type Explanation struct {
	Key
	// Lock is what the key is of: its owner says whether that is known.
	Lock Lock `json:"lock"`
	// Serializes and Why are the class's, empty where there is none.
	Serializes string `json:"serializes,omitempty"`
	Why        string `json:"why,omitempty"`
	// Holders and Waiters are who has it and who waits for it now.
	Holders []*Session `json:"holders"`
	Waiters []*Session `json:"waiters"`
	Notes   []string   `json:"notes,omitempty"`
}

// Explain tells what a 64-bit key is of, and who holds it and waits for it. A key that nothing names and nobody has may be
// of an identity that no table holds, or another application's: nobody can tell, and Lock.Owner is "".
func Explain(ctx context.Context, q lockorder.Querier, number int64) (Explanation, error) {
	snapshot, names, err := look(ctx, q)
	if err != nil {
		return Explanation{}, err
	}
	e := Explanation{Key: *newKey(number), Holders: []*Session{}, Waiters: []*Session{}}
	e.Lock = Lock{Key: &e.Key}
	is := func(l Lock) bool { return l.Key != nil && l.Key.Number == number }
	for _, s := range snapshot.Sessions {
		for _, l := range s.Holds {
			if is(l) {
				e.Holders = append(e.Holders, s)
				e.Lock.Owner = l.Owner
			}
		}
		if s.Waits != nil && is(s.Waits.For) {
			e.Waiters = append(e.Waiters, s)
			e.Lock.Owner = s.Waits.For.Owner
		}
	}
	found, err := names.names(ctx, []int64{number}, snapshot.Sessions)
	if err != nil {
		return Explanation{}, err
	}
	if named, ok := found[number]; ok {
		e.Lock.be(named)
		e.Serializes, e.Why = named.Class().Serializes, named.Class().Why
		whose, err := names.lookUp(ctx, map[subject]bool{e.Lock.subject(): true})
		if err != nil {
			return Explanation{}, err
		}
		k := whose[e.Lock.subject()]
		e.Lock.Organization, e.Lock.Label = k.organization, k.label
	}
	e.Notes = names.notes
	return e, nil
}
