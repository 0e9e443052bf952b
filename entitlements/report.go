package entitlements

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// Report is what an organisation may use at an instant, and why.
type Report struct {
	// At is the instant.
	At time.Time `json:"at"`
	// Historical is true for an instant in the past. Values then come from the ledger, and the reason of each is the act that
	// last changed it before.
	Historical bool `json:"historical"`
	// Lines are the entitlements, the default pool's first, by key.
	Lines []Line `json:"lines"`
	// Held are the positions that are held and confer nothing. For an instant in the past: all positions held then.
	Held []Held `json:"held"`
	// Missing are the resource keys that no conferring position gives. Empty for an instant in the past.
	Missing []Missing `json:"missing"`
}

// Line is one entitlement of one pool.
type Line struct {
	Pool  string `json:"pool"`
	Key   string `json:"key"`
	Value Value  `json:"value"`
	// Since is when it became so; nil where that is not yet written, for an instant in the future.
	Since *time.Time `json:"since"`
	// Reasons are the conferring positions that give the key.
	Reasons []Reason `json:"reasons,omitempty"`
	// Act and Workflow are set for an instant in the past: what made it so.
	Act      string `json:"act,omitempty"`
	Workflow string `json:"workflow,omitempty"`
}

// Position identifies a position to a person.
type Position struct {
	// ID is the zero UUID for a floor that is due and not yet restored: it confers, and is written when its pool is settled next.
	ID          uuid.UUID `json:"position_id,omitzero"`
	Product     string    `json:"product"`
	ProductName string    `json:"product_name"`
	// Ladder is the slug of the product's ladder, "" for none; Rank its tier there, 0 for the floor.
	Ladder string `json:"ladder,omitempty"`
	Rank   int    `json:"rank,omitempty"`
	// Source is "subscription", "grant" or "default".
	Source         string `json:"source"`
	SubscriptionID string `json:"subscription_id,omitempty"`
	ItemID         string `json:"item_id,omitempty"`
	// Grant is set where the source is one.
	Grant    *GrantSource `json:"grant,omitempty"`
	Quantity int64        `json:"quantity"`
	// Status is "active", "suspended" or, for an instant in the past, "" since that is not kept.
	Status string    `json:"status,omitempty"`
	Since  time.Time `json:"since"`
	// Until is the end that is already known, nil for none.
	Until *time.Time `json:"until,omitempty"`
}

// IsDueFloor says that the position is a floor that is due and not yet restored.
func (p Position) IsDueFloor() bool { return p.ID == uuid.Nil }

// GrantSource is the grant that a position comes from.
type GrantSource struct {
	ID uuid.UUID `json:"id"`
	// Line is the first grant of its line.
	Line uuid.UUID `json:"line"`
	// State is the grant's: "waiting", "active", "replaced", "extended", "expired" or "revoked".
	State string `json:"state"`
	// Origin is "operator" or "grandfathered".
	Origin string `json:"origin"`
	Note   string `json:"note,omitempty"`
}

// grantSource makes the source of the columns of a grant, nil where there is none.
func grantSource(id, line *uuid.UUID, state, note, origin *string) *GrantSource {
	if id == nil || line == nil {
		return nil
	}
	return &GrantSource{ID: *id, Line: *line, State: deref(state), Origin: deref(origin), Note: deref(note)}
}

// Reason is a conferring position and what it gives of one key.
type Reason struct {
	Position
	// Contributes is what it gives, its quantity included where values are added up.
	Contributes Value `json:"contributes"`
}

// Why a held position confers nothing.
const (
	WhySuspended  = "suspended"    // its subscription is suspended; it keeps its place
	WhyOutranked  = "outranked"    // a higher tier of its ladder is held
	WhyNotInForce = "not_in_force" // its time has not come, or is over
	WhyNoRules    = "no_rules"     // its product carries no rule
	WhyRemoved    = "tier_removed" // its tier was removed while it was held, and nothing takes its place
)

// Held is a position that is held and confers nothing.
type Held struct {
	Pool string `json:"pool"`
	Position
	// Why is one of the Why constants, empty for an instant in the past.
	Why string `json:"why,omitempty"`
	// OutrankedBy is the position in its way where Why is WhyOutranked, or where it is suspended and outranked too.
	OutrankedBy *Position `json:"outranked_by,omitempty"`
	// EndedAt and EndReason are set for an instant in the past, where the position has ended since.
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	EndReason string     `json:"end_reason,omitempty"`
	// Keys are the resource keys that it would give.
	Keys []string `json:"keys,omitempty"`
}

