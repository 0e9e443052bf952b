package billing

import (
	"context"
	"fmt"
	"time"

	"github.com/bursarhq/bursar/billing/internal/billingdb"
	"github.com/bursarhq/bursar/lockorder"
)

// Period is a standing paid period of one item, the end excluded. Times are UTC.
type Period struct {
	ItemID     string
	Start, End time.Time
}

// Periods returns the standing periods of a subscription's items, by item and start.
func Periods(ctx context.Context, q lockorder.Querier, subscriptionID string) ([]Period, error) {
	rows, err := billingdb.New(q).ReadPeriods(ctx, subscriptionID)
	if err != nil {
		return nil, fmt.Errorf("reading the periods of subscription %s: %w", subscriptionID, err)
	}
	periods := make([]Period, 0, len(rows))
	for _, r := range rows {
		periods = append(periods, Period{ItemID: r.ItemID, Start: r.PeriodStart.UTC(), End: r.PeriodEnd.UTC()})
	}
	return periods, nil
}

// recordPeriods makes start to end the current period of each item, whatever stands. A period that begins later was
// overtaken and is marked superseded; one that reaches into the new one is cut short at its start (a trial that ended
// early, another interval); one with the same start takes over the end. Only then is a new one added, so that the
// exclusion constraint never has a reason to refuse. A missing or empty period records nothing. It tells whether
// anything changed.
func recordPeriods(ctx context.Context, tx *lockorder.Tx, subscriptionID string, items []string, start, end *time.Time) (changed bool, err error) {
	if start == nil || end == nil || !end.After(*start) || len(items) == 0 {
		return false, nil
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return false, err
	}
	q := billingdb.New(tx)
	steps := []struct {
		doing string
		do    func() (int64, error)
	}{
		{"superseding", func() (int64, error) {
			return q.SupersedePeriods(ctx, billingdb.SupersedePeriodsParams{SubscriptionID: subscriptionID, Items: items, PeriodStart: *start, At: now})
		}},
		{"cutting short", func() (int64, error) {
			return q.TruncatePeriods(ctx, billingdb.TruncatePeriodsParams{SubscriptionID: subscriptionID, Items: items, PeriodStart: *start})
		}},
		{"adjusting", func() (int64, error) {
			return q.ResizePeriods(ctx, billingdb.ResizePeriodsParams{SubscriptionID: subscriptionID, Items: items, PeriodStart: *start, PeriodEnd: *end})
		}},
		{"adding", func() (int64, error) {
			return q.AddPeriods(ctx, billingdb.AddPeriodsParams{SubscriptionID: subscriptionID, Items: items, PeriodStart: *start, PeriodEnd: *end, At: now})
		}},
	}
	for _, step := range steps {
		n, err := step.do()
		if err != nil {
			return false, fmt.Errorf("%s periods of subscription %s: %w", step.doing, subscriptionID, err)
		}
		changed = changed || n > 0
	}
	return changed, nil
}
