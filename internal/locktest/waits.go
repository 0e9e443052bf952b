package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// blocked tells which actors wait in the server, and notes those that wait where they take no lock.
func (x *interleaver) blocked(ctx context.Context) (map[string]bool, error) {
	waiting, err := x.waiting(ctx)
	if err != nil {
		return nil, err
	}
	blocked, suspect := map[string]bool{}, false
	for w := range waiting {
		blocked[w.actor] = true
		suspect = suspect || w.unannounced
	}
	if suspect {
		// The server's view gives what a process did a moment before with what it waits for now. What waits on is seen again.
		again, err := x.waiting(ctx)
		if err != nil {
			return nil, err
		}
		for w := range waiting {
			text := fmt.Sprintf("%s waits in a statement that takes no lock of lockorder: %s", w.actor, brief(w.query))
			if w.unannounced && again[w] && !slices.Contains(x.unannounced, text) {
				x.unannounced = append(x.unannounced, text)
			}
		}
	}
	return blocked, nil
}

// wait is an actor's statement that waits in the server for a lock that another holds.
type wait struct {
	actor, query string
	// unannounced: it is a transaction of lockorder and takes none of its locks.
	unannounced bool
}

// waiting asks the server who waits. pg_blocking_pids is exact: who has been given the lock and has not woken yet is not in it.
func (x *interleaver) waiting(ctx context.Context) (map[wait]bool, error) {
	rows, err := x.d.admin.Query(ctx, `SELECT application_name, query FROM pg_stat_activity
		WHERE datname = current_database() AND application_name <> $1 AND wait_event_type = 'Lock' AND cardinality(pg_blocking_pids(pid)) > 0`, watcher)
	if err != nil {
		return nil, err
	}
	all := map[wait]bool{}
	var name string
	var w wait
	_, err = pgx.ForEachRow(rows, []any{&name, &w.query}, func() error {
		own := false
		w.actor, own = strings.CutSuffix(name, raw)
		w.unannounced = !own && !x.mayWait(w.query)
		all[w] = true
		return nil
	})
	return all, err
}

// mayWait tells whether a statement is one that lockorder waits in, which says so in a comment, or one of Waits.
func (x *interleaver) mayWait(query string) bool {
	return strings.HasPrefix(query, "/* lockorder: ") || slices.ContainsFunc(x.Waits, func(piece string) bool { return strings.Contains(query, piece) })
}

// readLog reports what the server says of deadlocks, with the schedule that was running.
func (x *interleaver) readLog(log string) {
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "avoided deadlock") && !strings.Contains(line, "deadlock detected") {
			continue
		}
		during := "before the first schedule"
		if at, err := logTime(line); err == nil {
			for _, r := range x.ran {
				if !at.Before(r.from.Truncate(time.Millisecond)) && !at.After(r.till) {
					during = fmt.Sprintf("%s=%s", envSchedule, r.name)
				}
			}
		}
		x.report.findings = append(x.report.findings, fmt.Sprintf("%s: the server's log says: %s", during, strings.TrimSpace(line)))
	}
}

// logTime is the time that begins a line of the server's log, which devstack has it write in UTC.
func logTime(line string) (time.Time, error) {
	fields := strings.Fields(line)
	if len(fields) < 3 {
		return time.Time{}, errors.New("no line of the server's log")
	}
	return time.Parse("2006-01-02 15:04:05.000 MST", strings.Join(fields[:3], " "))
}
