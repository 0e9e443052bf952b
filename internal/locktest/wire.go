package locktest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

// tap sees what an act sends and when it is answered.
type tap interface {
	// send is called before something is sent, and returns when it may be.
	send(what string)
	// answered is called when the answer has arrived, before it is read, or when there will be none.
	answered(what string)
}

// tapDial makes connections whose flights the tap sees.
func tapDial(dial pgconn.DialFunc, seen tap) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &tappedConn{Conn: conn, seen: seen, texts: map[string]string{}}, nil
	}
}

// tappedConn is a connection to PostgreSQL. pgx writes one flight in one Write, and may read while it writes.
type tappedConn struct {
	net.Conn
	seen  tap
	texts map[string]string // of prepared statements, by name; used by Write alone

	mu     sync.Mutex
	flying string // the flight that is not answered yet
}

func (c *tappedConn) Write(b []byte) (int, error) {
	flight := c.flight(b)
	if flight == "" {
		return c.Conn.Write(b)
	}
	c.seen.send(flight)
	c.mu.Lock()
	c.flying = flight
	c.mu.Unlock()
	n, err := c.Conn.Write(b)
	if err != nil {
		c.land()
	}
	return n, err
}

func (c *tappedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	// ReadyForQuery ends the answer of a flight, whatever is in it.
	if timeout, is := err.(net.Error); n >= 6 && bytes.Equal(b[n-6:n-1], []byte{'Z', 0, 0, 0, 5}) || err != nil && !(is && timeout.Timeout()) {
		c.land()
	}
	return n, err
}

func (c *tappedConn) Close() error {
	c.land()
	return c.Conn.Close()
}

// land reports the answer of what flies.
func (c *tappedConn) land() {
	c.mu.Lock()
	flight := c.flying
	c.flying = ""
	c.mu.Unlock()
	if flight != "" {
		c.seen.answered(flight)
	}
}

// flight says what a write executes; empty when it executes nothing: it opens or cancels, or only prepares.
func (c *tappedConn) flight(b []byte) string {
	var executed []string
	bound := ""
	for len(b) >= 5 && b[0] != 0 { // what opens a connection, or cancels through one, begins with a length instead of a type
		size := 1 + int(binary.BigEndian.Uint32(b[1:]))
		if size > len(b) {
			break
		}
		body := b[5:size]
		switch b[0] {
		case 'P': // Parse: name, text
			name, rest, _ := bytes.Cut(body, []byte{0})
			text, _, _ := bytes.Cut(rest, []byte{0})
			c.texts[string(name)] = string(text)
		case 'B': // Bind: portal, name
			_, rest, _ := bytes.Cut(body, []byte{0})
			name, _, _ := bytes.Cut(rest, []byte{0})
			bound = c.texts[string(name)]
		case 'E': // Execute
			executed = append(executed, brief(bound))
		case 'Q': // Query: text
			text, _, _ := bytes.Cut(body, []byte{0})
			executed = append(executed, brief(string(text)))
		}
		b = b[size:]
	}
	switch len(executed) {
	case 0:
		return ""
	case 1, 2:
		return strings.Join(executed, "; ")
	}
	return fmt.Sprintf("%s; and %d more", executed[0], len(executed)-1)
}

// brief is the beginning of a statement, in one line.
func brief(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	const most = 70
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return text
}

// tappedTransport makes HTTP calls that the tap sees.
type tappedTransport struct {
	base http.RoundTripper
	seen tap
}

func (t tappedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.seen == nil {
		return t.base.RoundTrip(r)
	}
	call := r.Method + " " + r.URL.Path
	t.seen.send(call)
	defer t.seen.answered(call)
	return t.base.RoundTrip(r)
}
