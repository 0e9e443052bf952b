package lockorder

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// checkSpec returns the keys to take at opening, the rendezvous first, sorted and de-duplicated.
func checkSpec(spec Spec, rendezvous Lock) ([]Lock, error) {
	if spec.Path == "" {
		return nil, fmt.Errorf("%w: the transaction has no path name", ErrForbidden)
	}
	keys := make([]Lock, 0, len(spec.Keys)+1)
	switch spec.Kind {
	case Plain:
	case Materializing, RuleChange:
		keys = append(keys, rendezvous)
	default:
		return nil, fmt.Errorf("%w: a transaction is Plain, Materializing or RuleChange", ErrForbidden)
	}
	for _, k := range spec.Keys {
		if err := checkAskable(k); err != nil {
			return nil, err
		}
		if k.class.Kind == Row {
			return nil, fmt.Errorf("%w: %s is a row; rows are locked through the transaction, once it is open", ErrOrder, k)
		}
		keys = append(keys, k)
	}
	keys = arrange(keys)
	if len(keys) > MaxKeys {
		return nil, fmt.Errorf("%w: %d asked for, the rendezvous included, %d allowed", ErrTooManyKeys, len(keys), MaxKeys)
	}
	return keys, nil
}

// checkAskable refuses a lock that no transaction may ask for.
func checkAskable(l Lock) error {
	if err := l.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrForbidden, err)
	}
	switch l.class {
	case Materialization:
		return fmt.Errorf("%w: the rendezvous comes with the transaction's kind and is never upgraded", ErrOrder)
	case Migration:
		return fmt.Errorf("%w: the migration lock belongs to a session, not to a transaction", ErrOrder)
	}
	return nil
}

// theRendezvous is the lock that most transactions take: its key is derived once.
var theRendezvous = sync.OnceValue(func() Lock { return New(Materialization) })

// sorted returns the locks in the order in which they are taken, each once.
func sorted(locks []Lock) []Lock { return arrange(slices.Clone(locks)) }

// arrange is sorted, in place.
func arrange(out []Lock) []Lock {
	slices.SortFunc(out, compare)
	return slices.CompactFunc(out, func(a, b Lock) bool { return compare(a, b) == 0 })
}

// open begins and takes the declared keys. Handed statements travel with it while all of the keys are free. On error the
// caller rolls back.
func (tx *Tx) open(ctx context.Context, keys []Lock) error {
	tx.sharedKey(keys)
	statements, err := tx.handed()
	if err != nil {
		return failedStep("opening", err)
	}
	if len(statements) == 0 {
		return tx.openPlainly(ctx, keys)
	}
	again, err := tx.openWith(ctx, keys, statements)
	if err != nil || !again {
		return err
	}
	if err := tx.openPlainly(ctx, keys); err != nil {
		return err
	}
	return tx.sendHanded(ctx)
}

// sharedKey notes the key of the rendezvous where it is to be taken shared. Two classes may share a 64-bit key, which is one
// lock then, taken once, in the stronger mode: to take it shared first and exclusive for the other class would be the
// upgrade in which two transactions wait for each other.
func (tx *Tx) sharedKey(keys []Lock) {
	if tx.spec.Kind != Materializing || slices.ContainsFunc(keys[1:], func(k Lock) bool { return k.key == keys[0].key }) {
		return
	}
	tx.shared = &keys[0].key
}

// openPlainly begins, makes the settings and tries the keys, all in one flight; then waits, key by key, for what the
// tries stopped at.
func (tx *Tx) openPlainly(ctx context.Context, keys []Lock) error {
	got := 0
	if err := tx.conn.SendBatch(ctx, tx.opening(ctx, keys, false, &got)).Close(); err != nil {
		return failedStep("opening", err)
	}
	for _, k := range keys[:got] {
		tx.note(ctx, k, 0)
	}
	if keys = keys[got:]; len(keys) == 0 {
		return nil
	}
	if err := tx.waitForKey(ctx, keys[0]); err != nil {
		return failedStep("waiting for "+keys[0].String(), err)
	}
	return tx.takeKeys(ctx, keys[1:])
}

