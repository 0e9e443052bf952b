package locktest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

var (
	uuidText = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	timeText = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d(:\d\d)?)`)
)

// row is a row as the dump sees it.
type row struct {
	table  string
	values map[string]any
	id     string // the UUID in its column id, empty when there is none
}

// dump returns every row of every table, a line each, sorted, with what differs between two equal runs left out.
func (d *database) dump(ctx context.Context) (string, error) {
	var all []string
	for _, t := range d.tables {
		left := make([]string, 0, len(t.left))
		for _, column := range t.left {
			left = append(left, "'"+strings.ReplaceAll(column, "'", "''")+"'")
		}
		all = append(all, fmt.Sprintf("SELECT '%s', to_jsonb(x) - ARRAY[%s]::text[], core.clock() FROM %s x", strings.ReplaceAll(t.name, "'", "''"), strings.Join(left, ", "), t.name))
	}
	found, err := d.admin.Query(ctx, strings.Join(all, " UNION ALL "))
	if err != nil {
		return "", fmt.Errorf("read all rows: %w", err)
	}
	var rows []row
	var until time.Time
	each := row{}
	_, err = pgx.ForEachRow(found, []any{&each.table, &each.values, &until}, func() error {
		if id, ok := each.values["id"].(string); ok && uuidText.MatchString(id) {
			each.id = id
			delete(each.values, "id")
		}
		rows = append(rows, each)
		each = row{}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read all rows: %w", err)
	}
	n := newNamer(rows, d.since, until)
	lines := make([]string, 0, len(rows))
	for _, r := range rows {
		lines = append(lines, r.table+" "+n.plain(r.values))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), nil
}

// namer writes rows without the UUIDs and times that differ between equal runs.
type namer struct {
	rows         map[string]row // by UUID
	names        map[string]string
	since, until time.Time
}

func newNamer(rows []row, since, until time.Time) *namer {
	n := &namer{rows: map[string]row{}, names: map[string]string{}, since: since, until: until}
	for _, r := range rows {
		if r.id != "" {
			n.rows[r.id] = r
		}
	}
	return n
}

// name is what a UUID stands for: the slug of its row, or all of the row. One that is of no row stays as it is.
func (n *namer) name(id string) string {
	if known, ok := n.names[id]; ok {
		return known
	}
	r, ok := n.rows[id]
	if !ok {
		return id
	}
	n.names[id] = "itself" // where rows refer to each other in a circle
	_, table, _ := strings.Cut(r.table, ".")
	name := table + "(" + n.plain(r.values) + ")"
	if slug, ok := r.values["slug"].(string); ok {
		name = table + ":" + slug
	}
	n.names[id] = name
	return name
}

// plain writes values in the order of their names; what is null is left out.
func (n *namer) plain(values map[string]any) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if values[key] == nil {
			continue
		}
		text, ok := values[key].(string)
		if !ok {
			encoded, err := json.Marshal(values[key])
			if err != nil {
				encoded = fmt.Append(nil, values[key])
			}
			text = string(encoded)
		}
		parts = append(parts, key+"="+n.text(text))
	}
	return strings.Join(parts, " ")
}

// text replaces the UUIDs and times in a text.
func (n *namer) text(text string) string {
	text = uuidText.ReplaceAllStringFunc(text, n.name)
	return timeText.ReplaceAllStringFunc(text, func(found string) string {
		for _, layout := range []string{"2006-01-02T15:04:05Z07:00", "2006-01-02 15:04:05Z07:00", "2006-01-02T15:04:05Z07", "2006-01-02 15:04:05Z07"} {
			at, err := time.Parse(layout, found)
			if err != nil {
				continue
			}
			if !at.Before(n.since) && !at.After(n.until) {
				return "<now>"
			}
			return at.UTC().Format("2006-01-02T15:04:05.999999Z")
		}
		return found
	})
}

// differ says which lines one text has more often than the other; empty when none.
func differ(want, got string) string {
	count := map[string]int{}
	for line := range strings.SplitSeq(want, "\n") {
		count[line]--
	}
	for line := range strings.SplitSeq(got, "\n") {
		count[line]++
	}
	var out []string
	for _, line := range slices.Sorted(maps.Keys(count)) {
		for range count[line] {
			out = append(out, "  too much: "+line)
		}
		for range -count[line] {
			out = append(out, "  missing:  "+line)
		}
	}
	return strings.Join(out, "\n")
}
