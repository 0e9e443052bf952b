package lockorder

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Rank is a class's place in the order: a transaction takes locks in ascending rank. Ranks are spaced so that a
// class can be added between two.
type Rank int

// ClassKind says what a class locks.
type ClassKind int

const (
	// Advisory classes lock a 64-bit key for the length of the transaction.
	Advisory ClassKind = iota + 1
	// Row classes lock a row of a table.
	Row
	// Session classes lock a 64-bit key for the length of a session. There is one, for migrations, and no
	// transaction takes it.
	Session
)

// Part is one part of an identity: its name and its SQL type, which decides how it is checked and made canonical.
type Part struct {
	Name string
	// Type is "uuid", "text" or "timestamptz". A UUID is lower-cased, an instant is written in UTC; text is taken as it
	// is.
	Type string
}

// Class is one kind of lock. The classes are the variables of this package; none can be made elsewhere.
type Class struct {
	// Name is unique and never reused. For an advisory class it is also the family that its keys are hashed under.
	Name string
	Rank Rank
	Kind ClassKind
	// Identity names the parts that tell one lock of the class from another; none where there is only one.
	Identity []Part
	// Table is the locked table of a row class. The identity's parts are its columns, in their order.
	Table string
	// Mode is the locking clause of a row class.
	Mode string
	// SkipLocked is set where a transaction takes whichever rows nobody else holds.
	SkipLocked bool
	// Serializes says what the lock keeps apart, Why says why it sits where it does.
	Serializes string
	Why        string

	self *Class // itself, for the classes of this package; a copy's points elsewhere
}

const noKeyUpdate = "FOR NO KEY UPDATE"

func uuidPart(name string) []Part { return []Part{{name, "uuid"}} }
func textPart(name string) []Part { return []Part{{name, "text"}} }

