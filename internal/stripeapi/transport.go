package stripeapi

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
)

// refuse is the transport of a client whose configuration is invalid.
type refuse struct{ reason error }

func (r refuse) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &Error{Kind: KindAuth, Message: r.reason.Error()}
}

// loopback reports whether host names this machine only.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// leveled passes what the Stripe client says to slog. Debug carries whole response bodies and info one line per request
// that the span already tells, so both are dropped. A warning announces a retry. An error line repeats what is returned
// as an error, and may hold a sample of a body: only the fact is logged, at debug.
type leveled struct {
	logger *slog.Logger
	key    string
}

func (l leveled) Debugf(string, ...interface{}) {}

func (l leveled) Infof(string, ...interface{}) {}

func (l leveled) Warnf(format string, v ...interface{}) {
	l.logger.Warn("stripe client", "message", scrub(fmt.Sprintf(format, v...), l.key))
}

func (l leveled) Errorf(string, ...interface{}) {
	l.logger.Debug("stripe client: a call failed; the caller has the error")
}

// scrub removes the key from a text that may be shown.
func scrub(text, key string) string {
	if len(key) < 8 {
		return text
	}
	return strings.ReplaceAll(text, key, "[key]")
}
