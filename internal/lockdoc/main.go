package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/bursarhq/bursar/internal/lockgraph"
	"github.com/bursarhq/bursar/internal/lockpath"
)

// Where things are, from the module's root.
const (
	recordFile = "internal/lockdoc/edges.json"
	pageFile   = "lockorder/LOCKS.md"
)

const usage = `usage, in the module's root:
  go run ./internal/lockdoc check [-part] DIR
  go run ./internal/lockdoc record [-anew] DIR
  go run ./internal/lockdoc page
  go run ./internal/lockdoc drift`

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "lockdoc:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet("lockdoc", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	part := flags.Bool("part", false, "")
	anew := flags.Bool("anew", false, "")
	if err := flags.Parse(args[1:]); err != nil {
		return fmt.Errorf("%w\n%s", err, usage)
	}
	switch {
	case args[0] == "check" && flags.NArg() == 1:
		return check(flags.Arg(0), !*part, out)
	case args[0] == "record" && flags.NArg() == 1:
		return record(flags.Arg(0), *anew, out)
	case args[0] == "page" && flags.NArg() == 0:
		return writePage(out)
	case args[0] == "drift" && flags.NArg() == 0:
		return drift()
	}
	return errors.New(usage)
}

func check(dir string, whole bool, out io.Writer) error {
	files, err := lockgraph.Read(dir)
	if errors.Is(err, lockgraph.ErrNone) && !whole {
		fmt.Fprintln(out, "note: these tests opened no transaction that is watched")
		return nil
	}
	if err != nil {
		return err
	}
	known, err := readRecord(recordFile)
	if err != nil {
		return err
	}
	seen := merge(files, lockpath.All())
	fmt.Fprint(out, coverage(seen, lockpath.All()))
	v := judge(seen, known, lockpath.All(), whole)
	for _, note := range v.notes {
		fmt.Fprintln(out, "note:", note)
	}
	return v.err(dir)
}

func record(dir string, anew bool, out io.Writer) error {
	files, err := lockgraph.Read(dir)
	if err != nil {
		return err
	}
	stood, err := readRecord(recordFile)
	if err != nil && !anew {
		return err
	}
	all := merge(files, lockpath.All()).steps()
	if !anew {
		all = all.with(stood)
	}
	for _, s := range all.strangers(lockpath.All()) {
		fmt.Fprintln(out, "left out, since the table does not allow it:", s)
	}
	kept := all.allowed(lockpath.All())
	if err := kept.write(recordFile); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %d edges, %d before\n", recordFile, len(kept), len(stood))
	return writePage(out)
}

func writePage(out io.Writer) error {
	known, err := readRecord(recordFile)
	if err != nil {
		return err
	}
	page, err := makePage(lockpath.All(), known)
	if err != nil {
		return err
	}
	if err := os.WriteFile(pageFile, page, 0o644); err != nil {
		return fmt.Errorf("write the page, in the module's root: %w", err)
	}
	fmt.Fprintln(out, pageFile, "is written")
	return nil
}

// drift says what in the record or on the page is not what the table says.
func drift() error {
	known, err := readRecord(recordFile)
	if err != nil {
		return err
	}
	if wrong := known.strangers(lockpath.All()); len(wrong) > 0 {
		return fmt.Errorf("%s has the edge %s, which the table of paths does not allow; run: make locks", recordFile, wrong[0])
	}
	page, err := makePage(lockpath.All(), known)
	if err != nil {
		return err
	}
	stands, err := os.ReadFile(pageFile)
	if err != nil {
		return fmt.Errorf("%w; run: make locks", err)
	}
	if line, want, got := firstDifference(page, stands); line > 0 {
		return fmt.Errorf("%s is not what the classes, the paths and the record say; run: make locks\nline %d is   %s\nit should be %s", pageFile, line, got, want)
	}
	return nil
}

// firstDifference returns the first line that differs, counted from one, or 0.
func firstDifference(want, got []byte) (line int, wanted, found string) {
	w, g := bytes.Split(want, []byte("\n")), bytes.Split(got, []byte("\n"))
	for i := range max(len(w), len(g)) {
		var a, b []byte
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if i >= len(w) || i >= len(g) || !bytes.Equal(a, b) {
			return i + 1, string(a), string(b)
		}
	}
	return 0, "", ""
}
