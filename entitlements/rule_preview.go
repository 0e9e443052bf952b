package entitlements

import (
	"context"
	"fmt"
	"strconv"

	"github.com/bursarhq/bursar/entitlements/internal/entitlementsdb"
	"github.com/bursarhq/bursar/lockorder"
)

// RulePreview is what a change of rules would do, without what it does in each pool.
type RulePreview struct {
	Summary string `json:"summary"`
	// Pools is how many pools hold a product with the set, Changed in how many of them an entitlement changes, Entitlements how
	// many do.
	Pools        int `json:"pools"`
	Changed      int `json:"changed"`
	Entitlements int `json:"entitlements"`
	// Unsettled is how many pools could not be settled, because a sum would be greater than an entitlement can be.
	Unsettled int `json:"unsettled"`
	// AtOnce says that the pools would be settled in the change's own transaction; otherwise they are owed, and drained.
	AtOnce bool `json:"at_once"`
}

// PoolPreview is what a change of rules would do in one pool.
type PoolPreview struct {
	Effect
	// Problem says why the pool could not be settled, "" where it could.
	Problem string `json:"problem,omitempty"`
}

// previewPage is how many pools are looked at in one statement.
const previewPage = 500

// Preview looks at every pool that the change reaches, a page after another, and gives those in which something changes to each, in
// the order of their ids. It writes nothing and takes no lock, so what it finds may change meanwhile; each page is of one
// moment. What a pool may use is compared as it stands, what it is owed by other changes included. Errors wrap ErrNotFound
// or ErrInvalid; each may end it with an error of its own.
func (c AlterRules) Preview(ctx context.Context, q lockorder.Querier, each func(PoolPreview) error) (RulePreview, error) {
	if err := c.Check(); err != nil {
		return RulePreview{}, err
	}
	plan, err := c.plan(ctx, q)
	if err != nil {
		return RulePreview{}, err
	}
	deltas, err := plan.overlay()
	if err != nil {
		return RulePreview{}, fmt.Errorf("the deltas of set %s: %w", plan.slug, err)
	}
	p := RulePreview{Summary: plan.summary()}
	params := entitlementsdb.PreviewRulesParams{SetID: plan.set, Deltas: deltas, ProductIds: plan.carriers, Most: previewPage}
	for {
		rows, err := entitlementsdb.New(q).PreviewRules(ctx, params)
		if err != nil {
			return RulePreview{}, fmt.Errorf("previewing the change of set %s: %w", plan.slug, err)
		}
		pools, err := p.page(rows, each)
		if err != nil {
			return RulePreview{}, err
		}
		if pools < previewPage {
			p.AtOnce = p.Pools <= SyncCap
			return p, nil
		}
		params.After = rows[len(rows)-1].PoolID
	}
}

// page counts the rows of one page and gives its pools on. It returns how many pools there were.
func (p *RulePreview) page(rows []entitlementsdb.PreviewRulesRow, each func(PoolPreview) error) (pools int, err error) {
	for i := 0; i < len(rows); {
		one := PoolPreview{Effect: Effect{Organization: rows[i].Organization, Pool: rows[i].Pool}}
		for pool := rows[i].PoolID; i < len(rows) && rows[i].PoolID == pool; i++ {
			if rows[i].ResourceKey != "" {
				one.add(rows[i])
			}
		}
		pools++
		p.Pools++
		if len(one.Changes) == 0 && one.Problem == "" {
			continue
		}
		p.Changed++
		p.Entitlements += len(one.Changes)
		if one.Problem != "" {
			p.Unsettled++
		}
		if err := each(one); err != nil {
			return pools, err
		}
	}
	return pools, nil
}

// add adds one key of the pool.
func (p *PoolPreview) add(r entitlementsdb.PreviewRulesRow) {
	from, _ := previewed(r.FromValue)
	to, fits := previewed(r.ToValue)
	if !fits {
		p.Problem = fmt.Sprintf("%s would be %s, which is more than an entitlement can be", r.ResourceKey, r.ToValue)
		return
	}
	p.Changes = append(p.Changes, ValueChange{Key: r.ResourceKey, From: from, To: to})
}

// previewed reads a value as the query writes it, and says whether an entitlement can have it.
func previewed(text string) (v Value, fits bool) {
	switch text {
	case "":
		return Value{}, true
	case "true", "false":
		return Yes(text == "true"), true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return Number(n), err == nil
}
