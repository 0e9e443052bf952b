package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bursarhq/bursar/internal/lockview"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/worker"
)

func newLocksCommand(a *app) *cobra.Command {
	var org, watch string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "locks [--org ORG] [--json] [--watch [INTERVAL]]",
		Short: "Show who holds which lock, who waits for whom, and what to do",
		Long: `Shows the locks of the database: chains of waits, with who stands at the top of each, what it holds, since when, and what will
end it or what you can do; below it who waits, for how long and for what. Then who holds locks that nobody waits for. A row
shows only while somebody waits for it.

The role of DATABASE_URL needs pg_read_all_stats and nothing else (GRANT pg_read_all_stats TO …); with less, a note says what is
hidden. Nothing is locked or changed.

--org keeps the chains in which something of one organisation stands: named by slug or id, or by a Stripe customer or subscription.
--watch looks again and again until Ctrl-C, every 2 seconds unless told otherwise; with --json each look is one line.`,
		Example: `  bursar locks
  bursar locks --org acme
  bursar locks --watch
  bursar locks --watch 500ms --json
  bursar locks explain 2175143155/308163111
  bursar locks key subscription sub_1PqRsT2eZvKYlo2C`,
	}
	group(cmd)
	unknown := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 && watch == watchDefault { // --watch 5s: a flag whose value may be left out takes none after a blank
			if _, err := time.ParseDuration(args[0]); err == nil {
				watch = args[0]
				return nil
			}
		}
		return unknown(cmd, args)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var every time.Duration
		if watch != "" {
			var err error
			if every, err = time.ParseDuration(watch); err != nil || every < leastWatch {
				return usagef(cmd, "--watch %s: give an interval of %s or more, such as 2s", watch, leastWatch)
			}
		}
		return a.locks(cmd.Context(), org, asJSON, every)
	}
	cmd.Flags().StringVar(&org, "org", "", "only what concerns this organisation")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	cmd.Flags().StringVar(&watch, "watch", "", "look again, every `INTERVAL`, until Ctrl-C")
	cmd.Flags().Lookup("watch").NoOptDefVal = watchDefault
	cmd.AddCommand(newLocksExplainCommand(a), newLocksKeyCommand(a), newLocksCensusCommand(a))
	return cmd
}

const (
	// watchDefault is the interval of --watch alone; leastWatch the shortest, since every look costs the server something.
	watchDefault = "2s"
	leastWatch   = 100 * time.Millisecond
	// lookTimeout bounds one look.
	lookTimeout = 15 * time.Second
)

// openToLook opens the database of DATABASE_URL for a role that may read nothing of the schema: its version is not checked.
// It takes no lock, so the bounds, which the server's settings could contradict, are out of the way.
func (a *app) openToLook(ctx context.Context) (*lockorder.DB, error) {
	if a.database != nil {
		return a.database, nil
	}
	url := a.getenv("DATABASE_URL")
	if url == "" {
		return nil, errNoDatabaseURL
	}
	pooled, err := worker.Pooled(a.getenv("BURSAR_DB_POOLER"))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	opened, err := lockorder.Open(ctx, url, lockorder.Options{MaxConns: 1, Budget: time.Hour, LockTimeout: time.Hour, Pooled: pooled})
	switch {
	case lockorder.SQLState(err) == "53300":
		return nil, fmt.Errorf("%w; every connection is taken: look as a superuser, for whom some are kept", err)
	case err != nil:
		return nil, fmt.Errorf("%w; look at DATABASE_URL", err)
	}
	a.database = opened
	return opened, nil
}

// locks prints the locks once, or every so often.
func (a *app) locks(ctx context.Context, org string, asJSON bool, every time.Duration) error {
	db, err := a.openToLook(ctx)
	if err != nil {
		return err
	}
	frame := func() ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		return a.lockFrame(ctx, db.Reader(), org, asJSON, every)
	}
	first, err := frame()
	if err != nil {
		return interrupted(ctx, err)
	}
	if every == 0 {
		_, err := a.out.Write(first)
		return err
	}
	return a.watch(ctx, first, frame, asJSON, every)
}

// interrupted is no error where somebody has asked to stop.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the server did not answer within %s; is it under way to stop, or out of processor time? (%w)", lookTimeout, err)
	}
	return err
}

// lockFrame is what one look prints.
func (a *app) lockFrame(ctx context.Context, q lockorder.Querier, org string, asJSON bool, every time.Duration) ([]byte, error) {
	var snapshot lockview.Snapshot
	var slug string
	var err error
	if org == "" {
		snapshot, err = lockview.Look(ctx, q)
	} else {
		snapshot, slug, err = lockview.LookAt(ctx, q, org)
	}
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if asJSON {
		encoder := json.NewEncoder(&out)
		encoder.SetEscapeHTML(false)
		if every == 0 {
			encoder.SetIndent("", "  ")
		}
		err := encoder.Encode(snapshot)
		return out.Bytes(), err
	}
	p := lockPrinter{out: &out, width: terminalWidth(a.out), colour: a.colourful()}
	p.snapshot(snapshot, slug)
	return out.Bytes(), nil
}

// watch prints frames until ctx ends. On a terminal each takes the place of the one before. A look that fails is told, and
// the next one tried: what one watches at night may be the server's restart.
func (a *app) watch(ctx context.Context, first []byte, frame func() ([]byte, error), asJSON bool, every time.Duration) error {
	redraw := isTerminal(a.out) && !asJSON
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for shown := first; ; {
		if redraw {
			shown = []byte(redrawn(string(shown), terminalHeight(a.out), every))
		}
		if _, err := a.out.Write(shown); err != nil {
			return err
		}
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
			}
			next, err := frame()
			if err = interrupted(ctx, err); ctx.Err() != nil {
				return nil
			}
			if err == nil {
				shown = next
				if !redraw && !asJSON {
					shown = append([]byte("\n"), next...)
				}
				break
			}
			fmt.Fprintf(a.err, "bursar: %s; the next look is in %s\n", friendly(err), every)
		}
	}
}

// redrawn is a frame that takes the place of what a terminal shows. What does not fit is counted, so that nothing scrolls
// away; a height of 0 is not known.
func redrawn(frame string, height int, every time.Duration) string {
	lines := strings.Split(strings.TrimSuffix(frame, "\n"), "\n")
	foot := fmt.Sprintf("every %s; Ctrl-C ends", every)
	if room := height - 2; height > 3 && len(lines) > room { // the foot, and the cursor below it
		foot = fmt.Sprintf("%s more below: make the window taller, or leave out --watch; %s", plural(len(lines)-room, "line"), foot)
		lines = lines[:room]
	}
	const home, clearLine, clearBelow = "\x1b[H", "\x1b[K", "\x1b[J"
	var b strings.Builder
	b.WriteString(home)
	for _, line := range append(lines, foot) {
		b.WriteString(line + clearLine + "\n")
	}
	b.WriteString(clearBelow)
	return b.String()
}
