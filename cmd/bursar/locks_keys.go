package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bursarhq/bursar/internal/lockview"
	"github.com/bursarhq/bursar/lockorder"
)

func newLocksExplainCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain KEY|CLASSID/OBJID",
		Short: "Tell what an advisory key is of, and who has it",
		Long: `Tells what a 64-bit advisory key is of: its family, its identity, the text that was hashed, what the lock keeps apart; and who
holds it and who waits for it now. The key is given as the number, or as the pair classid/objid that pg_locks shows.`,
		Example: `  bursar locks explain -9104575358558129625
  bursar locks explain 2175143155/308163111`,
		// A key may begin with a minus, which is no flag.
		DisableFlagParsing: true,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		rest, err := parseWithNumbers(cmd, args)
		switch {
		case err == pflag.ErrHelp:
			return cmd.Help()
		case err != nil:
			return usageError{cmd.CommandPath(), err}
		}
		if err := exactly("KEY")(cmd, rest); err != nil {
			return err
		}
		number, err := lockview.ParseKey(rest[0])
		if err != nil {
			return usagef(cmd, "%w", err)
		}
		db, err := a.openToLook(cmd.Context())
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), lookTimeout)
		defer cancel()
		e, err := lockview.Explain(ctx, db.Reader(), number)
		if err != nil {
			return interrupted(cmd.Context(), err)
		}
		if asJSON {
			return a.printJSON(e)
		}
		lockPrinter{out: a.out, width: terminalWidth(a.out), colour: a.colourful()}.explanation(e)
		return nil
	}
	return cmd
}

var negative = regexp.MustCompile(`^-\d+$`)

// parseWithNumbers parses a command's flags and returns its arguments, among which negative numbers may be.
func parseWithNumbers(cmd *cobra.Command, args []string) ([]string, error) {
	var flags, numbers []string
	for i, arg := range args {
		if arg == "--" {
			flags = append(flags, args[i:]...)
			break
		}
		if negative.MatchString(arg) {
			numbers = append(numbers, arg)
		} else {
			flags = append(flags, arg)
		}
	}
	err := cmd.Flags().Parse(flags)
	if help, _ := cmd.Flags().GetBool("help"); help {
		err = pflag.ErrHelp
	}
	return append(numbers, cmd.Flags().Args()...), err
}

// explanation prints what is known of a key.
func (p lockPrinter) explanation(e lockview.Explanation) {
	line := func(label, s string) { p.wrapped("", fmt.Sprintf("%-14s", label), s) }
	line("key", fmt.Sprintf("%d, in pg_locks classid %d, objid %d, objsubid 1", e.Number, e.ClassID, e.ObjID))
	if class, err := lockorder.ClassNamed(e.Lock.Class); err == nil {
		line("is", e.Lock.String())
		line("text", e.Lock.Text)
		line("keeps apart", e.Serializes)
		line("its place", fmt.Sprintf("rank %d. %s", class.Rank, e.Why))
	} else {
		line("is", whatItMayBe(e.Lock.Owner))
	}
	if len(e.Holders)+len(e.Waiters) == 0 {
		line("now", "nobody holds it, and nobody waits for it")
	}
	who := func(label string, sessions []*lockview.Session, detail func(*lockview.Session) string) {
		for _, s := range sessions {
			line(label, fmt.Sprintf("%s, %s%s", s.Name(), processOf(s), detail(s)))
			if s.Advice != "" {
				p.wrapped("", strings.Repeat(" ", 14)+"→ ", s.Advice)
			}
			label = ""
		}
	}
	who("held by", e.Holders, func(s *lockview.Session) string {
		mode := ""
		for _, l := range s.Holds {
			if l.Key != nil && l.Key.Number == e.Number && l.Mode == "shared" {
				mode = ", shared"
			}
		}
		return mode
	})
	who("awaited by", e.Waiters, func(s *lockview.Session) string { return ", for " + waited(s.Waits) })
	for _, note := range e.Notes {
		p.wrapped("", "! ", note)
	}
}

// whatItMayBe says of a key without a name what can be said.
func whatItMayBe(owner lockview.Owner) string {
	switch owner {
	case lockview.OwnerOther:
		return "another application's: nobody of Bursar's has it or waits for it, and no identity here leads to it"
	case lockview.OwnerUnnamed:
		return "a key of Bursar's that cannot be named: its identity is in no table yet, as a subscription's before its first reconcile has committed"
	}
	return "not known: no identity that is stored here leads to it. It may be of one that is not stored yet, or another application's; bursar locks key compares"
}

func newLocksKeyCommand(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "key FAMILY [PART…]",
		Short: "Print the advisory key of an identity",
		Long: `Prints the 64-bit key of an identity, the pair under which pg_locks shows it, and the text that is hashed. FAMILY is an advisory class
that 'bursar locks census' lists. It needs no database.`,
		Example: `  bursar locks key subscription sub_1PqRsT2eZvKYlo2C
  bursar locks key desired-state c1 organization a:b
  bursar locks key materialization`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef(cmd, "FAMILY is missing; there are: %s", strings.Join(families(), ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := lockOf(args[0], args[1:])
			if err != nil {
				return usagef(cmd, "%w", err)
			}
			classid, objid := lockview.Halves(l.Key())
			if asJSON {
				return a.printJSON(struct {
					Family     string   `json:"family"`
					Identity   []string `json:"identity"`
					Text       string   `json:"text"`
					Derivation string   `json:"derivation"`
					lockview.Key
				}{l.Class().Name, append([]string{}, l.Identity()...), l.Text(), lockorder.Derivation, lockview.Key{Number: l.Key(), ClassID: classid, ObjID: objid}})
			}
			fmt.Fprintf(a.out, "key       %d\npg_locks  classid %d, objid %d, objsubid 1\ntext      %s\n", l.Key(), classid, objid, l.Text())
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

// families are the classes that have keys.
func families() (names []string) {
	for _, c := range lockorder.Classes() {
		if c.Kind != lockorder.Row {
			names = append(names, c.Name)
		}
	}
	return names
}

// lockOf makes the lock of a family for an identity, or says what is wrong with them.
func lockOf(family string, parts []string) (lockorder.Lock, error) {
	class, err := lockorder.ClassNamed(family)
	switch {
	case err != nil:
		return lockorder.Lock{}, fmt.Errorf("no family is called %q; there are: %s", family, strings.Join(families(), ", "))
	case class.Kind == lockorder.Row:
		return lockorder.Lock{}, fmt.Errorf("%s locks rows of %s, which have no key; families with keys are: %s", family, class.Table, strings.Join(families(), ", "))
	case len(parts) != len(class.Identity):
		return lockorder.Lock{}, fmt.Errorf("%s takes %s; %s", family, partsOf(class), given(len(parts)))
	}
	if i := slices.Index(parts, ""); i >= 0 {
		return lockorder.Lock{}, fmt.Errorf("the %s of %s is empty", class.Identity[i].Name, family)
	}
	l := lockorder.New(class, parts...)
	if l.Err() != nil {
		return l, fmt.Errorf("%s", strings.TrimPrefix(l.Err().Error(), "lockorder: "))
	}
	return l, nil
}

// partsOf names the parts of a class's identity: "1 part: subscription id".
func partsOf(class *lockorder.Class) string {
	if len(class.Identity) == 0 {
		return "no part"
	}
	names := make([]string, len(class.Identity))
	for i, p := range class.Identity {
		names[i] = p.Name
	}
	return plural(len(names), "part") + ": " + strings.Join(names, ", ")
}

func given(n int) string {
	if n == 1 {
		return "1 was given"
	}
	return fmt.Sprintf("%d were given", n)
}
