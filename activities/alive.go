package activities

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
)

// signsOfLife is how many signs of life are given within the time in which Temporal waits for one.
const signsOfLife = 4

// keepAlive heartbeats for an activity that waits for another service, until the function that it returns is called. The
// wait is bounded by its own time-outs; the heartbeat says that the process is there, so that one that was killed is noticed
// long before them. Where nobody waits for a heartbeat, it gives none.
func keepAlive(ctx context.Context) (stop func()) {
	if !activity.IsActivity(ctx) || activity.GetInfo(ctx).HeartbeatTimeout < signsOfLife {
		return func() {}
	}
	every := activity.GetInfo(ctx).HeartbeatTimeout / signsOfLife
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(every)
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
