package devstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
)

// loopback is the only address that the parts listen on.
const loopback = "127.0.0.1"

// portAttempts is how many ports a start tries when others keep taking them.
const portAttempts = 5

// freePort returns a port of the loopback address that nobody listens on. It may be taken before it is used, so
// whoever uses it tries again with another one.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return 0, fmt.Errorf("find a free port on %s: %w", loopback, err)
	}
	defer listener.Close()
	// A connection closed from the listening side leaves the port in TIME_WAIT. The kernel then hands it to no
	// other process that asks for "any port" for a minute, yet lets one that names it bind to it: two starts at
	// the same time do not get the same port.
	dialled, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return 0, fmt.Errorf("reserve a port on %s: %w", loopback, err)
	}
	defer dialled.Close()
	accepted, err := listener.Accept()
	if err != nil {
		return 0, fmt.Errorf("reserve a port on %s: %w", loopback, err)
	}
	_ = accepted.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// errPortTaken marks the failure of a start whose port somebody else has; it is worth another try.
var errPortTaken = errors.New("its port was taken")

// markPortTaken adds [errPortTaken] to err when the log of the part speaks of a port that somebody else has.
func markPortTaken(err error, logPath string) error {
	log, readErr := os.ReadFile(logPath)
	if readErr != nil {
		return err
	}
	if bytes.Contains(bytes.ToLower(log), []byte("address already in use")) {
		return fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return err
}

// onFreePort calls start, which takes a free port itself, again while others keep taking its port.
func onFreePort[T any](ctx context.Context, start func() (T, error)) (T, error) {
	for attempt := 1; ; attempt++ {
		part, err := start()
		if err == nil || attempt == portAttempts || ctx.Err() != nil || !errors.Is(err, errPortTaken) {
			return part, err
		}
	}
}
