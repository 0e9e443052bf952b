package lockview

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/bursarhq/bursar/lockorder"
)

// namer finds the names of keys, and whose the things are.
type namer struct {
	q     lockorder.Querier
	meta  meta
	notes []string
	// off says why nothing is looked up in the database: it was noted already.
	off bool
}

// names answers the identity of each key that leads to one. The lists are asked in turn: the fixed ones, the tables, then
// what the sessions say of themselves; a name counts only when its hash is the key.
func (n *namer) names(ctx context.Context, keys []int64, sessions []*Session) (map[int64]lockorder.Lock, error) {
	names := map[int64]lockorder.Lock{}
	var asked []int64
	for _, key := range keys {
		if l, ok := fixed[key]; ok {
			names[key] = l
		} else {
			asked = append(asked, key)
		}
	}
	if err := n.identities(ctx, asked, names); err != nil {
		return nil, err
	}
	for _, candidate := range candidates(sessions) {
		if _, known := names[candidate.Key()]; !known {
			names[candidate.Key()] = candidate
		}
	}
	return names, nil
}

// identities asks the tables.
func (n *namer) identities(ctx context.Context, keys []int64, names map[int64]lockorder.Lock) error {
	if len(keys) == 0 || n.off {
		return nil
	}
	var derivation string
	if err := n.q.QueryRow(ctx, `SELECT core.lock_derivation()`).Scan(&derivation); err != nil {
		return n.refused(err)
	}
	if derivation != lockorder.Derivation {
		n.off = true
		n.notes = append(n.notes, fmt.Sprintf("The keys in this database are derived by %q, and this program knows %q only: use the program of the release that runs.", derivation, lockorder.Derivation))
		return nil
	}
	rows, err := n.q.Query(ctx, `SELECT key, family, parts FROM core.lock_identities($1::bigint[])`, keys)
	if err != nil {
		return n.refused(err)
	}
	var key int64
	var family string
	var parts []string
	_, err = pgx.ForEachRow(rows, []any{&key, &family, &parts}, func() error {
		class, err := lockorder.ClassNamed(family)
		if err != nil {
			return nil // of a newer release: it stays a number
		}
		if l := lockorder.New(class, parts...); l.Err() == nil && l.Key() == key {
			names[key] = l
		}
		return nil
	})
	return n.refused(err)
}

// refused notes why names cannot be looked up, and what would change that. Another error is the caller's.
func (n *namer) refused(err error) error {
	note := ""
	switch lockorder.SQLState(err) {
	case "42501":
		note = fmt.Sprintf("The role %s may not ask which identity a key is of, so some keys stay numbers. Mend: GRANT pg_read_all_stats TO %s;",
			n.meta.role, pgx.Identifier{n.meta.role}.Sanitize())
	case "3F000", "42883":
		note = "This database's schema cannot name keys, so some stay numbers: is it Bursar's? Mend: bursar migrate"
	default:
		return err
	}
	if !n.off {
		n.off = true
		n.notes = append(n.notes, note)
	}
	return nil
}

// candidates are the keys that the sessions name by themselves: by the comment of a statement that waits, and by the object
// that a workflow is about.
func candidates(sessions []*Session) (all []lockorder.Lock) {
	for _, s := range sessions {
		if s.comment != nil && s.comment.Class().Kind != lockorder.Row {
			all = append(all, *s.comment)
		}
		if s.Holder == nil || s.Holder.Object() == "" {
			continue
		}
		for _, class := range lockorder.Classes() {
			if class.Kind != lockorder.Advisory || len(class.Identity) != 1 {
				continue
			}
			if l := lockorder.New(class, s.Holder.Object()); l.Err() == nil {
				all = append(all, l)
			}
		}
	}
	return all
}

// each calls do for every lock of the sessions, with the session.
func each(sessions []*Session, do func(*Session, *Lock)) {
	for _, s := range sessions {
		for i := range s.Holds {
			do(s, &s.Holds[i])
		}
		if s.Waits != nil {
			do(s, &s.Waits.For)
		}
	}
}

// name puts the names into the locks of the sessions.
func (n *namer) name(ctx context.Context, sessions []*Session) error {
	var keys []int64
	each(sessions, func(_ *Session, l *Lock) {
		if l.Key != nil {
			keys = append(keys, l.Key.Number)
		}
	})
	names, err := n.names(ctx, keys, sessions)
	if err != nil {
		return err
	}
	ours := map[int64]bool{} // keys that somebody of Bursar's holds or wants
	each(sessions, func(s *Session, l *Lock) {
		if l.Key != nil && s.Holder != nil {
			ours[l.Key.Number] = true
		}
	})
	each(sessions, func(_ *Session, l *Lock) {
		if l.Key == nil {
			return
		}
		switch named, ok := names[l.Key.Number]; {
		case ok:
			l.be(named)
		case ours[l.Key.Number]:
			l.Owner = OwnerUnnamed
		}
	})
	return n.subjects(ctx, sessions)
}

// be makes a key that of a known identity.
func (l *Lock) be(named lockorder.Lock) {
	l.Owner, l.Class, l.Identity, l.Text = OwnerBursar, named.Class().Name, named.Identity(), named.Text()
}

// subject is what a lock is about: its class and the first part of its identity.
type subject struct{ class, identity string }

func (l Lock) subject() subject {
	if len(l.Identity) == 0 {
		return subject{}
	}
	return subject{l.Class, l.Identity[0]}
}

// known is whose a subject is, and what it is called.
type known struct{ organization, label string }

// subjects notes whose the locks and the holders' workflows are.
func (n *namer) subjects(ctx context.Context, sessions []*Session) error {
	asked := map[subject]bool{}
	each(sessions, func(_ *Session, l *Lock) { asked[l.subject()] = true })
	for _, s := range sessions {
		asked[s.subject()] = true
	}
	delete(asked, subject{})
	found, err := n.lookUp(ctx, asked)
	if err != nil {
		return err
	}
	each(sessions, func(_ *Session, l *Lock) {
		k := found[l.subject()]
		l.Organization, l.Label = k.organization, k.label
	})
	for _, s := range sessions {
		s.Organization = found[s.subject()].organization
	}
	return nil
}

// subject is what the workflow of the session is about, by the form of its id.
func (s *Session) subject() subject {
	if s.Holder == nil || s.Holder.Object() == "" {
		return subject{}
	}
	return subject{s.Holder.area(), s.Holder.Object()}
}

// lookUp asks the database whose the subjects are.
func (n *namer) lookUp(ctx context.Context, asked map[subject]bool) (map[subject]known, error) {
	found := map[subject]known{}
	if len(asked) == 0 || n.off {
		return found, nil
	}
	var classes, identities []string
	for s := range asked {
		classes, identities = append(classes, s.class), append(identities, s.identity)
	}
	rows, err := n.q.Query(ctx, `SELECT class, identity, coalesce(organization, ''), coalesce(label, '') FROM core.lock_subjects($1::text[], $2::text[])`, classes, identities)
	if err != nil {
		return found, n.refused(err)
	}
	var s subject
	var k known
	_, err = pgx.ForEachRow(rows, []any{&s.class, &s.identity, &k.organization, &k.label}, func() error {
		found[s] = k
		return nil
	})
	return found, n.refused(err)
}
