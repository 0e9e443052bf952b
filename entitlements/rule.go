package entitlements

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// RuleDelta is one rule of a set as it shall be.
type RuleDelta struct {
	Key string `json:"key"`
	// Value is what the set gives of the key; nothing takes the rule away.
	Value Value `json:"value"`
}

// AlterRules is a batch of changes to the rules of one set.
type AlterRules struct {
	// Change is the id of the change that is made.
	Change uuid.UUID `json:"change"`
	// Set is the set's slug.
	Set    string      `json:"set"`
	Deltas []RuleDelta `json:"deltas"`
}

// maxDeltas bounds one batch: a transaction locks a row for each.
const maxDeltas = 200

// Check says what is wrong with the request by itself.
func (c AlterRules) Check() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %w", ErrInvalid, fmt.Errorf(format, args...)))
	}
	switch n := len(c.Deltas); {
	case n == 0:
		bad("no rule of set %s is named; give KEY=VALUE for what it shall give, KEY- for what it shall give no more", c.Set)
	case n > maxDeltas:
		bad("%d rules in one change; the most is %d", n, maxDeltas)
	}
	seen := map[string]bool{}
	for _, d := range c.Deltas {
		switch {
		case seen[d.Key]:
			bad("resource key %s is named twice", d.Key)
		case d.Value.Kind == Numeric && d.Value.Number < 0:
			bad("resource key %s cannot be %d: the least is 0; %s- takes the rule away", d.Key, d.Value.Number, d.Key)
		case d.Value.Kind == Numeric && d.Value.Number > MaxNumber:
			bad("resource key %s cannot be %d: the most is %d", d.Key, d.Value.Number, int64(MaxNumber))
		}
		seen[d.Key] = true
	}
	return errors.Join(errs...)
}

// Validate says why the change would be refused as things stand: errors are those of Do. It takes no lock.
func (c AlterRules) Validate(ctx context.Context, q lockorder.Querier) error {
	if err := c.Check(); err != nil {
		return err
	}
	if err := NoOpenDefault(ctx, q); err != nil {
		return err
	}
	_, err := c.plan(ctx, q)
	return err
}

// Do changes the rules and has every pool settled that holds a product with the set. The transaction is a RuleChange that holds
// nothing else yet. Errors wrap ErrNotFound, ErrInvalid, or ErrInProgress while a default change is reaching organisations.
func (c AlterRules) Do(ctx context.Context, tx *lockorder.Tx, act Act) (Outcome, error) {
	if err := c.Check(); err != nil {
		return Outcome{}, err
	}
	if err := tx.RequireKind(lockorder.RuleChange); err != nil {
		return Outcome{}, err
	}
	if done, yes, err := Committed(ctx, tx, c.Change); err != nil || yes {
		return done, err
	}
	if err := NoOpenDefault(ctx, tx); err != nil {
		return Outcome{}, err
	}
	plan, err := c.plan(ctx, tx)
	if err != nil {
		return Outcome{}, err
	}
	locks := []lockorder.Lock{lockorder.EntitlementSetRow(plan.set)}
	for key := range plan.rules {
		if slices.ContainsFunc(plan.deltas, func(d RuleDelta) bool { return d.Key == key }) {
			locks = append(locks, lockorder.SetRuleRow(plan.set, key))
		}
	}
	if err := tx.Lock(ctx, locks...); err != nil {
		return Outcome{}, err
	}
	change := ChangeRecord{ID: c.Change, Kind: ChangeRules, Summary: plan.summary()}
	return CommitChange(ctx, tx, act, change, holdersOf(plan.carriers...), func(ctx context.Context) error { return plan.write(ctx, tx) })
}

// rulePlan is a change of rules that can be done.
type rulePlan struct {
	set      uuid.UUID
	slug     string
	rules    map[string]Value // as they stand
	deltas   []RuleDelta      // those that change something, by key
	carriers []uuid.UUID      // the products through which the set is held
}

