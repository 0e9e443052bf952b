package lockorder

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Derivation names how an identity becomes a key. Two derivations side by side do not exclude each other, so the
// name is stored in the database, and a process built with another one must not start.
const Derivation = "sha256-v1"

// prefix is hashed before every family, so that the keys of this system do not meet those of another in one database.
const prefix = "bursar"

// Lock is one lock: a class and the identity within it. The zero Lock is invalid. A Lock that was made from a bad
// identity carries that error, and the first use of it answers with the error before any SQL is sent.
type Lock struct {
	class *Class
	parts []string
	text  string // hashed text of an advisory key; readable and unique for rows too
	key   int64
	err   error
}

// New returns the lock of a class for an identity. An empty part, a part that is not of its type, or the wrong
// number of parts makes a Lock whose Err tells so. UUIDs are made lower case: one UUID in two cases is one lock.
func New(class *Class, parts ...string) Lock {
	l := Lock{class: class}
	if class == nil {
		l.err = errors.New("lockorder: no lock class given")
		return l
	}
	if class.self != class {
		l.err = fmt.Errorf("lockorder: class %q is not one of the package's", class.Name)
		return l
	}
	if len(parts) != len(class.Identity) {
		l.err = fmt.Errorf("lockorder: class %s takes %d identity parts, not %d", class.Name, len(class.Identity), len(parts))
		return l
	}
	l.parts = make([]string, len(parts))
	for i, part := range parts {
		canonical, err := canonicalPart(class.Identity[i], part)
		if err != nil {
			l.err = fmt.Errorf("lockorder: class %s: %w", class.Name, err)
			return l
		}
		l.parts[i] = canonical
	}
	l.text = keyText(class.Name, l.parts)
	if class.Kind != Row {
		l.key = hashKey(l.text)
	}
	return l
}

func canonicalPart(p Part, s string) (string, error) {
	switch {
	case s == "":
		return "", fmt.Errorf("%s is empty", p.Name)
	case !utf8.ValidString(s) || strings.ContainsRune(s, 0):
		return "", fmt.Errorf("%s %q is not text that PostgreSQL can hold", p.Name, s)
	case p.Type == "uuid":
		id, err := uuid.Parse(s)
		if err != nil || len(s) != 36 {
			return "", fmt.Errorf("%s %q is not a UUID", p.Name, s)
		}
		return id.String(), nil
	case p.Type == "timestamptz":
		at, err := time.Parse(time.RFC3339Nano, s)
		if err != nil || at.Nanosecond()%1000 != 0 || at.UTC().Year() < 0 || at.UTC().Year() > 9999 {
			return "", fmt.Errorf("%s %q is not an RFC 3339 time in whole microseconds", p.Name, s)
		}
		return at.UTC().Format(sortableTime), nil
	}
	return s, nil
}

// sortableTime writes instants so that the order of the bytes is that of the time.
const sortableTime = "2006-01-02T15:04:05.000000Z"

var escaper = strings.NewReplacer("%", "%25", ":", "%3A")

// keyText is the text that is hashed. The escape keeps ("a:b", "c") and ("a", "b:c") apart.
func keyText(family string, parts []string) string {
	var b strings.Builder
	b.WriteString(prefix)
	b.WriteByte(':')
	b.WriteString(family)
	for _, p := range parts {
		b.WriteByte(':')
		if strings.ContainsAny(p, "%:") {
			p = escaper.Replace(p)
		}
		b.WriteString(p)
	}
	return b.String()
}

func hashKey(text string) int64 {
	sum := sha256.Sum256([]byte(text))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// SubscriptionKey is the lock of one Stripe subscription.
func SubscriptionKey(id string) Lock { return New(Subscription, id) }

// InvoiceKey is the lock of one Stripe invoice.
func InvoiceKey(id string) Lock { return New(Invoice, id) }

// ProductKey is the lock of one product's sync.
func ProductKey(id uuid.UUID) Lock { return New(Product, id.String()) }

// WorkspaceKey is the lock of one workspace's sites.
func WorkspaceKey(id uuid.UUID) Lock { return New(Workspace, id.String()) }

// LifecycleKey is the lock of one instance's requests.
func LifecycleKey(id uuid.UUID) Lock { return New(Lifecycle, id.String()) }

// DesiredStateKey is the lock of one address.
func DesiredStateKey(connection, recipientKind, recipientID string) Lock {
	return New(DesiredState, connection, recipientKind, recipientID)
}

// DomainsKey is the lock of the registry of names.
func DomainsKey() Lock { return New(Domains) }

// MigrationKey is the session lock of one database's migrations.
func MigrationKey(database string) Lock { return New(Migration, database) }

// PoolRow is the row lock of one pool.
func PoolRow(id uuid.UUID) Lock { return New(Pool, id.String()) }

// EntitlementSetRow is the row lock of one entitlement set.
func EntitlementSetRow(id uuid.UUID) Lock { return New(EntitlementSet, id.String()) }

// SetRuleRow is the row lock of one rule of a set.
func SetRuleRow(set uuid.UUID, resourceKey string) Lock {
	return New(SetRule, set.String(), resourceKey)
}

// OrganizationTypeRow is the row lock of one organisation type.
func OrganizationTypeRow(id uuid.UUID) Lock { return New(OrganizationType, id.String()) }

// CustomerRow is the row lock of one linked Stripe customer.
func CustomerRow(id string) Lock { return New(Customer, id) }

// ResourceKeyRow is the row lock of one resource key.
func ResourceKeyRow(key string) Lock { return New(ResourceKey, key) }

// ParkedWorkRow is the row lock of one parked object.
func ParkedWorkRow(kind, objectID string) Lock { return New(ParkedWork, kind, objectID) }

// Err is why the lock cannot be used, or nil.
func (l Lock) Err() error {
	if l.class == nil && l.err == nil {
		return errors.New("lockorder: the zero Lock names nothing")
	}
	return l.err
}

// Class returns the lock's class.
func (l Lock) Class() *Class { return l.class }

// Key returns the 64-bit key of an advisory lock, 0 for a row.
func (l Lock) Key() int64 { return l.key }

// Text returns the text that an advisory key is the hash of.
func (l Lock) Text() string { return l.text }

// Identity returns the canonical parts.
func (l Lock) Identity() []string { return append([]string(nil), l.parts...) }

// String names the lock for a person: its class and identity.
func (l Lock) String() string {
	if l.class == nil {
		return "(no lock)"
	}
	if len(l.parts) == 0 {
		return l.class.Name
	}
	return l.class.Name + " " + strings.Join(l.parts, " ")
}

// lockID tells one lock from another: an advisory lock is its key, whichever identity led to it.
type lockID struct {
	class *Class
	key   int64
	text  string
}

func (l Lock) id() lockID {
	if l.class != nil && l.class.Kind == Row {
		return lockID{class: l.class, text: l.text}
	}
	return lockID{class: l.class, key: l.key}
}

// compare orders locks as transactions take them: by rank; within an advisory class by key, since two identities
// may share one; within a row class by identity, byte by byte.
func compare(a, b Lock) int {
	if c := cmp.Compare(a.class.Rank, b.class.Rank); c != 0 {
		return c
	}
	if a.class.Kind != Row {
		return cmp.Compare(a.key, b.key)
	}
	for i := range a.parts {
		if c := strings.Compare(a.parts[i], b.parts[i]); c != 0 {
			return c
		}
	}
	return 0
}
