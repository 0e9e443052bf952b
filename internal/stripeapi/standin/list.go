package standin

import (
	"net/http"
	"slices"
	"time"
)

// window is the page that a list call asks for.
type window struct {
	limit         int
	after, before string
	created       timeRange
}

// timeRange is a filter on creation times; zero bounds are open.
type timeRange struct{ gte, lte time.Time }

func (t timeRange) holds(at time.Time) bool {
	return (t.gte.IsZero() || !at.Before(t.gte)) && (t.lte.IsZero() || !at.After(t.lte))
}

// window reads the parameters that all lists share.
func (r *request) window() window {
	w := window{limit: 10, after: r.form.str("starting_after"), before: r.form.str("ending_before")}
	if n := r.form.integer("limit"); n != nil {
		if *n < 1 || *n > 100 {
			r.form.fail(invalid("limit", "Invalid limit: must be between 1 and 100"))
		}
		w.limit = int(*n)
	}
	if w.after != "" && w.before != "" {
		r.form.fail(invalid("ending_before", "You may only specify one of these parameters: starting_after, ending_before."))
	}
	return w
}

// createdRange reads the created parameter: a second, or any of gt, gte, lt, lte. Times are whole seconds.
func (r *request) createdRange() timeRange {
	n, ok := r.form.get("created")
	if !ok {
		return timeRange{}
	}
	if n.leaf {
		at := r.form.moment("created")
		return timeRange{gte: at, lte: at}
	}
	g := r.form.sub("created")
	if g == nil {
		return timeRange{}
	}
	out := timeRange{gte: g.moment("gte"), lte: g.moment("lte")}
	if gt := g.moment("gt"); !gt.IsZero() {
		out.gte = later(out.gte, gt.Add(time.Second))
	}
	if lt := g.moment("lt"); !lt.IsZero() {
		lt = lt.Add(-time.Second)
		if out.lte.IsZero() || lt.Before(out.lte) {
			out.lte = lt
		}
	}
	return out
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// page cuts the window out of ids, which are newest first, and wraps it as a list object.
func page(ids []string, w window, kind, url string, render func(id string) object) (object, *apiError) {
	more := false
	switch {
	case w.after != "":
		i := slices.Index(ids, w.after)
		if i < 0 {
			return nil, missing(http.StatusBadRequest, kind, w.after, "starting_after")
		}
		ids = ids[i+1:]
	case w.before != "":
		i := slices.Index(ids, w.before)
		if i < 0 {
			return nil, missing(http.StatusBadRequest, kind, w.before, "ending_before")
		}
		ids = ids[:i]
		if len(ids) > w.limit { // those nearest to the cursor
			ids, more = ids[len(ids)-w.limit:], true
		}
	}
	if len(ids) > w.limit {
		ids, more = ids[:w.limit], true
	}
	data := make([]object, 0, len(ids))
	for _, id := range ids {
		data = append(data, render(id))
	}
	return object{"object": "list", "data": data, "has_more": more, "url": url}, nil
}
