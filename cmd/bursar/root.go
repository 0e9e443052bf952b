package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	"golang.org/x/term"

	"github.com/bursarhq/bursar/db"
	"github.com/bursarhq/bursar/internal/lockview"
	"github.com/bursarhq/bursar/lockorder"
	"github.com/bursarhq/bursar/worker"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// app is what every command shares: the streams, the environment, and the database once it is needed.
type app struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string
	// interactive says whether somebody can be asked on in.
	interactive func() bool

	words    string // of the command that runs: "org create"
	database *lockorder.DB
	temporal client.Client
}

func newApp(in io.Reader, out, err io.Writer) *app {
	return &app{in: in, out: out, err: err, getenv: os.Getenv, interactive: func() bool { return isTerminal(in) }}
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// run runs one command and returns the exit code of the process. Errors are told on a.err.
func (a *app) run(ctx context.Context, args []string) int {
	defer a.close()
	root := a.newRootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(a.err, "bursar: "+friendly(err))
	var usage usageError
	if errors.As(err, &usage) {
		fmt.Fprintf(a.err, "Run '%s --help' to see how it is used.\n", usage.command)
		return exitUsage
	}
	return exitFailure
}

func (a *app) newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "bursar",
		Short: "Turn paid Stripe subscriptions into entitlements",
		Long: `Bursar keeps what was paid for and what may be used the same: Stripe's subscriptions become
positions in an organisation's pool, and these become entitlements, each with its reason.

Commands that use the database find it by DATABASE_URL; where that goes through PgBouncer in transaction mode, set
BURSAR_DB_POOLER=pgbouncer.`,
		Example: `  bursar dev                                   everything on this machine, with a story
  bursar catalog apply catalog.yaml            say what is sold and what it entitles to
  bursar org create acme --name "Acme" --type club
  bursar customer link cus_NffrFeUfNV2Hib acme
  bursar entitlements acme                     what may Acme use, and why`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	group(root)
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		a.words = strings.TrimPrefix(cmd.CommandPath(), root.Name()+" ")
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetVersionTemplate("bursar {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{cmd.CommandPath(), err} })
	root.CompletionOptions.HiddenDefaultCmd = true
	for _, newCommand := range commands {
		root.AddCommand(newCommand(a))
	}
	return root
}

// commands are the subcommands, one file each.
var commands = []func(*app) *cobra.Command{
	newCatalogCommand,
	newCustomerCommand,
	newDefaultCommand,
	newDevCommand,
	newEntitlementsCommand,
	newGrantCommand,
	newIngressCommand,
	newLadderCommand,
	newLocksCommand,
	newMigrateCommand,
	newOrgCommand,
	newParkedCommand,
	newProductCommand,
	newRuleCommand,
	newSetCommand,
	newTierCommand,
	newUsageCommand,
	newWorkerCommand,
}

// usageError is a command line that cannot be understood.
type usageError struct {
	command string
	err     error
}

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(cmd *cobra.Command, format string, args ...any) error {
	return usageError{cmd.CommandPath(), fmt.Errorf(format, args...)}
}

// exactly accepts one argument for each of the names.
func exactly(names ...string) cobra.PositionalArgs {
	return between(len(names), names...)
}

// between accepts an argument for each of the names, of which the first few are required.
func between(required int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < required:
			missing, verb := names[len(args):required], "is"
			if len(missing) > 1 {
				verb = "are"
			}
			return usagef(cmd, "%s %s missing", strings.Join(missing, " and "), verb)
		case len(args) > len(names):
			return usagef(cmd, "%q is one argument too many", args[len(names)])
		}
		return nil
	}
}

// group makes a command that only has subcommands: alone it prints its help, with an unknown one it fails.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		hint := ""
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = "; did you mean " + strings.Join(near, " or ") + "?"
		}
		return usagef(cmd, "there is no command %q%s", cmd.CommandPath()+" "+args[0], hint)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.SuggestionsMinimumDistance = 2
	return cmd
}

var errNoDatabaseURL = errors.New("DATABASE_URL is not set; it names the PostgreSQL database, like postgres://user:password@host:5432/bursar")

// lockOptions is what the options of the database begin with. The tests replace it before anything runs, to see the locks.
var lockOptions = db.LockOptions

// openDB opens the database of DATABASE_URL, once, and checks that its schema is the one that this program knows.
func (a *app) openDB(ctx context.Context) (*lockorder.DB, error) {
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
	options := lockOptions()
	options.MaxConns, options.Pooled = 4, pooled
	options.Holder = lockview.Namer(lockview.Command(a.words))
	opened, err := lockorder.Open(ctx, url, options)
	if err != nil {
		return nil, fmt.Errorf("%w; look at DATABASE_URL", err)
	}
	if err := db.Check(ctx, opened.Reader()); err != nil {
		opened.Close()
		return nil, err
	}
	a.database = opened
	return opened, nil
}

func (a *app) close() {
	if a.database != nil {
		a.database.Close()
		a.database = nil
	}
	if a.temporal != nil {
		a.temporal.Close()
		a.temporal = nil
	}
}

// releaseVersion is set when a release is built (-ldflags "-X main.releaseVersion=…").
var releaseVersion string

// version returns the release, or the commit that the program was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	switch {
	case releaseVersion != "":
		return releaseVersion
	case !ok:
		return "(unknown)"
	}
	var revision, modified string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				modified = ", modified"
			}
		}
	}
	if revision == "" {
		return info.Main.Version
	}
	return fmt.Sprintf("%s (%s%s)", info.Main.Version, revision[:min(12, len(revision))], modified)
}