// plan checks the change against what stands. Under the exclusive rendezvous nothing of it can move: rules change under it only.
func (c AlterRules) plan(ctx context.Context, q lockorder.Querier) (rulePlan, error) {
	db := entitlementsdb.New(q)
	set, err := FindSet(ctx, q, c.Set)
	if err != nil {
		return rulePlan{}, err
	}
	known, err := db.ListResourceKeys(ctx)
	if err != nil {
		return rulePlan{}, fmt.Errorf("reading the resource keys: %w", err)
	}
	kinds := make(map[string]string, len(known))
	candidates := make([]candidate, len(known))
	for i, k := range known {
		kinds[k.Key], candidates[i] = k.Kind, candidate{slug: k.Key, name: k.Key}
	}
	plan := rulePlan{set: set.ID, slug: set.Slug, rules: set.Rules}
	var errs []error
	for _, d := range c.Deltas {
		kind, exists := kinds[d.Key]
		had, has := plan.rules[d.Key]
		switch {
		case !exists:
			errs = append(errs, &notFoundError{what: "resource key", asked: d.Key, near: near(d.Key, candidates)})
		case d.Value.IsNothing() && !has:
			errs = append(errs, fmt.Errorf("%w: set %s has no rule for %s to take away", ErrInvalid, set.Slug, d.Key))
		case !d.Value.IsNothing() && d.Value.Kind != kind:
			want := "a whole number"
			if kind == Boolean {
				want = "yes or no"
			}
			errs = append(errs, fmt.Errorf("%w: resource key %s is %s, so its value is %s, not %s", ErrInvalid, d.Key, kind, want, d.Value))
		case had != d.Value:
			plan.deltas = append(plan.deltas, d)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return rulePlan{}, err
	}
	if len(plan.deltas) == 0 {
		return rulePlan{}, fmt.Errorf("%w: set %s gives that already", ErrInvalid, set.Slug)
	}
	slices.SortFunc(plan.deltas, func(a, b RuleDelta) int { return strings.Compare(a.Key, b.Key) })
	if plan.carriers, err = db.ListCarriers(ctx, set.ID); err != nil {
		return rulePlan{}, fmt.Errorf("reading the products that carry set %s: %w", set.Slug, err)
	}
	return plan, nil
}

// shownDeltas is how many deltas a summary names.
const shownDeltas = 8

// summary tells the change in one line: "set gold: sites 20 → 30, support yes → nothing".
func (p rulePlan) summary() string {
	var parts []string
	for i, d := range p.deltas {
		if i == shownDeltas {
			parts = append(parts, fmt.Sprintf("and %d more", len(p.deltas)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("%s %s → %s", d.Key, p.rules[d.Key], d.Value))
	}
	return fmt.Sprintf("set %s: %s", p.slug, strings.Join(parts, ", "))
}

// overlay is the deltas as core.preview_rules takes them.
func (p rulePlan) overlay() ([]byte, error) {
	type delta struct {
		Key    string `json:"key"`
		Number *int64 `json:"number"`
		Yes    *bool  `json:"yes"`
	}
	list := make([]delta, len(p.deltas))
	for i, d := range p.deltas {
		number, yes := d.Value.columns()
		list[i] = delta{d.Key, number, yes}
	}
	return json.Marshal(list)
}

func (p rulePlan) write(ctx context.Context, tx *lockorder.Tx) error {
	q := entitlementsdb.New(tx)
	for _, d := range p.deltas {
		var err error
		if d.Value.IsNothing() {
			err = q.DeleteSetRule(ctx, entitlementsdb.DeleteSetRuleParams{SetID: p.set, ResourceKey: d.Key})
		} else {
			number, yes := d.Value.columns()
			err = q.PutSetRule(ctx, entitlementsdb.PutSetRuleParams{SetID: p.set, ResourceKey: d.Key, Kind: d.Value.Kind, NumericValue: number, BooleanValue: yes})
		}
		if err != nil {
			return fmt.Errorf("writing the rule of set %s for %s: %w", p.slug, d.Key, err)
		}
	}
	return nil
}

// FindSet returns a set with its rules. Where there is none the error wraps ErrNotFound and names those near.
func FindSet(ctx context.Context, q lockorder.Querier, slug string) (Set, error) {
	db := entitlementsdb.New(q)
	row, err := db.FindSet(ctx, slug)
	if isNoRows(err) {
		sets, err := db.ListSets(ctx)
		if err != nil {
			return Set{}, fmt.Errorf("reading the sets: %w", err)
		}
		candidates := make([]candidate, len(sets))
		for i, s := range sets {
			candidates[i] = candidate{slug: s.Slug, name: s.Name}
		}
		return Set{}, &notFoundError{what: "set", asked: slug, near: near(slug, candidates), hint: "bursar set list shows them"}
	}
	if err != nil {
		return Set{}, fmt.Errorf("reading set %q: %w", slug, err)
	}
	rules, err := db.ListRulesOf(ctx, row.ID)
	if err != nil {
		return Set{}, fmt.Errorf("reading the rules of set %q: %w", slug, err)
	}
	set := Set{ID: row.ID, Slug: row.Slug, Name: row.Name, Rules: make(map[string]Value, len(rules))}
	for _, r := range rules {
		set.Rules[r.ResourceKey] = valueOf(r.NumericValue, r.BooleanValue)
	}
	return set, nil
}

// NoOpenDefault answers an error that wraps ErrInProgress while a default change is reaching organisations. One whose last
// organisations are parked does not count: what could not be settled may wait for a change of rules.
func NoOpenDefault(ctx context.Context, q lockorder.Querier) error {
	open, err := entitlementsdb.New(q).FindOpenDefault(ctx)
	switch {
	case isNoRows(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading the changes of defaults: %w", err)
	}
	return fmt.Errorf("%w: change %s of the default of %s has %d organisations to reach; try again when it is through: bursar rule status %s",
		ErrInProgress, open.ID, open.Type, open.Open, open.ID)
}
