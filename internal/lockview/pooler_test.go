package lockview

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

// TestThroughAPooler holds and looks through PgBouncer in transaction mode: the name is the transaction's, and goes with it.
func TestThroughAPooler(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db, err := lockorder.Open(t.Context(), d.PoolerURL(t), lockorder.Options{Pooled: true, Holder: Namer("cmd/org create")})
	require.NoError(t, err)
	defer db.Close()
	look := func() Snapshot {
		snapshot, err := Look(t.Context(), db.Reader())
		require.NoError(t, err)
		return snapshot
	}
	require.Empty(t, look().Sessions)
	inside, release, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- db.Run(t.Context(), lockorder.Spec{Path: "organization-create", Kind: lockorder.Materializing}, func(ctx context.Context, _ *lockorder.Tx) error {
			close(inside)
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	<-inside
	snapshot := look()
	require.Len(t, snapshot.Sessions, 1)
	require.Equal(t, "cmd/org create · organization-create", snapshot.Sessions[0].Name())
	require.Equal(t, "materialization (the rendezvous), shared", snapshot.Sessions[0].Holds[0].String())
	e, err := Explain(t.Context(), db.Reader(), lockorder.New(lockorder.Materialization).Key())
	require.NoError(t, err)
	require.Len(t, e.Holders, 1)
	close(release)
	require.NoError(t, <-done)
	require.Empty(t, look().Sessions)
}
