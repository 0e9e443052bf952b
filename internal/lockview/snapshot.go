package lockview

import (
	"fmt"
	"strings"
	"time"

	"github.com/bursarhq/bursar/lockorder"
)

// Owner says whose a lock is.
type Owner string

const (
	// OwnerBursar is a lock with a class of lockorder.
	OwnerBursar Owner = "bursar"
	// OwnerUnnamed is a key that a holder of Bursar's has or wants, and that nothing names: its identity is in no table yet.
	OwnerUnnamed Owner = "bursar, not named"
	// OwnerOther is an advisory key that nobody of Bursar's has or wants.
	OwnerOther Owner = "another application"
	// OwnerServer is a lock of PostgreSQL's own: a table, a row that no comment names, a transaction.
	OwnerServer Owner = "postgresql"
)

// Lock is one lock that a session holds or waits for.
type Lock struct {
	Owner Owner `json:"owner"`
	// Class and Identity are those of lockorder; empty where the owner is not Bursar.
	Class    string   `json:"class,omitempty"`
	Identity []string `json:"identity,omitempty"`
	// Organization is the slug of whose it is, Label what the thing is called, "" where not known.
	Organization string `json:"organization,omitempty"`
	Label        string `json:"label,omitempty"`
	// Mode is "shared" or "exclusive" of a key, the server's word of a table's lock, "" of a row.
	Mode string `json:"mode,omitempty"`
	// Key is the number of an advisory lock with one, in full and as pg_locks shows it; nil of anything else.
	Key *Key `json:"key,omitempty"`
	// Text is what the key is the hash of, where it is named.
	Text string `json:"text,omitempty"`
	// Object describes a lock of PostgreSQL's own, or another application's pair of numbers.
	Object string `json:"object,omitempty"`

	tag string // the same for the same lock, in one snapshot
}

// Key is a 64-bit advisory key.
type Key struct {
	Number  int64  `json:"number"`
	ClassID uint32 `json:"classid"`
	ObjID   uint32 `json:"objid"`
}

func newKey(n int64) *Key {
	high, low := Halves(n)
	return &Key{n, high, low}
}

// String names the lock for a person.
func (l Lock) String() string {
	var b strings.Builder
	switch {
	case l.Class == "materialization":
		b.WriteString("materialization (the rendezvous)")
	case l.Class != "":
		b.WriteString(l.Class)
		for _, part := range l.Identity {
			b.WriteString(" " + part)
		}
	case l.Owner == OwnerUnnamed:
		fmt.Fprintf(&b, "a key of Bursar's that cannot be named: %d (%d/%d)", l.Key.Number, l.Key.ClassID, l.Key.ObjID)
	case l.Owner == OwnerOther && l.Key != nil:
		fmt.Fprintf(&b, "key %d (%d/%d) of another application", l.Key.Number, l.Key.ClassID, l.Key.ObjID)
	case l.Owner == OwnerOther:
		b.WriteString(l.Object + " of another application")
	default:
		b.WriteString(l.Object)
	}
	switch {
	case l.Organization != "" && l.Label != "" && l.Class == "pool":
		fmt.Fprintf(&b, " (%s, pool %s)", l.Organization, l.Label)
	case l.Organization != "":
		fmt.Fprintf(&b, " (%s)", l.Organization)
	case l.Label != "":
		fmt.Fprintf(&b, " (%s)", l.Label)
	}
	if l.Mode == "shared" || l.Mode == "exclusive" && (l.Class == "materialization" || l.Owner == OwnerOther) {
		b.WriteString(", " + l.Mode)
	}
	return b.String()
}

// Wait is what a session waits for.
type Wait struct {
	For Lock `json:"for"`
	// Since is when the wait began, nil in its first moments and where it may not be seen; Seconds is how long ago.
	Since   *time.Time `json:"since,omitempty"`
	Seconds float64    `json:"seconds"`
	// On are the process ids of whom it waits for, those ahead of it in the queue included; 0 stands for a prepared
	// transaction. It is empty when they have just let go.
	On []int `json:"on"`
	// Queued says that nobody it waits for holds the lock against it: it stands behind somebody who waits.
	Queued bool `json:"queued,omitempty"`

	kind string // the server's word: "advisory", "transactionid", "tuple", "relation"
}

