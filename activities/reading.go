package activities

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// readTimeout bounds one read outside a transaction, the wait for a connection included: such a read has no budget of its
// own, and nothing else would end it for an activity, whose heartbeat goes on meanwhile.
const readTimeout = 10 * time.Second

// errReading is the cause that ends a read which takes longer.
var errReading = errors.New("the database did not answer a read within " + readTimeout.String())

// reading runs a read of the database within readTimeout.
func reading[T any](ctx context.Context, read func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, errReading)
	defer cancel()
	got, err := read(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errReading) {
		err = fmt.Errorf("%w: %w", errReading, err)
	}
	return got, err
}
