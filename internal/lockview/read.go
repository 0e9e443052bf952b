package lockview

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bursarhq/bursar/lockorder"
)

// metaSQL answers whose eyes these are.
const metaSQL = `SELECT current_database()::text, current_user::text, pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')`

// sessionsSQL answers every session of this database that holds an advisory key or waits for a lock, and whoever those wait
// for, with their locks: the advisory ones, those waited for, and those that somebody waits for. A tag is the same for the
// same lock.
const sessionsSQL = `
WITH me AS (SELECT oid, pg_backend_pid() AS pid FROM pg_database WHERE datname = current_database()),
activity AS MATERIALIZED (SELECT * FROM pg_stat_activity),
locks AS MATERIALIZED (
	SELECT coalesce(l.pid, 0) AS pid, l.locktype, l.mode, l.granted, l.waitstart,
	       l.classid::bigint AS classid, l.objid::bigint AS objid, l.objsubid::int AS objsubid,
	       CASE WHEN l.database = me.oid THEN l.relation::regclass::text END AS relation,
	       concat_ws('/', l.locktype, l.database, l.relation, l.page, l.tuple, l.virtualxid, l.transactionid, l.classid, l.objid, l.objsubid) AS tag
	FROM pg_locks l, me
	WHERE l.pid IS DISTINCT FROM me.pid AND (l.database IS NULL OR l.database IN (0, me.oid))
), waiting AS MATERIALIZED (
	SELECT w.pid, pg_blocking_pids(w.pid) AS blockers
	FROM (SELECT DISTINCT pid FROM locks WHERE NOT granted) w JOIN activity a ON a.pid = w.pid
	WHERE a.datid = (SELECT oid FROM me)
), relevant AS (
	SELECT pid FROM locks WHERE locktype = 'advisory'
	UNION SELECT pid FROM waiting
	UNION SELECT unnest(blockers) FROM waiting
), theirs AS (
	SELECT pid, json_agg(json_build_object('type', locktype, 'mode', mode, 'granted', granted, 'since', waitstart, 'classid', classid,
	                                       'objid', objid, 'objsubid', objsubid, 'relation', relation, 'tag', tag)
	                     ORDER BY granted DESC, locktype, classid, objid, tag) AS locks
	FROM locks
	WHERE locktype IN ('advisory', 'tuple') OR NOT granted OR tag IN (SELECT tag FROM locks WHERE NOT granted)
	GROUP BY pid
)
SELECT clock_timestamp(), r.pid, coalesce(a.application_name, ''), coalesce(a.usename::text, ''), coalesce(host(a.client_addr), ''),
       coalesce(a.backend_type, ''), coalesce(a.state, ''), a.xact_start, a.state_change, coalesce(a.query, ''), w.blockers,
       coalesce(t.locks, '[]')
FROM relevant r LEFT JOIN activity a USING (pid) LEFT JOIN waiting w USING (pid) LEFT JOIN theirs t USING (pid)
ORDER BY a.xact_start NULLS LAST, r.pid`

// hiddenQuery is what the server shows in place of a statement that the role may not see.
const hiddenQuery = "<insufficient privilege>"

// meta is whose eyes these are.
type meta struct {
	database, role string
	seesAll        bool
}

func readMeta(ctx context.Context, q lockorder.Querier) (m meta, err error) {
	if err := q.QueryRow(ctx, metaSQL).Scan(&m.database, &m.role, &m.seesAll); err != nil {
		return m, fmt.Errorf("the database cannot be asked: %w", err)
	}
	return m, nil
}

// lockRow is a row of pg_locks.
type lockRow struct {
	Type     string     `json:"type"`
	Mode     string     `json:"mode"`
	Granted  bool       `json:"granted"`
	Since    *time.Time `json:"since"`
	ClassID  int64      `json:"classid"`
	ObjID    int64      `json:"objid"`
	ObjSubID int        `json:"objsubid"`
	Relation string     `json:"relation"`
	Tag      string     `json:"tag"`
}

