package devstack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
)

const (
	// envTemporalCLI names the Temporal CLI; when it is set nothing else is looked at.
	envTemporalCLI = "BURSAR_TEMPORAL_CLI"
	// temporalCLIVersion is what is built or downloaded; tools/temporal/go.mod pins the same one.
	temporalCLIVersion = "v1.5.1"
	temporalCLIPackage = "github.com/temporalio/cli/cmd/temporal"

	modulePath = "github.com/bursarhq/bursar"
)

// TemporalCLI returns the path of a Temporal CLI: the one that BURSAR_TEMPORAL_CLI names, else `temporal` on PATH,
// else the one in the user's cache folder, which is built or downloaded first when it is not there (a first build
// takes minutes). report, when set, is told what is going on. Processes that need it at the same time build it
// once.
func TemporalCLI(ctx context.Context, report func(string)) (string, error) {
	return findTemporalCLI(ctx, newProgress(report))
}

func findTemporalCLI(ctx context.Context, p *progress) (string, error) {
	if path := os.Getenv(envTemporalCLI); path != "" {
		if err := probeCLI(ctx, path); err != nil {
			return "", fmt.Errorf("%s: %w", envTemporalCLI, err)
		}
		return path, nil
	}
	if path, err := exec.LookPath("temporal"); err == nil && probeCLI(ctx, path) == nil {
		return path, nil
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "temporal-"+temporalCLIVersion)
	target := filepath.Join(dir, "temporal")
	if isExecutable(target) {
		return target, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder of the Temporal CLI: %w", err)
	}
	release, err := lockFile(ctx, filepath.Join(dir, "lock"), "waiting for another process that builds the Temporal CLI", p)
	if err != nil {
		return "", err
	}
	defer release()
	if isExecutable(target) {
		return target, nil // the other one built it
	}
	removeAll(filepath.Join(dir, "staging-*")) // of builders that were killed: the lock is ours
	staging, err := os.MkdirTemp(dir, "staging-")
	if err != nil {
		return "", fmt.Errorf("make a folder to build the Temporal CLI in: %w", err)
	}
	defer os.RemoveAll(staging)
	built, err := obtainCLI(ctx, staging, p)
	if err != nil {
		return "", err
	}
	// Renamed when it is whole and was seen to run: the cached file is good whenever it is there.
	if err := os.Rename(built, target); err != nil {
		return "", fmt.Errorf("put the Temporal CLI in its place: %w", err)
	}
	return target, nil
}

// obtainCLI builds or downloads the CLI into staging and returns its path there.
func obtainCLI(ctx context.Context, staging string, p *progress) (string, error) {
	goCommand, lookErr := exec.LookPath("go")
	var ways []func() (string, error)
	switch root := moduleRoot(); {
	case lookErr == nil && root != "":
		ways = append(ways, func() (string, error) { return buildCLI(ctx, goCommand, root, staging, p) })
	case lookErr == nil:
		ways = append(ways, func() (string, error) { return installCLI(ctx, goCommand, staging, p) })
	}
	ways = append(ways, func() (string, error) { return downloadCLI(ctx, staging, p) })

	var failed []error
	for _, way := range ways {
		path, err := way()
		if err == nil {
			err = probeCLI(ctx, path)
		}
		if err == nil {
			return path, nil
		}
		failed = append(failed, err)
		if ctx.Err() != nil {
			break
		}
		p.say("that failed: %s", firstLine(err))
	}
	if lookErr != nil {
		failed = append([]error{fmt.Errorf("it was not built, since there is no go command: %w", lookErr)}, failed...)
	}
	return "", fmt.Errorf("no Temporal CLI: install it so that `temporal` is on PATH, or set %s to it; what was tried: %w",
		envTemporalCLI, errors.Join(failed...))
}

// buildCLI builds the version that the checkout's tools module pins.
func buildCLI(ctx context.Context, goCommand, root, staging string, p *progress) (string, error) {
	out := filepath.Join(staging, "temporal")
	err := runGo(ctx, goCommand, staging, nil, p,
		"build", "-C", filepath.Join(root, "tools", "temporal"), "-o", out, temporalCLIPackage)
	return out, err
}

// installCLI builds the version without a checkout.
func installCLI(ctx context.Context, goCommand, staging string, p *progress) (string, error) {
	err := runGo(ctx, goCommand, staging, []string{"GOBIN=" + staging}, p, "install", temporalCLIPackage+"@"+temporalCLIVersion)
	return filepath.Join(staging, "temporal"), err
}

func runGo(ctx context.Context, goCommand, staging string, env []string, p *progress, args ...string) error {
	defer p.during("building the Temporal CLI "+temporalCLIVersion, "first time only")()
	// Flags and workspaces of the caller are for the caller's own builds.
	env = append(env, "GOFLAGS=", "GOWORK=off")
	return runChild(ctx, childSpec{
		name:        "go " + args[0] + " of the Temporal CLI",
		path:        goCommand,
		args:        args,
		env:         environWithout([]string{"GOFLAGS=", "GOWORK=", "GOBIN=", "GOOS=", "GOARCH="}, env...),
		dir:         staging,
		logPath:     filepath.Join(staging, "build.log"),
		deathSignal: syscall.SIGTERM,
	})
}

// downloadCLI uses the SDK's own download. It has no call of its own there: the SDK fetches the CLI on the way to
// starting a server, so one is started and stopped at once.
func downloadCLI(ctx context.Context, staging string, p *progress) (string, error) {
	defer p.during("downloading the Temporal CLI "+temporalCLIVersion, "first time only")()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	server, err := testsuite.StartDevServer(ctx, testsuite.DevServerOptions{
		CachedDownload: testsuite.CachedDownload{Version: temporalCLIVersion, DestDir: staging},
		ClientOptions:  &client.Options{Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))},
		LogLevel:       "error",
		Stdout:         io.Discard,
		Stderr:         io.Discard,
	})
	if err != nil {
		return "", fmt.Errorf("download the Temporal CLI: %w", err)
	}
	server.Client().Close()
	if err := server.Stop(); err != nil {
		return "", fmt.Errorf("stop the downloaded Temporal CLI after its trial run: %w", err)
	}
	return filepath.Join(staging, "temporal-cli-"+temporalCLIVersion), nil
}

// probeCLI checks that a CLI runs and is one.
func probeCLI(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = environWithout([]string{"TEMPORAL_"})
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s does not run: %w %s", path, err, strings.TrimSpace(string(out)))
	}
	if !strings.Contains(strings.ToLower(string(out)), "temporal") {
		return fmt.Errorf("%s is no Temporal CLI: --version says %q", path, firstLineOf(string(out)))
	}
	return nil
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// moduleRoot is the root of the checkout of this module around the working directory or the executable, or "" when
// there is none.
func moduleRoot() string {
	var starts []string
	if dir, err := os.Getwd(); err == nil {
		starts = append(starts, dir)
	}
	if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			exe = real
		}
		starts = append(starts, filepath.Dir(exe))
	}
	for _, dir := range starts {
		for ; ; dir = filepath.Dir(dir) {
			if moduleOf(filepath.Join(dir, "go.mod")) == modulePath {
				return dir
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return ""
}

// moduleOf is the module path that a go.mod file declares, or "".
func moduleOf(goMod string) string {
	f, err := os.Open(goMod)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) >= 2 && fields[0] == "module" {
			return strings.Trim(fields[1], `"`)
		}
	}
	return ""
}

func firstLine(err error) string { return firstLineOf(err.Error()) }

func firstLineOf(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
