package ingress

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v79/webhook"
)

// verify checks that a payload was signed with one of the secrets at a time within tolerance of now. The outcome is
// empty when it was; else it says why not, and the error what to do, without the header's content.
func verify(payload []byte, header string, secrets []string, now time.Time, tolerance time.Duration) (outcome, error) {
	right := false
	for _, secret := range secrets {
		// Every secret is tried, whichever matches, and each comparison takes the same time whatever it compares. The age
		// is checked below: this package refuses only what is too old.
		err := webhook.ValidatePayloadIgnoringTolerance(payload, header, secret)
		if err == nil {
			right = true
		} else if errors.Is(err, webhook.ErrInvalidHeader) {
			return outcomeBadSignature, errors.New("the Stripe-Signature header is malformed")
		}
	}
	if !right {
		return outcomeBadSignature, errors.New("the signature does not match; check that the endpoint's signing secret is the one configured")
	}
	at, ok := signedAt(header)
	if !ok {
		return outcomeBadSignature, errors.New("the Stripe-Signature header has no time")
	}
	switch {
	case now.Sub(at) > tolerance:
		return outcomeTooOld, fmt.Errorf("the signature is older than %s; if the event is new, check this machine's clock", tolerance)
	case at.Sub(now) > tolerance:
		return outcomeInFuture, fmt.Errorf("the signature is from more than %s in the future; check this machine's clock", tolerance)
	}
	return "", nil
}

// signedAt returns the time that the signature covers: of several, the last, which is the one that was verified.
func signedAt(header string) (at time.Time, ok bool) {
	for _, pair := range strings.Split(header, ",") {
		if v, found := strings.CutPrefix(pair, "t="); found {
			sec, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				return time.Time{}, false
			}
			at, ok = time.Unix(sec, 0), true
		}
	}
	return at, ok
}
