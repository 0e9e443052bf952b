package lockpath

import (
	"strings"
	"testing"

	"github.com/bursarhq/bursar/lockorder"
)

func ranked(c *lockorder.Class) lockorder.Rank { return c.Rank }

func TestTheTableKeepsToTheOrder(t *testing.T) {
	t.Parallel()
	if len(table) == 0 {
		t.Fatal("the table is empty")
	}
	for _, wrong := range check(All(), ranked) {
		t.Error(wrong)
	}
}

// TestCheckNamesThePath gives the check tables with one mistake each.
func TestCheckNamesThePath(t *testing.T) {
	t.Parallel()
	good := func() Path {
		return Path{
			Name: "good", Area: Subscriptions, Kind: lockorder.Materializing, Does: "Does good.", By: []string{"a test"},
			Keys: []Step{{Class: lockorder.Subscription}, {Class: lockorder.Invoice}},
			Rows: []Step{{Class: lockorder.Customer}, {Class: lockorder.Pool}},
		}
	}
	if wrong := check([]Path{good()}, ranked); wrong != nil {
		t.Fatal(wrong)
	}
	for name, c := range map[string]struct {
		spoil func(*Path)
		want  string
	}{
		"rows the other way round": {func(p *Path) { p.Rows[0], p.Rows[1] = p.Rows[1], p.Rows[0] }, "path good lists customer after pool"},
		"keys the other way round": {func(p *Path) { p.Keys[0], p.Keys[1] = p.Keys[1], p.Keys[0] }, "path good lists subscription after invoice"},
		"a class twice":            {func(p *Path) { p.Rows[0] = p.Rows[1] }, "path good lists pool after pool"},
		"a row among the keys":     {func(p *Path) { p.Keys[1] = p.Rows[0] }, "path good lists customer among its keys"},
		"a key among the rows":     {func(p *Path) { p.Rows[0] = p.Keys[1] }, "path good lists invoice among its rows"},
		"the rendezvous listed":    {func(p *Path) { p.Keys[0].Class = lockorder.Materialization }, "path good lists the rendezvous"},
		"no class":                 {func(p *Path) { p.Rows[0].Class = nil }, "path good has a step without a class"},
		"no kind":                  {func(p *Path) { p.Kind = 0 }, "path good has no kind"},
		"no area":                  {func(p *Path) { p.Area = "" }, "path good is in no area"},
		"no sentence":              {func(p *Path) { p.Does = "Does good" }, "path good does not say"},
		"run by nobody":            {func(p *Path) { p.By = nil }, "path good does not say"},
		"a name with a blank":      {func(p *Path) { p.Name = "not good" }, "path not good is not named"},
		"a name for tests":         {func(p *Path) { p.Name = "test-good" }, "path test-good has a name that is kept for tests"},
	} {
		p := good()
		c.spoil(&p)
		if wrong := strings.Join(check([]Path{p}, ranked), "\n"); !strings.Contains(wrong, c.want) {
			t.Errorf("%s: %q does not say %q", name, wrong, c.want)
		}
	}
	if wrong := strings.Join(check([]Path{good(), good()}, ranked), "\n"); !strings.Contains(wrong, "path good is in the table twice") {
		t.Errorf("one name twice: %q", wrong)
	}
}

// TestASwappedRankNamesThePaths swaps the ranks of two classes, as a change of the registry would: each path that takes both is named.
func TestASwappedRankNamesThePaths(t *testing.T) {
	t.Parallel()
	swapped := func(c *lockorder.Class) lockorder.Rank {
		switch c {
		case lockorder.Customer:
			return lockorder.ParkedWork.Rank
		case lockorder.ParkedWork:
			return lockorder.Customer.Rank
		}
		return c.Rank
	}
	wrong := strings.Join(check(All(), swapped), "\n")
	for _, p := range []Path{CustomerLinkCheckout, SubscriptionReconcile} {
		if !strings.Contains(wrong, "path "+p.Name+" lists parked-work after ") {
			t.Errorf("path %s is not named: %q", p.Name, wrong)
		}
	}
	if strings.Contains(wrong, "path "+OrganizationCreate.Name+" ") {
		t.Errorf("a path that takes neither is named: %q", wrong)
	}
}

func TestPathsAreFoundAndOpened(t *testing.T) {
	t.Parallel()
	p, ok := Named("subscription-reconcile")
	if !ok || p.Name != SubscriptionReconcile.Name {
		t.Errorf("the path of that name is %q, %v", p.Name, ok)
	}
	if _, ok := Named("none"); ok {
		t.Error("there is a path called none")
	}
	key := lockorder.SubscriptionKey("sub_1")
	if s := p.Spec(key); s.Path != p.Name || s.Kind != p.Kind || len(s.Keys) != 1 || s.Keys[0].Key() != key.Key() {
		t.Errorf("it opens as %+v", s)
	}
	var names []string
	for _, s := range p.Steps() {
		names = append(names, s.Class.Name)
	}
	if got := strings.Join(names, " "); got != "materialization subscription pool change-obligation parked-work" {
		t.Errorf("its steps are %s", got)
	}
}
