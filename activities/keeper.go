package activities

import (
	"context"

	"github.com/bursarhq/bursar/workflows/contract"
)

// KeepStarter signals a workflow of a fixed id, starting it where none runs.
type KeepStarter interface {
	Keep(ctx context.Context, in contract.KeeperInput) error
}

// Keeper is the activity that keeps workflows running.
type Keeper struct {
	Starter KeepStarter
}

// Keep signals the workflow to look again, and starts it where it does not run.
//
// Running it twice is safe: a second signal makes the workflow look once more, which finds nothing new.
func (k *Keeper) Keep(ctx context.Context, in contract.KeeperInput) error {
	return translate(ctx, k.Starter.Keep(ctx, in))
}