// Missing is a resource key that the organisation has nothing of.
type Missing struct {
	Key string `json:"key"`
	// Products are the slugs of those that would give it.
	Products []string `json:"products"`
}

// Effective reports what an organisation may use at an instant, and why; the zero time is now. What is held counts by
// its bounds, whether or not a sweep has run. An instant in the past is told from the ledger.
func Effective(ctx context.Context, q lockorder.Querier, organization uuid.UUID, at time.Time) (Report, error) {
	db := entitlementsdb.New(q)
	var instant *time.Time
	if !at.IsZero() {
		past, err := db.IsPast(ctx, at)
		if err != nil {
			return Report{}, fmt.Errorf("reading the clock: %w", err)
		}
		if past {
			return historic(ctx, db, organization, at)
		}
		instant = &at
	}
	// One statement, so that what is shown was so at one moment.
	rows, err := db.ReportPositions(ctx, entitlementsdb.ReportPositionsParams{OrganizationID: organization, At: instant})
	if err != nil {
		return Report{}, fmt.Errorf("reading the positions of organisation %s: %w", organization, err)
	}
	carriers, err := db.ReportCarriers(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("reading which products give which keys: %w", err)
	}
	if len(rows) == 0 {
		return Report{}, &notFoundError{what: "organisation", asked: organization.String()}
	}
	b := reportBuilder{positions: map[uuid.UUID]*gathered{}}
	for _, r := range rows {
		b.add(r)
	}
	return Report{At: rows[0].At.UTC(), Lines: append([]Line{}, b.lines...), Held: b.held(), Missing: b.missing(carriers)}, nil
}

// gathered is a position met in the rows, which repeat it for each of its rules.
type gathered struct {
	Held
	inForce, confers, removed bool
	outrankedBy               uuid.UUID
}

type reportBuilder struct {
	lines     []Line
	positions map[uuid.UUID]*gathered
	order     []uuid.UUID
}

func (b *reportBuilder) add(r entitlementsdb.ReportPositionsRow) {
	if r.Product == nil {
		return // a pool that holds nothing
	}
	var id uuid.UUID // zero for the floor that is due: one pool has one
	if r.PositionID != nil {
		id = *r.PositionID
	}
	g := b.positions[id]
	if g == nil {
		g = &gathered{inForce: r.InForce, confers: r.Confers, removed: r.Removed, outrankedBy: r.OutrankedBy}
		g.Pool = r.Pool
		g.Position = Position{
			ID: id, Product: *r.Product, ProductName: deref(r.ProductName), Ladder: deref(r.Ladder),
			Source: r.Source, SubscriptionID: deref(r.SubscriptionID), ItemID: deref(r.ItemID), Grant: grantSource(r.GrantID, r.Line, r.GrantState, r.Note, r.Origin),
			Quantity: r.Quantity, Status: r.Status, Since: r.StartsAt.UTC(), Until: utc(r.EndsAt),
		}
		if r.Rank != nil {
			g.Rank = int(*r.Rank)
		}
		b.positions[id] = g
		b.order = append(b.order, id)
	}
	if r.ResourceKey == nil {
		return // a product without rules
	}
	key, rule := *r.ResourceKey, valueOf(r.NumericValue, r.BooleanValue)
	if len(g.Keys) == 0 || g.Keys[len(g.Keys)-1] != key {
		g.Keys = append(g.Keys, key)
	}
	if !r.Confers {
		return
	}
	sum := deref(r.Aggregation) == "sum"
	if sum {
		rule.Number *= r.Quantity
	}
	line := b.line(r)
	for i := range line.Reasons {
		if line.Reasons[i].ID == g.ID { // two of its sets give the key
			line.Reasons[i].Contributes = combine(line.Reasons[i].Contributes, rule, sum)
			return
		}
	}
	line.Reasons = append(line.Reasons, Reason{Position: g.Position, Contributes: rule})
}

