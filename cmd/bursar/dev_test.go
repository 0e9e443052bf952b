package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/internal/devstack"
	"github.com/bursarhq/bursar/internal/stripeapi/standin"
)

// asCommand makes the test binary be the program itself.
const asCommand = "BURSAR_TEST_AS_COMMAND"

func init() {
	if os.Getenv(asCommand) != "" {
		main()
	}
}

// process is the program, running on its own.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	temp string // its TMPDIR
	out  lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// openDir is a temporary folder that other users may enter.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "bursar-test-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// startProcess runs the program with arguments in an environment of its own, as another user when one is given.
func startProcess(t *testing.T, user *syscall.Credential, env []string, args ...string) *process {
	t.Helper()
	cli, err := devstack.TemporalCLI(t.Context(), func(line string) { t.Log(line) })
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	home := openDir(t)
	p := &process{t: t, temp: filepath.Join(home, "tmp")}
	require.NoError(t, os.Mkdir(p.temp, 0o755))
	if user != nil { // which cannot enter the folders that these are in
		cli, self = copyFile(t, cli, home), copyFile(t, self, home)
		for _, dir := range []string{home, p.temp} {
			require.NoError(t, os.Chown(dir, int(user.Uid), int(user.Gid)))
		}
	}
	p.cmd = exec.Command(self, args...)
	p.cmd.Dir = home
	p.cmd.Env = append([]string{asCommand + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + p.temp, "BURSAR_TEMPORAL_CLI=" + cli}, env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: user}
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
		if t.Failed() {
			t.Log(p.out.String())
		}
	})
	return p
}

func copyFile(t *testing.T, from, dir string) string {
	t.Helper()
	to := filepath.Join(dir, filepath.Base(from))
	source, err := os.Open(from)
	require.NoError(t, err)
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	require.NoError(t, err)
	_, err = io.Copy(target, source)
	require.NoError(t, err)
	require.NoError(t, target.Close())
	return to
}

// says waits until the program has said something.
func (p *process) says(what string) {
	p.t.Helper()
	ended := make(chan struct{})
	require.Eventually(p.t, func() bool {
		select {
		case <-ended:
			return true
		default:
			return strings.Contains(p.out.String(), what)
		}
	}, 2*time.Minute, 50*time.Millisecond, "it says %q", what)
}

// ends waits for the end and returns the exit code.
func (p *process) ends() int {
	p.t.Helper()
	done := make(chan error, 1)
	go func() { done <- p.cmd.Wait() }()
	select {
	case <-done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(90 * time.Second):
		p.t.Fatal("it did not end")
		return -1
	}
}

// leftNothing asserts that no file and no process of the program is left.
func (p *process) leftNothing() {
	p.t.Helper()
	files, err := os.ReadDir(p.temp)
	require.NoError(p.t, err)
	require.Empty(p.t, files, "files are left")
	require.Empty(p.t, processesIn(p.temp), "processes are left")
}

