package lockorder

import "fmt"

// lane holds a place for each transaction that may wait for a lock at one time. A waiter costs a connection: without
// a bound, those that wait for one hot key would take them all. It is shared by every handle of one pool.
type lane chan struct{}

// newLane makes a lane of a share of a pool's connections, of one place at least.
func newLane(share float64, conns int32) lane {
	return make(lane, max(1, int(min(share, 1)*float64(conns))))
}

// Lane returns how many transactions hold a place to wait for a lock just now, and how many places there are.
func (db *DB) Lane() (inUse, size int) { return len(db.lane), cap(db.lane) }

// enter takes a place, or answers an error that wraps ErrBusy at once: nobody waits for a place.
func (l lane) enter() (leave func(), err error) {
	select {
	case l <- struct{}{}:
		return func() { <-l }, nil
	default:
		return nil, fmt.Errorf("another transaction holds it, and the lane is full: %d already wait for locks: %w", cap(l), ErrBusy)
	}
}
