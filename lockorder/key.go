package lockorder

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
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
	key   int64 // of an advisory lock
	err   error
}

// New returns the lock of a class for an identity. An empty part, a part that is not of its type, or the wrong
// number of parts makes a Lock whose Err tells so. UUIDs are made lower case: one UUID in two cases is one lock.
func New(class *Class, parts ...string) Lock {
	return newLock(class, slices.Clone(parts))
}

// newLock is New for parts that nobody else has.
func newLock(class *Class, parts []string) Lock {
	if err := canonical(class, parts); err != nil {
		return Lock{class: class, err: err}
	}
	return newCanonical(class, parts)
}

// newUUID is New for a class whose identity is one UUID. What a UUID is written as is canonical.
func newUUID(class *Class, id uuid.UUID) Lock { return newCanonical(class, []string{id.String()}) }

func newCanonical(class *Class, parts []string) Lock {
	l := Lock{class: class, parts: parts}
	if class.Kind != Row {
		var buffer [128]byte // most texts fit
		l.key = hashKey(appendText(buffer[:0], class.Name, parts))
	}
	return l
}

// canonical checks the parts of an identity, and makes them what one identity is always written as.
func canonical(class *Class, parts []string) error {
	switch {
	case class == nil:
		return errors.New("lockorder: no lock class given")
	case class.self != class:
		return fmt.Errorf("lockorder: class %q is not one of the package's", class.Name)
	case len(parts) != len(class.Identity):
		return fmt.Errorf("lockorder: class %s takes %d identity parts, not %d", class.Name, len(class.Identity), len(parts))
	}
	for i, part := range parts {
		canonical, err := canonicalPart(class.Identity[i], part)
		if err != nil {
			return fmt.Errorf("lockorder: class %s: %w", class.Name, err)
		}
		parts[i] = canonical
	}
	return nil
}

func canonicalPart(p Part, s string) (string, error) {
	switch {
	case s == "":
		return "", fmt.Errorf("%s is empty", p.Name)
	case !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0:
		return "", fmt.Errorf("%s %q is not text that PostgreSQL can hold", p.Name, s)
	case p.Type == "uuid":
		if len(s) != 36 || uuid.Validate(s) != nil {
			return "", fmt.Errorf("%s %q is not a UUID", p.Name, s)
		}
		return strings.ToLower(s), nil
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

// appendText appends the text that is hashed. The escape keeps ("a:b", "c") and ("a", "b:c") apart.
func appendText(b []byte, family string, parts []string) []byte {
	b = append(append(append(b, prefix...), ':'), family...)
	for _, p := range parts {
		b = append(b, ':')
		if strings.IndexByte(p, '%') >= 0 || strings.IndexByte(p, ':') >= 0 {
			p = escaper.Replace(p)
		}
		b = append(b, p...)
	}
	return b
}

func hashKey(text []byte) int64 {
	sum := sha256.Sum256(text)
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// SubscriptionKey is the lock of one Stripe subscription.
func SubscriptionKey(id string) Lock { return newLock(Subscription, []string{id}) }

// InvoiceKey is the lock of one Stripe invoice.
func InvoiceKey(id string) Lock { return newLock(Invoice, []string{id}) }

// ProductKey is the lock of one product's sync.
func ProductKey(id uuid.UUID) Lock { return newUUID(Product, id) }

// WorkspaceKey is the lock of one workspace's sites.
func WorkspaceKey(id uuid.UUID) Lock { return newUUID(Workspace, id) }

// LifecycleKey is the lock of one instance's requests.
func LifecycleKey(id uuid.UUID) Lock { return newUUID(Lifecycle, id) }

// DesiredStateKey is the lock of one address.
func DesiredStateKey(connection, recipientKind, recipientID string) Lock {
	return newLock(DesiredState, []string{connection, recipientKind, recipientID})
}

// DomainsKey is the lock of the registry of names.
func DomainsKey() Lock { return New(Domains) }

// MigrationKey is the session lock of one database's migrations.
func MigrationKey(database string) Lock { return newLock(Migration, []string{database}) }

// PoolRow is the row lock of one pool.
func PoolRow(id uuid.UUID) Lock { return newUUID(Pool, id) }

// EntitlementSetRow is the row lock of one entitlement set.
func EntitlementSetRow(id uuid.UUID) Lock { return newUUID(EntitlementSet, id) }

// SetRuleRow is the row lock of one rule of a set.
func SetRuleRow(set uuid.UUID, resourceKey string) Lock {
	return newLock(SetRule, []string{set.String(), resourceKey})
}

// OrganizationTypeRow is the row lock of one organisation type.
func OrganizationTypeRow(id uuid.UUID) Lock { return newUUID(OrganizationType, id) }

// CustomerRow is the row lock of one linked Stripe customer.
func CustomerRow(id string) Lock { return newLock(Customer, []string{id}) }

// ResourceKeyRow is the row lock of one resource key.
func ResourceKeyRow(key string) Lock { return newLock(ResourceKey, []string{key}) }

// ChangeObligationRow is the lock of what a change owes a pool.
func ChangeObligationRow(pool, change uuid.UUID) Lock {
	return newLock(ChangeObligation, []string{pool.String(), change.String()})
}

// GrantHeadRow is the lock of a line of grants: the row of its head, the grant that no other extends.
func GrantHeadRow(id uuid.UUID) Lock { return newUUID(GrantLineageHead, id) }

// UsageRow is the lock of one counter: of a resource key of a pool in the window that begins at start.
func UsageRow(pool uuid.UUID, resourceKey string, start time.Time) Lock {
	return New(Usage, pool.String(), resourceKey, start.UTC().Format(time.RFC3339Nano))
}

// ParkedWorkRow is the row lock of one parked object.
func ParkedWorkRow(kind, objectID string) Lock { return newLock(ParkedWork, []string{kind, objectID}) }

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

// Text returns the text that an advisory key is the hash of; of a row, one that no other row has. It is empty for a
// Lock with an error.
func (l Lock) Text() string {
	if l.Err() != nil {
		return ""
	}
	return string(appendText(nil, l.class.Name, l.parts))
}

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
		return lockID{class: l.class, text: l.Text()}
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
