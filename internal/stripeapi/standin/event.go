package standin

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// event is something that happened. Its object is the state of that moment and never changes.
type event struct {
	id, kind       string
	created        time.Time
	object         json.RawMessage
	previous       object
	requestID      string
	idempotencyKey string
	livemode       bool
	delivered      bool
	attempts       int
}

// emit records an event and hands it to the deliverer. The mutex must be held.
func (s *Server) emit(kind string, obj, diff object, livemode bool, r *request) *event {
	e := &event{id: s.ids.event(), kind: kind, created: s.now(), object: mustJSON(obj), previous: diff, livemode: livemode}
	if r != nil {
		e.requestID, e.idempotencyKey = r.id, r.key
	}
	s.events.put(e.id, e)
	s.hooks.add(e.id)
	return e
}

// changed emits kind when before and after differ.
func (s *Server) changed(kind string, before, after object, livemode bool, r *request) {
	if diff := previous(before, after); diff != nil {
		s.emit(kind, after, diff, livemode, r)
	}
}

func listEvents(s *Server, r *request) (object, *apiError) {
	kind, kinds, delivered := r.form.str("type"), r.form.strs("types"), r.form.boolean("delivery_success")
	w, created := r.window(), r.createdRange()
	if kind != "" && len(kinds) > 0 {
		r.form.fail(invalid("types", "You may only specify one of these parameters: type, types."))
	}
	if len(kinds) > 20 {
		r.form.fail(invalid("types", "Array must have at most 20 elements."))
	}
	if e := r.form.finish(); e != nil {
		return nil, e
	}
	ids := s.events.newestFirst(func(e *event) bool {
		return matches(kind, e.kind) && among(e.kind, kinds) && created.holds(e.created) &&
			(delivered == nil || *delivered == (e.delivered || !s.hooks.hooked()))
	})
	return page(ids, w, "event", "/v1/events", func(id string) object { return s.events.byID[id].render(s.hooks.hooked()) })
}

// matches compares an event type with a filter, in which * stands for any group: customer.*.
func matches(filter, kind string) bool {
	if prefix, ok := strings.CutSuffix(filter, "*"); ok {
		return strings.HasPrefix(kind, prefix)
	}
	return filter == "" || filter == kind
}

func getEvent(s *Server, r *request) (object, *apiError) {
	e, ok := s.events.get(r.PathValue("id"))
	if !ok {
		return nil, missing(http.StatusNotFound, "event", r.PathValue("id"), "id")
	}
	return e.render(s.hooks.hooked()), r.form.finish()
}
