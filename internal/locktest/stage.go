package locktest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	// asleepAfter is how long an actor may do nothing that can be seen before the others go on without it.
	asleepAfter = 100 * time.Millisecond
	// stuckAfter is how long all may wait before the schedule has failed.
	stuckAfter = 40 * time.Second
)

// stage holds actors back until they are let go, step by step.
type stage struct {
	mu    sync.Mutex
	moved chan struct{} // something has happened
	open  bool          // nobody is held back
	seats []*seat
	// blocked answers which actors, by name, wait in the server for a lock that another holds.
	blocked func(ctx context.Context) (map[string]bool, error)
}

// seat is an actor's place on the stage. It is the tap of the actor's Env.
type seat struct {
	stage  *stage
	name   string
	gate   []ticket // what waits to be let go, the first first
	flying int      // what has been let go and is not answered
	done   bool
	moves  int // counts whatever it does
	at     time.Time
	steps  int // of this run
}

type ticket struct {
	what string
	// again waits to begin anew: it goes when nobody else can.
	again bool
	goOn  chan struct{}
}

func newStage(names ...string) *stage {
	st := &stage{moved: make(chan struct{}, 1), open: true}
	for _, name := range names {
		st.seats = append(st.seats, &seat{stage: st, name: name})
	}
	return st
}

// move notes that the actor did something. The stage is locked.
func (s *seat) move() {
	s.moves++
	s.at = time.Now()
	select {
	case s.stage.moved <- struct{}{}:
	default:
	}
}

func (s *seat) send(what string) {
	if s.wait(ticket{what: what}) {
		return
	}
	s.stage.mu.Lock()
	defer s.stage.mu.Unlock()
	s.flying++
	s.steps++
	s.move()
}

// wait holds the actor back until it is let go, and returns whether it was.
func (s *seat) wait(t ticket) bool {
	s.stage.mu.Lock()
	if s.stage.open {
		s.stage.mu.Unlock()
		return false
	}
	t.goOn = make(chan struct{})
	s.gate = append(s.gate, t)
	s.move()
	s.stage.mu.Unlock()
	<-t.goOn
	return true
}

func (s *seat) answered(string) {
	s.stage.mu.Lock()
	defer s.stage.mu.Unlock()
	s.flying--
	s.move()
}

// again is called before an actor begins anew.
func (s *seat) again() { s.wait(ticket{what: "begin anew", again: true}) }

func (s *seat) end() {
	s.stage.mu.Lock()
	defer s.stage.mu.Unlock()
	s.done = true
	s.move()
}

// letGo lets the actor take its next step, and says which.
func (st *stage) letGo(i int) string {
	st.mu.Lock()
	defer st.mu.Unlock()
	s := st.seats[i]
	t := s.gate[0]
	s.gate = s.gate[1:]
	if !t.again {
		s.flying++
		s.steps++
	}
	s.move()
	close(t.goOn)
	return t.what
}

// raise begins a run: everybody is held back from now on.
func (st *stage) raise() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.open = false
	for _, s := range st.seats {
		s.done, s.steps, s.at = false, 0, time.Now()
	}
}

// clear lets everybody go, now and from now on.
func (st *stage) clear() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.open = true
	for _, s := range st.seats {
		for _, t := range s.gate {
			if !t.again {
				s.flying++
				s.steps++
			}
			close(t.goOn)
		}
		s.gate = nil
	}
}

// view is what the actors do at one moment.
type view struct {
	ready, again, flying []int
	thinking             bool // somebody may be about to do something
	over                 bool
	moves                []int
}

func (st *stage) view() view {
	st.mu.Lock()
	defer st.mu.Unlock()
	v := view{over: true}
	for i, s := range st.seats {
		v.moves = append(v.moves, s.moves)
		v.over = v.over && s.done
		switch {
		case len(s.gate) > 0 && s.gate[0].again:
			v.again = append(v.again, i)
		case len(s.gate) > 0:
			v.ready = append(v.ready, i)
		case s.flying > 0:
			v.flying = append(v.flying, i)
		case !s.done && time.Since(s.at) < asleepAfter:
			v.thinking = true
		}
	}
	return v
}

// settle waits until every actor stands before its next step, waits in the server, sleeps, or has ended, and somebody can
// take a step. It returns who can; nobody when all have ended.
func (st *stage) settle(ctx context.Context) ([]int, error) {
	begun := time.Now()
	pause := time.NewTimer(time.Hour)
	defer pause.Stop()
	for {
		v := st.view()
		settled := !v.thinking && len(v.flying) == 0
		if len(v.flying) > 0 {
			waiting, err := st.blocked(ctx)
			if err != nil {
				return nil, fmt.Errorf("look who waits for whom: %w", err)
			}
			settled = !v.thinking
			for _, i := range v.flying {
				settled = settled && waiting[st.seats[i].name]
			}
			// What was seen of the server holds only if nobody has moved meanwhile.
			settled = settled && st.unmoved(v)
		}
		switch {
		case v.over:
			return nil, nil
		case settled && len(v.ready) > 0:
			return v.ready, nil
		case settled && len(v.again) > 0:
			return v.again, nil
		case time.Since(begun) > stuckAfter:
			return nil, fmt.Errorf("nobody can go on, for %v: %s", stuckAfter, st.describe())
		}
		pause.Reset(time.Millisecond)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-st.moved:
		case <-pause.C:
		}
	}
}

func (st *stage) unmoved(v view) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	for i, s := range st.seats {
		if s.moves != v.moves[i] {
			return false
		}
	}
	return true
}

func (st *stage) describe() string {
	st.mu.Lock()
	defer st.mu.Unlock()
	var out []string
	for _, s := range st.seats {
		what := "does nothing"
		switch {
		case s.done:
			what = "has ended"
		case len(s.gate) > 0:
			what = "stands before " + s.gate[0].what
		case s.flying > 0:
			what = "waits for the server"
		}
		out = append(out, s.name+" "+what)
	}
	return strings.Join(out, ", ")
}
