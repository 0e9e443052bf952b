package lockordervet

import (
	"go/token"
	"go/types"
	"maps"
)

// held is what is known of a transaction at one point of a function: what it may hold, on one path or another, and what it
// holds on each.
type held struct {
	top  class // the highest class that may be held
	from token.Pos
	any  bool
	now  token.Pos // where its time may have been read
	// taken are the classes of which locks may be held: a helper that asks for one may ask for the same lock again.
	taken map[class]bool
	// sure are the locks that each path to here has taken, by what they are written as, with the variables in that.
	sure map[string][]types.Object
}

func (h *held) take(c class) {
	if h.taken == nil {
		h.taken = map[class]bool{}
	}
	h.taken[c] = true
}

// state is held for each transaction of a function, by what it is written as. Nil is that of a point nobody has come to.
type state map[string]held

func (s state) clone() state {
	c := make(state, len(s))
	for tx, h := range s {
		sure := make(map[string][]types.Object, len(h.sure))
		for text, objs := range h.sure {
			sure[text] = objs
		}
		h.sure, h.taken = sure, maps.Clone(h.taken)
		c[tx] = h
	}
	return c
}

// join adds what another path brings to a point, and tells whether it is anything new.
func (s state) join(other state) (changed bool) {
	for tx, o := range other {
		h, ok := s[tx]
		if !ok {
			h = held{}
		}
		if o.any && (!h.any || o.top.Rank > h.top.Rank) {
			h.top, h.from, h.any, changed = o.top, o.from, true, true
		}
		if o.now.IsValid() && !h.now.IsValid() {
			h.now, changed = o.now, true
		}
		for c := range o.taken {
			if !h.taken[c] {
				h.take(c)
				changed = true
			}
		}
		s[tx] = h
	}
	for tx, h := range s {
		for text := range h.sure {
			if _, ok := other[tx].sure[text]; !ok {
				delete(h.sure, text)
				changed = true
			}
		}
	}
	return changed
}