// Session is a process of the server's that holds locks or waits for one.
type Session struct {
	// PID is the process id; 0 stands for all prepared transactions, which have no process.
	PID int `json:"pid"`
	// Holder is who runs Bursar's transaction in it; nil of another application.
	Holder *Holder `json:"holder,omitempty"`
	// By are the activities and commands that run the holder's path.
	By []string `json:"by,omitempty"`
	// Organization is the slug of the organisation that the holder's workflow is about, "" where not known.
	Organization string `json:"organization,omitempty"`
	Application  string `json:"application,omitempty"`
	User         string `json:"user,omitempty"`
	Client       string `json:"client,omitempty"`
	// Backend is "client backend", or what else the server runs.
	Backend string `json:"backend,omitempty"`
	// State is the server's word: "active", "idle in transaction".
	State string `json:"state,omitempty"`
	// Since is when its transaction began, Still since when it is in its state.
	Since *time.Time `json:"since,omitempty"`
	Still *time.Time `json:"state_since,omitempty"`
	// Statement is what it runs, or ran last, in one line and without comment.
	Statement string `json:"statement,omitempty"`
	// Holds are the keys it holds, and the rows that somebody waits for and it holds; others do not show.
	Holds []Lock `json:"holds"`
	// Waits is nil when it waits for no lock.
	Waits *Wait `json:"waits,omitempty"`
	// Prepared are the prepared transactions, where PID is 0.
	Prepared []string `json:"prepared,omitempty"`
	// Hidden says that the role may not see what it does.
	Hidden bool `json:"hidden,omitempty"`
	// Advice is what to do about it, or when it will end by itself; "" where there is nothing to say.
	Advice string `json:"advice,omitempty"`

	comment *lockorder.Lock // what the comment of its statement says that it waits for
}

// Name is who the session is, for a person.
func (s *Session) Name() string {
	switch {
	case s.PID == 0 && len(s.Prepared) == 1:
		return "prepared transaction " + s.Prepared[0]
	case s.PID == 0:
		return "prepared transactions " + strings.Join(s.Prepared, ", ")
	case s.Holder != nil:
		return s.Holder.String()
	case s.migrates():
		return "a migration"
	case s.Backend != "" && s.Backend != "client backend" && s.Backend != "parallel worker":
		return "PostgreSQL's " + s.Backend
	case s.Application != "":
		return "another application: " + s.Application
	case s.Application == "" && s.User == "":
		return "a session that has gone"
	}
	return "another application, which gives no name"
}

// migrates tells whether it holds the migration lock.
func (s *Session) migrates() bool {
	for _, l := range s.Holds {
		if l.Class == "migration" {
			return true
		}
	}
	return false
}

// Snapshot is what the server showed.
type Snapshot struct {
	// At is the server's time, in UTC.
	At       time.Time `json:"at"`
	Database string    `json:"database"`
	// Chains are the waits: at the top of each is a session that waits for nobody.
	Chains []*Link `json:"chains"`
	// Sessions are all that hold a key or wait, or are waited for, longest transaction first.
	Sessions []*Session `json:"sessions"`
	// Notes say what could not be seen, and what would show it.
	Notes []string `json:"notes,omitempty"`
}

// Waiting returns how many sessions wait, and for how long the longest has.
func (s Snapshot) Waiting() (n int, longest time.Duration) {
	for _, session := range s.Sessions {
		if session.Waits != nil {
			n++
			longest = max(longest, time.Duration(session.Waits.Seconds*float64(time.Second)))
		}
	}
	return n, longest
}

// Same tells whether two locks of one snapshot are one lock.
func (l Lock) Same(other Lock) bool { return l.tag == other.tag }