// sessionRow is a session as the server shows it.
type sessionRow struct {
	At                                        time.Time
	PID                                       int
	Application, User, Client, Backend, State string
	Since, Still                              *time.Time
	Query                                     string
	Blockers                                  []int
	Locks                                     []lockRow
}

func readSessions(ctx context.Context, q lockorder.Querier) ([]sessionRow, error) {
	rows, err := q.Query(ctx, sessionsSQL)
	if err == nil {
		var sessions []sessionRow
		if sessions, err = pgx.CollectRows(rows, pgx.RowToStructByPos[sessionRow]); err == nil {
			return sessions, nil
		}
	}
	return nil, fmt.Errorf("the locks cannot be read: %w", err)
}

// readPrepared answers the prepared transactions of this database that hold locks.
func readPrepared(ctx context.Context, q lockorder.Querier) ([]string, error) {
	rows, err := q.Query(ctx, `SELECT gid FROM pg_prepared_xacts WHERE database = current_database() ORDER BY prepared`)
	if err == nil {
		var gids []string
		if gids, err = pgx.CollectRows(rows, pgx.RowTo[string]); err == nil {
			return gids, nil
		}
	}
	return nil, fmt.Errorf("the prepared transactions cannot be read: %w", err)
}

// session makes a session of what the server shows, its locks not named yet.
func (r sessionRow) session() *Session {
	s := &Session{
		PID: r.PID, Application: r.Application, User: r.User, Client: r.Client, Backend: r.Backend, State: r.State,
		Since: utc(r.Since), Still: utc(r.Still), Hidden: r.Query == hiddenQuery, Holds: []Lock{},
	}
	if !s.Hidden {
		s.Statement = oneLine(r.Query)
	}
	if h, ok := ParseHolder(r.Application); ok {
		s.Holder, s.By = &h, runBy(h.Path)
	}
	return s
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

// longestStatement is how much of a statement is shown.
const longestStatement = 160

// oneLine is a statement without a leading comment and without line breaks, cut.
func oneLine(query string) string {
	if strings.HasPrefix(query, "/*") {
		if _, rest, ended := strings.Cut(query, "*/"); ended {
			query = rest
		}
	}
	line := strings.Join(strings.Fields(query), " ")
	switch { // of lockorder's own, long and alike: what they take shows anyway
	case strings.HasPrefix(line, "SELECT got, set_config("):
		return "opens its transaction, with its keys"
	case strings.HasPrefix(line, "WITH RECURSIVE asked AS MATERIALIZED"):
		return "locks rows"
	}
	if runes := []rune(line); len(runes) > longestStatement {
		line = string(runes[:longestStatement-1]) + "…"
	}
	return line
}

// lock makes a lock of a row of pg_locks, unnamed.
func (r lockRow) lock() Lock {
	l := Lock{Owner: OwnerServer, tag: r.Tag}
	switch r.Type {
	case "advisory":
		l.Owner, l.Mode = OwnerOther, advisoryMode(r.Mode)
		if r.ObjSubID == 1 {
			l.Key = newKey(Join(uint32(r.ClassID), uint32(r.ObjID)))
		} else {
			l.Object = fmt.Sprintf("key pair (%d, %d)", int32(uint32(r.ClassID)), int32(uint32(r.ObjID)))
		}
	case "relation":
		l.Mode = r.Mode
		l.Object = fmt.Sprintf("table %s (%s)", orUnknown(r.Relation), r.Mode)
	case "tuple":
		l.Object = "a row of " + orUnknown(r.Relation)
	case "transactionid":
		l.Object = "a row, or a unique key, that another transaction wrote"
	case "virtualxid":
		l.Object = "the end of a transaction that was open before"
	default:
		l.Object = r.Type
		if r.Relation != "" {
			l.Object += " of " + r.Relation
		}
	}
	return l
}

func advisoryMode(mode string) string {
	if mode == "ShareLock" {
		return "shared"
	}
	return "exclusive"
}

func orUnknown(relation string) string {
	if relation == "" {
		return "another database's table"
	}
	return relation
}

// build makes the sessions of the rows, with what they hold and wait for.
func build(rows []sessionRow) []*Session {
	sessions := make([]*Session, len(rows))
	holders := map[string][]int{} // by tag, who was granted it
	for i, r := range rows {
		sessions[i] = r.session()
		for _, l := range r.Locks {
			if l.Granted {
				holders[l.Tag] = append(holders[l.Tag], i)
			}
		}
	}
	for i, r := range rows {
		for _, l := range r.Locks {
			switch {
			case l.Granted && l.Type == "advisory":
				sessions[i].Holds = append(sessions[i].Holds, l.lock())
			case !l.Granted && r.Blockers != nil:
				sessions[i].Waits = r.wait(l, rows, holders)
			}
		}
	}
	for i, r := range rows {
		s := sessions[i]
		if s.Waits == nil {
			continue
		}
		s.nameRow(r)
		// Who holds what it waits for may hold it in a way that shows nowhere else: a row.
		for _, j := range holders[s.Waits.For.tag] {
			if slices.Contains(s.Waits.On, sessions[j].PID) {
				sessions[j].holdFor(s.Waits, rows[j])
			}
		}
	}
	return sessions
}

// wait is what a session waits for, by the lock that it was not granted.
func (r sessionRow) wait(l lockRow, rows []sessionRow, holders map[string][]int) *Wait {
	w := &Wait{For: l.lock(), Since: utc(l.Since), On: []int{}, Queued: len(r.Blockers) > 0, kind: l.Type}
	if l.Since != nil {
		w.Seconds = max(r.At.Sub(*l.Since).Seconds(), 0)
	}
	for _, pid := range r.Blockers { // a parallel query shows its leader once for each worker
		if !slices.Contains(w.On, pid) {
			w.On = append(w.On, pid)
		}
	}
	for _, i := range holders[l.Tag] {
		// Who has a row's "tuple" stands first in the queue for it; somebody else has the row.
		if slices.Contains(w.On, rows[i].PID) && l.Type != "tuple" {
			w.Queued = false
		}
	}
	slices.Sort(w.On)
	return w
}

// nameRow names the row that a session waits for, by the comment of its statement, or by the row that it has queued for.
func (s *Session) nameRow(r sessionRow) {
	class, identity, path, ok := lockorder.ParseWaitComment(r.Query)
	if ok && s.Holder == nil {
		s.Holder, s.By = &Holder{Path: path}, runBy(path)
	}
	if c, err := lockorder.ClassNamed(class); ok && err == nil {
		if l := lockorder.New(c, identity...); l.Err() == nil {
			s.comment = &l
		}
	}
	if s.Waits.For.Owner != OwnerServer {
		return // a key's name is compared with its number later
	}
	if s.comment != nil && s.comment.Class().Kind == lockorder.Row {
		s.Waits.For = Lock{Owner: OwnerBursar, Class: class, Identity: s.comment.Identity(), tag: s.Waits.For.tag}
		return
	}
	for _, l := range r.Locks {
		if l.Granted && l.Type == "tuple" && l.Relation != "" {
			s.Waits.For.Object = l.lock().Object
		}
	}
}

// holdFor adds what a session holds and another one waits for, where it is not an advisory key, which shows by itself.
func (s *Session) holdFor(w *Wait, r sessionRow) {
	for _, l := range r.Locks {
		if !l.Granted || l.Tag != w.For.tag || l.Type == "advisory" || l.Type == "tuple" {
			continue
		}
		held := l.lock()
		switch {
		case w.For.Class != "":
			held = w.For
		case l.Type == "transactionid":
			held.Object = "a row, or a unique key, that it wrote"
		}
		known := slices.ContainsFunc(s.Holds, func(h Lock) bool {
			return h.Class == held.Class && slices.Equal(h.Identity, held.Identity) && h.Object == held.Object && h.Key == nil
		})
		if !known {
			s.Holds = append(s.Holds, held)
		}
	}
}