// processesIn returns the processes that work in a folder or name it in their command line, on systems with /proc.
func processesIn(dir string) []string {
	var found []string
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		cwd, _ := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if strings.HasPrefix(cwd, dir) || bytes.Contains(line, []byte(dir)) {
			found = append(found, e.Name()+" "+string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return found
}

// users are those that the program is tried as: this one, and where this one is root an ordinary one too.
func users() map[string]*syscall.Credential {
	all := map[string]*syscall.Credential{"as this user": nil}
	if os.Geteuid() == 0 {
		all["as an ordinary user"] = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	return all
}

// chapter returns what the story shows after a heading, up to the next.
func chapter(t *testing.T, out, title string) string {
	t.Helper()
	_, rest, found := strings.Cut(out, title+"\n")
	require.True(t, found, "the story has a chapter %q", title)
	end := regexp.MustCompile(`(?m)^\d\. `).FindStringIndex(rest)
	if end != nil {
		rest = rest[:end[0]]
	}
	return rest
}

// row returns the value of a key in a table of entitlements.
func row(t *testing.T, table, key string) string {
	t.Helper()
	match := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(key) + ` +(\S+)`).FindStringSubmatch(table)
	require.NotNil(t, match, "%s is shown in:\n%s", key, table)
	return match[1]
}

func TestDevPlaysTheStoryOnce(t *testing.T) {
	for name, user := range users() {
		t.Run(name, func(t *testing.T) {
			p := startProcess(t, user, nil, "dev", "--once")
			require.Equal(t, exitOK, p.ends(), p.out.String())
			p.leftNothing()

			out := p.out.String()
			for _, c := range []struct {
				title, sites, storage, upload, domain string
			}{
				{"A new member", "1", "1", "5", "nothing"},
				{"1. Checkout", "5", "120", "50", "nothing"},
				{"2. Upgrade", "25", "200", "250", "yes"},
				{"3. A burst of webhooks", "25", "250", "250", "yes"},
				{"4. Suspension", "nothing", "nothing", "nothing", "nothing"},
				{"5. Recovery", "25", "250", "250", "yes"},
				{"6. Cancellation", "1", "1", "5", "nothing"},
			} {
				shown := chapter(t, out, c.title)
				got := []string{row(t, shown, "sites.active"), row(t, shown, "storage.gb"), row(t, shown, "upload.mb"), row(t, shown, "domain.custom")}
				require.Equal(t, []string{c.sites, c.storage, c.upload, c.domain}, got, c.title)
			}
			burst := regexp.MustCompile(`(\d+) webhooks → (\d+) reconciles?`).FindStringSubmatch(chapter(t, out, "3. A burst of webhooks"))
			require.NotNil(t, burst)
			webhooks, _ := strconv.Atoi(burst[1])
			reconciles, _ := strconv.Atoi(burst[2])
			require.Greater(t, webhooks, 60)
			require.LessOrEqual(t, reconciles, 6, "a burst costs a handful of reconciles")
			require.Contains(t, out, "/namespaces/default/workflows/subscription%2Fsub_")
		})
	}
}

func TestDevStaysUpUntilInterrupted(t *testing.T) {
	p := startProcess(t, nil, nil, "dev")
	p.says("Ctrl-C stops everything")
	require.NotEmpty(t, processesIn(p.temp), "the parts are seen while they run")

	exports := regexp.MustCompile(`DATABASE_URL='([^']+)' TEMPORAL_ADDRESS=(\S+)`).FindStringSubmatch(p.out.String())
	require.NotNil(t, exports)
	r := runWith(t, map[string]string{"DATABASE_URL": exports[1]}, "entitlements", "ada")
	require.Contains(t, r.out, "the floor of membership", "another process can look")

	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	require.Equal(t, exitOK, p.ends(), p.out.String())
	require.Contains(t, p.out.String(), "nothing is left behind")
	p.leftNothing()
}

func TestDevInterruptedWhileItStarts(t *testing.T) {
	p := startProcess(t, nil, nil, "dev")
	p.says("Temporal")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, exitFailure, p.ends())
	require.Contains(t, p.out.String(), "bursar: interrupted")
	p.leftNothing()
}

// With a key it serves an account: here one that the stand-in plays. What cannot be mapped is parked, and applied once
// the link appears.
func TestDevServesAnAccount(t *testing.T) {
	account := standin.New(standin.Options{})
	url, err := account.Start(context.Background())
	require.NoError(t, err)
	t.Cleanup(account.Close)
	account.PutProduct(standin.Product{ID: "prod_member", Name: "Member"})
	_, err = account.PutPrice(standin.Price{ID: "price_member", Product: "prod_member", UnitAmount: 500, Interval: "month"})
	require.NoError(t, err)
	customer := account.PutCustomer(standin.Customer{Email: "someone@example.org"})
	sub, err := account.PutSubscription(standin.Subscription{Customer: customer.ID, Items: []standin.Item{{Price: "price_member", Quantity: 1}}})
	require.NoError(t, err)

	catalogue := filepath.Join(t.TempDir(), "catalog.yaml")
	require.NoError(t, os.WriteFile(catalogue, []byte(`
resource_keys: [{key: seats, kind: numeric}]
sets: [{id: member, name: Member, rules: {seats: 3}}]
products: [{id: member, name: Member, sets: [member], stripe: {prices: [price_member]}}]
organization_types: [{id: club, name: Club}]
`), 0o600))
	p := startProcess(t, nil, []string{"STRIPE_API_KEY=sk_test_0123456789abcdef", "STRIPE_API_URL=" + url}, "dev", catalogue)
	p.says("Ctrl-C stops everything")
	require.Contains(t, p.out.String(), "Handed over 1 event of the last day")
	require.NotContains(t, p.out.String(), "sk_test_0123456789abcdef")

	exports := regexp.MustCompile(`DATABASE_URL='([^']+)' TEMPORAL_ADDRESS=(\S+)`).FindStringSubmatch(p.out.String())
	require.NotNil(t, exports)
	env := map[string]string{"DATABASE_URL": exports[1], "TEMPORAL_ADDRESS": exports[2]}
	require.Eventually(t, func() bool { return strings.Contains(runWith(t, env, "parked").out, sub.ID) },
		30*time.Second, 200*time.Millisecond, "a subscription of an unknown customer is parked")
	require.Equal(t, exitOK, runWith(t, env, "org", "create", "club-one", "--name", "Club One", "--type", "club").code)
	require.Equal(t, exitOK, runWith(t, env, "customer", "link", customer.ID, "club-one").code)
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(strings.Split(runWith(t, env, "entitlements", "club-one").out, "\n"), func(line string) bool {
			return strings.HasPrefix(line, "seats") && strings.Contains(line, " 3 ")
		})
	}, 30*time.Second, 200*time.Millisecond, "it is applied after the link, without anybody's doing")

	// A change at Stripe is seen by polling.
	require.NoError(t, account.SetStatus(sub.ID, "canceled"))
	require.Eventually(t, func() bool {
		return !strings.Contains(runWith(t, env, "entitlements", "club-one").out, "Member × 1") &&
			strings.Contains(runWith(t, env, "entitlements", "club-one", "--json").out, `"lines": []`)
	}, 30*time.Second, 200*time.Millisecond, "the cancellation arrives by polling")

	require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
	require.Equal(t, exitOK, p.ends(), p.out.String())
	p.leftNothing()
}

type ran struct {
	code     int
	out, err string
}

// runWith runs a command in this process.
func runWith(t *testing.T, env map[string]string, args ...string) ran {
	t.Helper()
	var out, errs bytes.Buffer
	a := newApp(strings.NewReader(""), &out, &errs)
	a.getenv = func(name string) string { return env[name] }
	code := a.run(t.Context(), args)
	return ran{code, out.String(), fmt.Sprint(errs.String())}
}
