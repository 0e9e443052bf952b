package locktest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/bursarhq/bursar/lockorder"
)

const shelves = `CREATE TABLE public.shelves (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), slug text NOT NULL);
	CREATE TABLE public.books (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), shelf uuid REFERENCES public.shelves, title text NOT NULL, n bigint GENERATED ALWAYS AS IDENTITY,
		version bigint NOT NULL DEFAULT 1, bought timestamptz NOT NULL DEFAULT clock_timestamp(), span tstzrange);
	CREATE TABLE public.loans (book uuid REFERENCES public.books, who text NOT NULL)`

func TestDumpLeavesOutWhatDiffersBetweenEqualRuns(t *testing.T) {
	t.Parallel()
	d, _, err := newDatabase(t, lockorder.Options{}, tables(shelves, `INSERT INTO public.shelves (slug) VALUES ('top')`))
	if err != nil {
		t.Fatal(err)
	}
	state := func(statements ...string) string {
		t.Helper()
		if err := d.restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, s := range statements {
			if _, err := d.admin.Exec(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		text, err := d.dump(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	buy := `INSERT INTO public.books (shelf, title, version, span) SELECT id, 'Emma', (random() * 100)::bigint + 1, tstzrange(clock_timestamp(), '2100-01-01') FROM public.shelves`
	lend := `INSERT INTO public.loans SELECT id, 'Jane' FROM public.books`
	one := state(buy, lend)
	if two := state(buy, lend); one != two {
		t.Errorf("two equal runs differ:\n%s", differ(one, two))
	}
	want := `public.books bought=<now> shelf=shelves:top span=["<now>","2100-01-01T00:00:00Z") title=Emma`
	if !strings.Contains(one, want+"\n") || !strings.Contains(one, "public.loans book=books("+strings.TrimPrefix(want, "public.books ")+") who=Jane") {
		t.Errorf("dump:\n%s", one)
	}
	for name, other := range map[string]string{
		"a row twice":    state(buy, buy),
		"none":           state(),
		"another value":  state(buy, lend, `UPDATE public.books SET title = 'Persuasion'`),
		"another time":   state(buy, lend, `UPDATE public.books SET bought = '2001-01-01'`),
		"another place":  state(buy, lend, `UPDATE public.books SET shelf = NULL`),
		"one row fewer":  state(buy),
		"another object": state(buy, lend, `INSERT INTO public.shelves (slug) VALUES ('low'); UPDATE public.books SET shelf = (SELECT id FROM public.shelves WHERE slug = 'low')`),
	} {
		if differ(one, other) == "" {
			t.Errorf("%s is not seen", name)
		}
	}
}

func TestLookSaysWhatIsLeftOpen(t *testing.T) {
	t.Parallel()
	d, e, err := newDatabase(t, lockorder.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if wrong, err := d.look(t.Context()); err != nil || len(wrong) > 0 {
		t.Errorf("nothing is open: %v %q", err, wrong)
	}
	conn, err := e.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := execs(t.Context(), conn, "BEGIN", "SELECT pg_advisory_xact_lock(77)"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // do not wait for it
	if _, err := d.leftovers(ctx); err == nil {
		t.Error("a look that is called off says nothing")
	}
	d.quiet = 20 * time.Millisecond
	wrong, err := d.look(t.Context())
	if text := strings.Join(wrong, "\n"); err != nil || !strings.Contains(text, "has a transaction open") || !strings.Contains(text, "holds an advisory lock: 0/77") {
		t.Errorf("%v: %s", err, text)
	}
}
