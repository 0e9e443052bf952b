package devstack

import (
	"fmt"
	"sync"
	"time"
)

// progressEvery is how often a slow step says that it is still at work.
const progressEvery = 5 * time.Second

// progress tells a caller what is going on; its zero value tells nobody.
type progress struct {
	mu    sync.Mutex
	tell  func(string)
	every time.Duration
}

func newProgress(tell func(string)) *progress {
	return &progress{tell: tell, every: progressEvery}
}

// say reports one line. Calls of the caller's function never overlap.
func (p *progress) say(format string, args ...any) {
	if p.tell == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tell(fmt.Sprintf(format, args...))
}

// during reports that a step has begun and then, every few seconds, how long it has taken so far, until the
// returned function is called. The note is added to each line, as in "first time only".
func (p *progress) during(step, note string) (end func()) {
	if note != "" {
		note = "; " + note
	}
	p.say("%s%s", step, note)
	if p.tell == nil {
		return func() {}
	}
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		begun := time.Now()
		ticker := time.NewTicker(p.every)
		defer ticker.Stop()
		for {
			select {
			case <-quit:
				return
			case <-ticker.C:
				p.say("%s, %s so far%s", step, time.Since(begun).Round(time.Second), note)
			}
		}
	}()
	return func() {
		close(quit)
		<-gone
	}
}
