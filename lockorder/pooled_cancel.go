package lockorder

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// cancelRest is how long a connection rests after a cancel request: the server has sent its signal by then, but the
// backend may take it a moment later, and must not take it in the next statement.
const cancelRest = 100 * time.Millisecond

// pooledCancel cancels a statement through a pooler. It differs from pgx's own in that the connection of the request
// stays open until the pooler closes it, even when the statement has ended by then: PgBouncer before 1.20 exits, with
// all its clients, when the one that asked hangs up while the request is still on its way to the server.
type pooledCancel struct {
	conn *pgconn.PgConn
	// bound ends a request that is not answered, and the statement with its connection.
	bound    time.Duration
	finished chan struct{}
}

// HandleCancel begins the request; the statement ends by it, or by the deadline.
func (h *pooledCancel) HandleCancel(context.Context) {
	h.finished = make(chan struct{})
	_ = h.conn.Conn().SetDeadline(time.Now().Add(h.bound)) // fails on a closed connection only
	go func() {
		defer close(h.finished)
		ctx, cancel := context.WithTimeout(context.Background(), h.bound)
		defer cancel()
		_ = h.conn.CancelRequest(ctx) // unsent, the deadline ends the statement
		time.Sleep(cancelRest)
	}()
}

// HandleUnwatchAfterCancel waits until the request cannot hit the next statement.
func (h *pooledCancel) HandleUnwatchAfterCancel() {
	<-h.finished
	_ = h.conn.Conn().SetDeadline(time.Time{})
}