// The classes, in the order of their ranks. This table is the order; everything else in the package follows from it.
var (
	Migration = &Class{
		Name: "migration", Rank: 0, Kind: Session, Identity: textPart("database"),
		Serializes: "Two processes that migrate one database.",
		Why:        "Taken by a session of its own that holds nothing else, before any transaction.",
	}
	Materialization = &Class{
		Name: "materialization", Rank: 10, Kind: Advisory,
		Serializes: "A rule change against every transaction that materializes a pool: each conferral sees one set of rules and one order of each ladder.",
		Why:        "First, so that a rule change never waits while it holds something that a materializing transaction wants.",
	}
	Subscription = &Class{
		Name: "subscription", Rank: 20, Kind: Advisory, Identity: textPart("subscription id"),
		Serializes: "Two reconciles of one Stripe subscription, and every write of its mirror.",
		Why:        "An outside object is settled before the pools that it reaches are known.",
	}
	Invoice = &Class{
		Name: "invoice", Rank: 30, Kind: Advisory, Identity: textPart("invoice id"),
		Serializes: "Two reconciles of one Stripe invoice.",
		Why:        "After the subscription that it may belong to.",
	}
	Product = &Class{
		Name: "product", Rank: 40, Kind: Advisory, Identity: uuidPart("product id"),
		Serializes: "Two syncs of one product to Stripe, so that mappings and outgoing calls are made once.",
		Why:        "Apart from the product's row: the row is covered by the rendezvous, and a sync changes no rule.",
	}
	Workspace = &Class{
		Name: "workspace", Rank: 50, Kind: Advisory, Identity: uuidPart("workspace id"),
		Serializes: "Changes of the active sites of one workspace: the cooldown check, the choice of the site to park, and the slot.",
		Why:        "Before the lifecycle of each of its sites.",
	}
	Lifecycle = &Class{
		Name: "lifecycle", Rank: 60, Kind: Advisory, Identity: uuidPart("instance id"),
		Serializes: "One instance's requests and outcomes: the check for the latest generation and the write are one step.",
		Why:        "Apart from the site's row, which may not exist yet; taken in sorted order, since two swaps may name one pair in opposite orders.",
	}
	DesiredState = &Class{
		Name: "desired-state", Rank: 70, Kind: Advisory,
		Identity:   []Part{{"connection", "text"}, {"recipient kind", "text"}, {"recipient id", "text"}},
		Serializes: "Every write of the content or generation of the record at one address, also where there is no record yet.",
		Why:        "Apart from the record's row, which may not exist yet; before it.",
	}
	Domains = &Class{
		Name: "domains", Rank: 80, Kind: Advisory,
		Serializes: "Every allocation of a name: disjointness spans rows that no constraint can compare.",
		Why:        "The last advisory key: it is one for all, so it is held the shortest, and before any usage row.",
	}

	EntitlementSet = &Class{
		Name: "entitlement-set", Rank: 90, Kind: Row, Table: "core.entitlement_sets", Identity: uuidPart("id"), Mode: noKeyUpdate,
		Serializes: "Changes of one entitlement set.",
		Why:        "A rule change takes the set before its rules, and both before the pools it settles.",
	}
	SetRule = &Class{
		Name: "set-rule", Rank: 100, Kind: Row, Table: "core.set_rules",
		Identity: []Part{{"set_id", "uuid"}, {"resource_key", "text"}}, Mode: noKeyUpdate,
		Serializes: "Changes of one rule.",
		Why:        "After its set.",
	}
	Organization = &Class{
		Name: "organization", Rank: 102, Kind: Row, Table: "core.organizations", Identity: uuidPart("id"), Mode: noKeyUpdate,
		Serializes: "Changes of one organisation's own row.",
		Why:        "Before its pools.",
	}
	OrganizationType = &Class{
		Name: "organization-type", Rank: 104, Kind: Row, Table: "core.organization_types", Identity: uuidPart("id"), Mode: noKeyUpdate,
		Serializes: "Changes of a type's default.",
		Why:        "Just before the pool: the default is saved, then each default pool is settled by it.",
	}
	Customer = &Class{
		Name: "customer", Rank: 106, Kind: Row, Table: "stripe.customers", Identity: textPart("id"), Mode: noKeyUpdate,
		Serializes: "Two links of one Stripe customer.",
		Why:        "A link is known before the pools it leads to; on one side of the pool only, since two upserts on different sides of it would deadlock.",
	}
	Pool = &Class{
		Name: "pool", Rank: 110, Kind: Row, Table: "core.pools", Identity: uuidPart("id"), Mode: noKeyUpdate,
		Serializes: "Everything that changes a pool's positions, entitlements or ledger.",
		Why:        "All pools of a transaction are locked together, before any position changes.",
	}
	ChangeObligation = &Class{
		Name: "change-obligation", Rank: 120, Kind: Row, Table: "core.change_obligations",
		Identity: []Part{{"pool_id", "uuid"}, {"change_id", "uuid"}}, Mode: noKeyUpdate,
		Serializes: "Two passes that settle one owed pool.",
		Why:        "After the pool that owes.",
	}
	GrantLineageHead = &Class{
		Name: "grant-lineage-head", Rank: 130, Kind: Row, Table: "core.grants", Identity: uuidPart("id"), Mode: noKeyUpdate,
		Serializes: "Acts on one line of grants, so that an extension made meanwhile is seen.",
		Why:        "After the pool, never before it.",
	}
	Site = &Class{
		Name: "site", Rank: 140, Kind: Row, Table: "fedwiki.sites", Identity: textPart("domain"), Mode: noKeyUpdate,
		Serializes: "Two moves of one site out of the active state: only the first returns its slot.",
		Why:        "Before the usage row that counts it.",
	}
	Usage = &Class{
		Name: "usage", Rank: 150, Kind: Row, Table: "core.usage",
		Identity: []Part{{"pool_id", "uuid"}, {"resource_key", "text"}, {"window_start", "timestamptz"}}, Mode: noKeyUpdate,
		Serializes: "One counter of one window.",
		Why:        "After the site whose slot it counts; hot, so it is held the shortest.",
	}
	DesiredStateRecord = &Class{
		Name: "desired-state-record", Rank: 160, Kind: Row, Table: "desiredstate.records", Identity: uuidPart("id"), Mode: noKeyUpdate,
		Serializes: "A record's content and stamps.",
		Why:        "After its address's key.",
	}
	DesiredStateNotice = &Class{
		Name: "desired-state-notice", Rank: 170, Kind: Row, Table: "desiredstate.notices", Identity: uuidPart("id"), Mode: "FOR UPDATE", SkipLocked: true,
		Serializes: "Two relays that claim: each takes other rows.",
		Why:        "Notices are inserted by triggers after whatever changed; a claim takes nothing before them.",
	}
	ResourceKey = &Class{
		Name: "resource-key", Rank: 180, Kind: Row, Table: "core.resource_keys", Identity: textPart("key"), Mode: noKeyUpdate,
		Serializes: "Changes of a resource key's description.",
		Why:        "After the pools: entitlement rows refer to keys, in byte order.",
	}
	ParkedWork = &Class{
		Name: "parked-work", Rank: 200, Kind: Row, Table: "stripe.parked_work",
		Identity: []Part{{"kind", "text"}, {"object_id", "text"}}, Mode: noKeyUpdate,
		Serializes: "A reconcile that parks or frees an object against a request to try it again.",
		Why:        "Last: that something is parked is known when everything else has been tried.",
	}
)

