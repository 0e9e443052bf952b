package lockview

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/internal/pgtest"
	"github.com/bursarhq/bursar/lockorder"
)

var stored = flag.Int("identities", 1_000_000, "how many subscriptions the benchmarks store")

// BenchmarkLook measures each answer with a million identities stored, and 40 sessions that hold four keys each, half of which
// wait, as a role that may only watch. An answer should take less than 100 ms.
func BenchmarkLook(b *testing.B) {
	d := pgtest.New(b)
	conn := d.Conn(b)
	exec(b, conn, subscriptions, *stored)
	exec(b, conn, `ANALYZE stripe.subscriptions`)
	const sessions = 40
	key := func(n int) int64 { return lockorder.SubscriptionKey(fmt.Sprint("sub_", n)).Key() }
	for i := range sessions {
		c := as(b, d, fmt.Sprintf("subscription/sub_%d#subscription-reconcile", 4*i+1))
		for n := range 4 {
			exec(b, c, `SELECT pg_advisory_lock($1)`, key(4*i+n+1))
		}
		if i%2 == 1 {
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = c.Exec(context.Background(), fmt.Sprintf(`SELECT pg_advisory_lock(%d)`, key(4*(i-1)+1)))
			}()
			b.Cleanup(func() { _ = c.PgConn().CancelRequest(context.Background()); <-done })
		}
	}
	q := opened(b, role(b, d, "pg_read_all_stats"))
	require.Eventually(b, func() bool {
		s, err := Look(b.Context(), q)
		require.NoError(b, err)
		n, _ := s.Waiting()
		return n == sessions/2
	}, 15*time.Second, 20*time.Millisecond)

	b.Run("locks", func(b *testing.B) {
		for b.Loop() {
			s, err := Look(b.Context(), q)
			if err != nil || len(s.Sessions) != sessions {
				b.Fatal(len(s.Sessions), err)
			}
		}
	})
	for name, number := range map[string]int64{"explain/held": key(1), "explain/stored": key(*stored), "explain/unknown": 4711} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				e, err := Explain(b.Context(), q, number)
				if err != nil || (e.Lock.Class == "") != (number == 4711) {
					b.Fatal(e, err)
				}
			}
		})
	}
}
