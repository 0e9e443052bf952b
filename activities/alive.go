package activities

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
)

// aliveEvery is the pause between two signs of life. Temporal's time-out for them is a multiple of it.
const aliveEvery = 5 * time.Second

// keepAlive heartbeats for an activity that waits for another service, until the function that it returns is called. The
// wait is bounded by its own time-outs; the heartbeat says that the process is there, so that one that was killed is noticed
// long before them.
func keepAlive(ctx context.Context) (stop func()) {
	if !activity.IsActivity(ctx) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(aliveEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				activity.RecordHeartbeat(ctx)
			}
		}
	})
	return func() {
		cancel()
		done.Wait()
	}
}