// classes lists every class. registry_test.go holds it to the rules: unique names, ascending ranks, reasons given.
var classes = []*Class{
	Migration, Materialization, Subscription, Invoice, Product, Workspace, Lifecycle, DesiredState, Domains,
	EntitlementSet, SetRule, Organization, OrganizationType, Customer, Pool, ChangeObligation, GrantLineageHead,
	Site, Usage, DesiredStateRecord, DesiredStateNotice, ResourceKey, ParkedWork,
}

// Classes returns every class in the order of the ranks.
func Classes() []*Class { return append([]*Class(nil), classes...) }

// ClassNamed returns the class of that name, or an error that lists the names there are.
func ClassNamed(name string) (*Class, error) {
	names := make([]string, 0, len(classes))
	for _, c := range classes {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	return nil, fmt.Errorf("lockorder: no lock class is called %q; there are: %s", name, strings.Join(names, ", "))
}

// checkClasses reports what is wrong with a table of classes. A wrong one does not start: see init.
func checkClasses(table []*Class) error {
	seen := map[string]bool{}
	for i, c := range table {
		switch {
		case c.Name == "" || c.Serializes == "" || c.Why == "":
			return fmt.Errorf("class %d (%q) lacks a name, what it serializes, or why it sits there", i, c.Name)
		case seen[c.Name]:
			return fmt.Errorf("two classes are called %q: they would share keys", c.Name)
		case c.Name == uniqueKey.Name:
			return fmt.Errorf("class %q has the name of what waits for a unique key", c.Name)
		case strings.ContainsAny(c.Name, ":%"):
			return fmt.Errorf("class name %q has a character that separates the parts of a key", c.Name)
		case i > 0 && c.Rank <= table[i-1].Rank:
			return fmt.Errorf("class %q does not rank above %q", c.Name, table[i-1].Name)
		case c.Kind != Advisory && c.Kind != Row && c.Kind != Session:
			return fmt.Errorf("class %q is of no kind", c.Name)
		case c.Kind == Row && (c.Table == "" || c.Mode == "" || len(c.Identity) == 0):
			return fmt.Errorf("row class %q lacks a table, a mode or an identity", c.Name)
		case c.Kind != Row && (c.Table != "" || c.Mode != ""):
			return fmt.Errorf("class %q is not of rows and yet names a table or mode", c.Name)
		}
		for _, p := range c.Identity {
			switch p.Type {
			case "uuid", "text", "timestamptz":
			default:
				return fmt.Errorf("class %q: part %q has the unknown type %q", c.Name, p.Name, p.Type)
			}
		}
		seen[c.Name] = true
	}
	return nil
}

func init() {
	// The ranks alone are the order. Two that were swapped do not stop the process here, where no path is known, but fail the
	// tests of every path that takes both.
	slices.SortStableFunc(classes, func(a, b *Class) int { return cmp.Compare(a.Rank, b.Rank) })
	if err := checkClasses(classes); err != nil {
		panic("lockorder: " + err.Error())
	}
	for _, c := range classes {
		c.self = c
	}
}
