package ingress

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bursarhq/bursar/workflows/contract"
)

// event is what is used of a webhook: ids and the type.
type event struct {
	id, kind string
	// wanted is false for a type that Bursar has no use for.
	wanted bool
	// subscription is the id of the subscription that the event is about, empty when it names none.
	subscription string
	// session is the id of the checkout session that made it, for the two events of a paid checkout.
	session string
}

func (e event) signal() contract.ReconcileSignal {
	return contract.ReconcileSignal{EventID: e.id, EventType: e.kind, CheckoutSession: e.session}
}

// errBadID marks an id that cannot be one of Stripe's.
var errBadID = errors.New("impossible id")

// families are the groups of types that concern a subscription, and how each names it.
var families = []struct {
	prefix string
	read   func(*event, fields) error
}{
	{"customer.subscription.", readSubscription},
	{"invoice.", readInvoice},
	{"subscription_schedule.", readSchedule},
}

// paidCheckouts are the types of a checkout whose subscription exists and is paid.
var paidCheckouts = []string{"checkout.session.completed", "checkout.session.async_payment_succeeded"}

// parseEvent reads a verified payload. An error says what is wrong with it, without quoting it, save that a bad id is
// named by its field.
func parseEvent(payload []byte) (event, error) {
	var envelope struct {
		ID   string `json:"id"`
		Type string `json:"type"`
		Data struct {
			Object json.RawMessage `json:"object"`
		} `json:"data"`
	}
	if err := json.Unmarshal(payload, &envelope); err != nil {
		return event{}, errors.New("the body is not the JSON of a Stripe event")
	}
	e := event{id: envelope.ID, kind: envelope.Type}
	if e.id == "" || e.kind == "" {
		return event{}, errors.New("the event has no id or no type")
	}
	if !plain(strings.ReplaceAll(e.kind, ".", "_")) {
		return event{}, errors.New("the event's type is none that Stripe could send")
	}
	if !plain(e.id) {
		return event{}, fmt.Errorf("%w: the event's own", errBadID)
	}
	read := reader(e.kind)
	if read == nil {
		return e, nil
	}
	e.wanted = true
	var obj fields
	if err := json.Unmarshal(envelope.Data.Object, &obj); err != nil || obj == nil {
		return e, errors.New("data.object is missing or not an object")
	}
	return e, read(&e, obj)
}

// reader returns how to read the objects of a type, nil for a type without use.
func reader(kind string) func(*event, fields) error {
	if slices.Contains(paidCheckouts, kind) {
		return readCheckout
	}
	for _, f := range families {
		if strings.HasPrefix(kind, f.prefix) {
			return f.read
		}
	}
	return nil
}

func readSubscription(e *event, obj fields) error {
	id, err := obj.id("id", "sub_")
	if err == nil && id == "" {
		return errors.New("data.object has no id")
	}
	e.subscription = id
	return err
}

// readInvoice finds the subscription where this and where later API versions put it.
func readInvoice(e *event, obj fields) (err error) {
	if e.subscription, err = obj.id("subscription", "sub_"); err != nil || e.subscription != "" {
		return err
	}
	parent, err := obj.sub("parent")
	if err != nil {
		return err
	}
	details, err := parent.sub("subscription_details")
	if err != nil {
		return err
	}
	e.subscription, err = details.id("subscription", "sub_")
	return err
}

// readSchedule reads also the subscription that a schedule has let go of: once released it no longer is "subscription".
func readSchedule(e *event, obj fields) (err error) {
	if e.subscription, err = obj.id("subscription", "sub_"); err != nil || e.subscription != "" {
		return err
	}
	e.subscription, err = obj.id("released_subscription", "sub_")
	return err
}

func readCheckout(e *event, obj fields) (err error) {
	if e.subscription, err = obj.id("subscription", "sub_"); err != nil || e.subscription == "" {
		return err
	}
	e.session, err = obj.id("id", "cs_")
	return err
}

// fields are the members of a JSON object, still encoded. A nil one has no members.
type fields map[string]json.RawMessage

// sub returns a nested object, nil when it is absent or null.
func (f fields) sub(name string) (fields, error) {
	raw, ok := f[name]
	if !ok {
		return nil, nil
	}
	var out fields
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, fmt.Errorf("%s is not an object", name)
	}
	return out, nil
}

// id returns the id in a member: a text, or an object (an expanded one) that has it. It is empty when the member is
// absent or null, and an error when it cannot be an id with the prefix.
func (f fields) id(name, prefix string) (string, error) {
	raw := bytes.TrimSpace(f[name])
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var id string
	if raw[0] == '{' {
		var expanded struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(raw, &expanded); err != nil {
			return "", fmt.Errorf("%w: %s is an object without an id", errBadID, name)
		}
		id = expanded.ID
	} else if err := json.Unmarshal(raw, &id); err != nil {
		return "", fmt.Errorf("%w: %s is neither a text nor an object", errBadID, name)
	}
	if !strings.HasPrefix(id, prefix) || len(id) == len(prefix) || !plain(id) {
		return "", fmt.Errorf("%w: %s must be %s followed by letters, digits and underscores, at most 255 in all", errBadID, name, prefix)
	}
	return id, nil
}

// plain reports whether an id has only the characters that Stripe's ids have, and no more than fit.
func plain(id string) bool {
	if len(id) > 255 {
		return false
	}
	for _, c := range []byte(id) {
		if c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}
