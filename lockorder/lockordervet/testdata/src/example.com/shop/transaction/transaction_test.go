package transaction

import "context"

// Tests play another process, which opens what it likes.
func plays(ctx context.Context, b beginner) {
	b.Begin(ctx)
}