// opening is the flight that begins: how many of the keys it got will be in got. guarded says that a guard follows.
func (tx *Tx) opening(ctx context.Context, keys []Lock, guarded bool, got *int) *pgx.Batch {
	kind, o := tx.spec.Kind, tx.db.opts
	lockTimeout := min(o.LockTimeout, time.Until(tx.deadline))
	if kind == RuleChange {
		lockTimeout = min(lockTimeout, briefWait)
	}
	args := make([]any, 4, 5+len(keys))
	args[0], args[1], args[2], args[3] = millis(lockTimeout), millis(tx.idleTimeout()), millis(o.CheckInterval), kind.rendezvous()
	for _, k := range keys {
		args = append(args, k.key)
	}
	holder := ""
	if o.Holder != nil {
		holder = holderName(o.Holder(ctx, tx.spec.Path))
	}
	if holder != "" {
		args = append(args, holder)
	}
	batch := &pgx.Batch{}
	batch.Queue("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
	batch.Queue(tx.openText(len(keys), guarded, holder != ""), args...).Fn = func(results pgx.BatchResults) error {
		return results.QueryRow().Scan(got, nil)
	}
	return batch
}

// idleTimeout is the bound of a transaction that sits idle. One that holds the exclusive rendezvous is overdue sooner; the
// client, which sees that first unless it is stopped, cancels it and keeps the connection.
func (tx *Tx) idleTimeout() time.Duration {
	if tx.spec.Kind == RuleChange {
		return min(tx.db.opts.IdleTimeout, 2*tx.db.opts.ExclusiveHold)
	}
	return tx.db.opts.IdleTimeout
}

// maxHolder is the most bytes of an application_name that the server keeps.
const maxHolder = 63

// holderName makes a text fit for application_name: at most 63 bytes, each of them a printable ASCII sign, as the server
// would have it.
func holderName(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	return text[:min(len(text), maxHolder)]
}

// openTexts keeps what openSQL has built for the handles of one pool, by mode of the first key and number of keys, guarded or not, with a
// holder's name or without.
type openTexts [2][MaxKeys + 1][2][2]atomic.Pointer[string]

// openSQL is the statement that makes the settings and tries the keys, of which the first is the rendezvous where the
// kind has one; firstShared says that it is taken shared. It answers how many keys it got. The tries are nested, so that a busy key ends them: going on would
// take a later key past an earlier one, and two such transactions would wait for each other. Tries do not wait, so the
// settings come in time for whatever does. The guard, where there is one, is evaluated, and raises, unless all were got.
func openSQL(firstShared bool, keys int, guard string, named bool) string {
	var b strings.Builder
	b.WriteString("SELECT got, num_nonnulls(set_config('lock_timeout', $1, true)," + // num_nonnulls: one column to send
		" set_config('idle_in_transaction_session_timeout', $2, true)," +
		" set_config('client_connection_check_interval', $3, true)," +
		" set_config('lockorder.rendezvous', CASE WHEN got > 0 THEN $4 ELSE '' END, true)")
	if named {
		fmt.Fprintf(&b, ", set_config('application_name', $%d, true)", keys+5)
	}
	if guard != "" {
		fmt.Fprintf(&b, ", CASE WHEN got < %d THEN %s END", keys, guard)
	}
	b.WriteString(") FROM (SELECT ")
	writeTries(&b, firstShared, keys, 5)
	b.WriteString(" AS got OFFSET 0) tries") // OFFSET 0: the tries run once, before what reads got
	return b.String()
}

// openText is openSQL for a transaction, built once.
func (tx *Tx) openText(keys int, guarded, named bool) string {
	known := &tx.db.openTexts[number(tx.shared != nil)][keys][number(guarded)][number(named)]
	if text := known.Load(); text != nil {
		return *text
	}
	guard := ""
	if guarded && keys > 0 {
		guard = tx.db.opts.Guard
	}
	text := openSQL(tx.shared != nil, keys, guard, named)
	known.Store(&text)
	return text
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// keysTexts keeps what tryKeysSQL has built, by number of keys.
var keysTexts [MaxKeys + 1]atomic.Pointer[string]

// tryKeysSQL is the statement that tries keys in an open transaction. It answers how many it got before a busy one.
func tryKeysSQL(keys int) string {
	known := &keysTexts[keys]
	if text := known.Load(); text != nil {
		return *text
	}
	var b strings.Builder
	b.WriteString("SELECT ")
	writeTries(&b, false, keys, 1)
	text := b.String()
	known.Store(&text)
	return text
}

// writeTries writes the nested tries of keys, whose parameters are numbered from param on; firstShared says that the
// first is taken shared. Their value is how many were got: a busy one ends them.
func writeTries(b *strings.Builder, firstShared bool, keys, param int) {
	for i := range keys {
		try := "pg_try_advisory_xact_lock"
		if i == 0 && firstShared {
			try = "pg_try_advisory_xact_lock_shared"
		}
		fmt.Fprintf(b, "CASE WHEN NOT %s($%d) THEN %d ELSE ", try, param+i, i)
	}
	b.WriteString(strconv.Itoa(keys))
	b.WriteString(strings.Repeat(" END", keys))
}

// millis writes a time-out as PostgreSQL reads it. Zero would mean none, so the least is one millisecond.
func millis(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 1), 10) }
