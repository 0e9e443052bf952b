package lockmetrics

import (
	"context"

	"go.opentelemetry.io/otel"

	"github.com/bursarhq/bursar/internal/telemetry"
	"github.com/bursarhq/bursar/lockorder"
)

// Open is lockorder.Open, with the database's locks measured where the environment asks for metrics. It may come before
// telemetry.Setup: what is measured goes to the process's provider from the moment there is one.
func Open(ctx context.Context, url string, options lockorder.Options) (*lockorder.DB, error) {
	if !telemetry.MetricsEnabled() {
		return lockorder.Open(ctx, url, options)
	}
	metrics, err := New(otel.GetMeterProvider())
	if err != nil {
		return nil, err
	}
	metrics.Configure(&options)
	db, err := lockorder.Open(ctx, url, options)
	if err != nil {
		return nil, err
	}
	if err := metrics.Watch(db); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}
