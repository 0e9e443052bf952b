package lockorder_test

import (
	"fmt"
	"slices"
	"time"
)

// durations prints as percentiles.
type durations []time.Duration

func (d durations) String() string {
	if len(d) == 0 {
		return "none"
	}
	sorted := slices.Sorted(slices.Values(d))
	at := func(percent int) time.Duration {
		return sorted[(len(sorted)-1)*percent/100].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("p50 %s, p90 %s, p99 %s, max %s", at(50), at(90), at(99), at(100))
}
