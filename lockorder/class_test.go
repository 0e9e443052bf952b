package lockorder_test

import (
	"testing"

	"github.com/bursarhq/bursar/lockorder"
)

// TestRegistryRules breaks the table of classes in every way that does not start.
func TestRegistryRules(t *testing.T) {
	t.Parallel()
	key := func(name string, rank lockorder.Rank) *lockorder.Class {
		return &lockorder.Class{Name: name, Rank: rank, Kind: lockorder.Advisory, Serializes: "x", Why: "y"}
	}
	row := func(change func(*lockorder.Class)) *lockorder.Class {
		c := &lockorder.Class{Name: "r", Rank: 9, Kind: lockorder.Row, Table: "t", Mode: "FOR NO KEY UPDATE",
			Identity: []lockorder.Part{{Name: "id", Type: "uuid"}}, Serializes: "x", Why: "y"}
		change(c)
		return c
	}
	one := func(change func(*lockorder.Class)) []*lockorder.Class { return []*lockorder.Class{row(change)} }
	good := []*lockorder.Class{key("a", 1), key("b", 2), row(func(*lockorder.Class) {})}
	if err := lockorder.CheckClasses(good); err != nil {
		t.Fatalf("a good table is refused: %v", err)
	}
	if err := lockorder.CheckClasses(lockorder.Classes()); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]struct {
		table []*lockorder.Class
		says  string
	}{
		"two of one name":            {[]*lockorder.Class{key("a", 1), key("a", 2)}, "share keys"},
		"two of one rank":            {[]*lockorder.Class{key("a", 1), key("b", 1)}, "does not rank above"},
		"descending ranks":           {[]*lockorder.Class{key("a", 2), key("b", 1)}, "does not rank above"},
		"no name":                    {one(func(c *lockorder.Class) { c.Name = "" }), "lacks a name"},
		"a separator in the name":    {one(func(c *lockorder.Class) { c.Name = "a:b" }), "separates"},
		"an escape in the name":      {one(func(c *lockorder.Class) { c.Name = "a%b" }), "separates"},
		"nothing serialized":         {one(func(c *lockorder.Class) { c.Serializes = "" }), "lacks"},
		"no reason":                  {one(func(c *lockorder.Class) { c.Why = "" }), "why it sits there"},
		"rows without a table":       {one(func(c *lockorder.Class) { c.Table = "" }), "lacks a table"},
		"rows without a mode":        {one(func(c *lockorder.Class) { c.Mode = "" }), "lacks a table"},
		"rows without an identity":   {one(func(c *lockorder.Class) { c.Identity = nil }), "lacks a table"},
		"a key with a table":         {one(func(c *lockorder.Class) { c.Kind = lockorder.Advisory }), "not of rows"},
		"a kind that does not exist": {one(func(c *lockorder.Class) { c.Kind = 0 }), "no kind"},
		"a part of an unknown type":  {one(func(c *lockorder.Class) { c.Identity[0].Type = "int" }), "unknown type"},
	} {
		err := lockorder.CheckClasses(bad.table)
		if err == nil {
			t.Errorf("%s: the table passes", name)
			continue
		}
		wantText(t, err, bad.says)
	}
}

// TestRegistryIsTheTable compares the registry with the order that the design fixes.
func TestRegistryIsTheTable(t *testing.T) {
	t.Parallel()
	want := []string{"migration", "materialization", "subscription", "invoice", "product", "workspace", "lifecycle", "desired-state", "domains",
		"entitlement-set", "set-rule", "organization", "organization-type", "customer", "pool", "change-obligation", "grant-lineage-head",
		"site", "usage", "desired-state-record", "desired-state-notice", "resource-key", "parked-work"}
	classes := lockorder.Classes()
	if len(classes) != len(want) {
		t.Fatalf("there are %d classes, want %d", len(classes), len(want))
	}
	for i, c := range classes {
		if c.Name != want[i] {
			t.Errorf("class %d is %s, want %s", i, c.Name, want[i])
		}
		found, err := lockorder.ClassNamed(c.Name)
		if err != nil || found != c {
			t.Errorf("ClassNamed(%q) = %v, %v", c.Name, found, err)
		}
		if skip := c == lockorder.DesiredStateNotice; c.Kind == lockorder.Row && (c.SkipLocked != skip || (c.Mode == "FOR UPDATE") != skip) {
			t.Errorf("%s is locked with %s, skipping: %t", c.Name, c.Mode, c.SkipLocked)
		}
	}
	classes[0] = nil
	if lockorder.Classes()[0] == nil {
		t.Error("the registry can be changed from outside")
	}
}