// line returns the line of a row's pool and key. Rows come in their order.
func (b *reportBuilder) line(r entitlementsdb.ReportPositionsRow) *Line {
	if n := len(b.lines); n > 0 && b.lines[n-1].Pool == r.Pool && b.lines[n-1].Key == *r.ResourceKey {
		return &b.lines[n-1]
	}
	line := Line{Pool: r.Pool, Key: *r.ResourceKey, Value: Number(r.TotalNumber)}
	if deref(r.Kind) == Boolean {
		line.Value = Yes(r.TotalYes)
	}
	if r.Materialized {
		line.Since = utc(r.ChangedAt)
	}
	b.lines = append(b.lines, line)
	return &b.lines[len(b.lines)-1]
}

func combine(a, b Value, sum bool) Value {
	switch {
	case a.Kind == Boolean:
		return Yes(a.Yes || b.Yes)
	case sum:
		return Number(a.Number + b.Number)
	}
	return Number(max(a.Number, b.Number))
}

func (b *reportBuilder) held() []Held {
	held := []Held{}
	for _, id := range b.order {
		g := b.positions[id]
		switch {
		case g.removed:
			g.Why = WhyRemoved
		case !g.inForce:
			g.Why = WhyNotInForce
		case g.Status == statusSuspended:
			g.Why = WhySuspended
		case !g.confers:
			g.Why = WhyOutranked
		case len(g.Keys) == 0:
			g.Why = WhyNoRules
		default:
			continue
		}
		if above := b.positions[g.outrankedBy]; above != nil && g.outrankedBy != uuid.Nil {
			g.OutrankedBy = &above.Position
		}
		held = append(held, g.Held)
	}
	return held
}

func (b *reportBuilder) missing(carriers []entitlementsdb.ReportCarriersRow) []Missing {
	had := map[string]bool{}
	for _, l := range b.lines {
		had[l.Key] = true
	}
	missing := []Missing{}
	for _, c := range carriers {
		if had[c.Key] {
			continue
		}
		if n := len(missing); n == 0 || missing[n-1].Key != c.Key {
			missing = append(missing, Missing{Key: c.Key, Products: []string{}})
		}
		last := &missing[len(missing)-1]
		if n := len(last.Products); c.Product != "" && (n == 0 || last.Products[n-1] != c.Product) {
			last.Products = append(last.Products, c.Product)
		}
	}
	return missing
}

// historic tells the report of an instant in the past from the ledger and from the positions that were held.
func historic(ctx context.Context, db *entitlementsdb.Queries, organization uuid.UUID, at time.Time) (Report, error) {
	lines, err := db.ReportHistoricLines(ctx, entitlementsdb.ReportHistoricLinesParams{OrganizationID: organization, At: at})
	if err != nil {
		return Report{}, fmt.Errorf("reading the ledger of organisation %s: %w", organization, err)
	}
	positions, err := db.ReportHistoricPositions(ctx, entitlementsdb.ReportHistoricPositionsParams{OrganizationID: organization, At: at})
	if err != nil {
		return Report{}, fmt.Errorf("reading the positions of organisation %s: %w", organization, err)
	}
	report := Report{At: at.UTC(), Historical: true, Lines: []Line{}, Held: []Held{}, Missing: []Missing{}}
	for _, l := range lines {
		line := Line{Pool: l.Pool, Key: l.ResourceKey, Since: utc(&l.At), Act: l.Act, Workflow: l.Workflow}
		if l.ToValue == nil {
			continue // it ended before
		}
		if err := line.Value.UnmarshalJSON(l.ToValue); err != nil {
			return Report{}, fmt.Errorf("reading the ledger: %w", err)
		}
		report.Lines = append(report.Lines, line)
	}
	for _, p := range positions {
		report.Held = append(report.Held, Held{
			Pool: p.Pool, EndedAt: utc(p.EndedAt), EndReason: deref(p.EndReason),
			Position: Position{
				ID: p.PositionID, Product: p.Product, ProductName: p.ProductName, Source: p.Source,
				SubscriptionID: deref(p.SubscriptionID), ItemID: deref(p.ItemID), Grant: grantSource(p.GrantID, p.Line, p.GrantState, p.Note, p.Origin),
				Quantity: p.Quantity, Since: p.StartsAt.UTC(),
			},
		})
	}
	return report, nil
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
