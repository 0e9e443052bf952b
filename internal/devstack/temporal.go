package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
)

const temporalLog = "temporal.log"

// TemporalOptions says how to start a Temporal development server. The zero value will do.
type TemporalOptions struct {
	// Namespace is made at the start; "" means "default".
	Namespace string
	// UI says whether the web interface is served too.
	UI bool
	// SearchAttributes are made at the start: name to type, for instance "BursarCustomer": "Keyword".
	SearchAttributes map[string]string
	// DynamicConfig holds server settings (values are JSON) on top of those that make it fast enough for tests.
	DynamicConfig map[string]string
	// Progress, when set, is told what is going on, one line a call; slow steps (a first build of the CLI takes
	// minutes) call it every few seconds. Calls do not overlap but may come from other goroutines.
	Progress func(string)
}

// Temporal is a running Temporal development server that keeps everything in memory. Its methods may be called from
// any goroutine.
type Temporal struct {
	child     *child
	folder    *folder
	port      int
	uiPort    int // 0: no UI
	namespace string

	stopOnce sync.Once
	stopErr  error
}

// StartTemporal starts a Temporal development server on free loopback ports and returns once its namespace, and its
// UI when asked for, answer. ctx bounds the start alone; a start takes at most a minute once the CLI is there. On an
// error nothing is left running and no file is left.
func StartTemporal(ctx context.Context, options TemporalOptions) (*Temporal, error) {
	p := newProgress(options.Progress)
	cli, err := findTemporalCLI(ctx, p)
	if err != nil {
		return nil, err
	}
	if options.Namespace == "" {
		options.Namespace = "default"
	}
	home, err := newFolder("temporal", nil)
	if err != nil {
		return nil, err
	}
	defer p.during("starting the Temporal server", "")()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	server, err := onFreePort(ctx, func() (*Temporal, error) { return startTemporal(ctx, cli, home, options) })
	if err != nil {
		return nil, errors.Join(err, home.remove())
	}
	return server, nil
}

func startTemporal(ctx context.Context, cli string, home *folder, options TemporalOptions) (*Temporal, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	args := []string{
		"server", "start-dev", "--ip", loopback, "--port", strconv.Itoa(port), "--namespace", options.Namespace,
		"--log-level", "error",
	}
	uiPort := 0
	if options.UI {
		if uiPort, err = freePort(); err != nil {
			return nil, err
		}
		args = append(args, "--ui-ip", loopback, "--ui-port", strconv.Itoa(uiPort))
	} else {
		args = append(args, "--headless")
	}
	for _, name := range slices.Sorted(maps.Keys(options.SearchAttributes)) {
		args = append(args, "--search-attribute", name+"="+options.SearchAttributes[name])
	}
	config := map[string]string{
		// The one shard's transfer queue is read 20 times a second as it comes, which makes every step of a
		// workflow take 100 ms.
		"history.transferProcessorMaxPollRPS": "2000",
		// The server asks nobody about newer versions.
		"frontend.enableServerVersionCheck": "false",
	}
	maps.Copy(config, options.DynamicConfig)
	for _, name := range slices.Sorted(maps.Keys(config)) {
		args = append(args, "--dynamic-config-value", name+"="+config[name])
	}
	if err := os.Truncate(home.join(temporalLog), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("begin a new server log: %w", err)
	}
	// The CLI reads its defaults from the environment and keeps a small file in the user's configuration folder;
	// here it sees none of the first and writes the second where Stop removes it.
	env := environWithout([]string{"TEMPORAL_", "HOME=", "XDG_CONFIG_HOME="},
		"HOME="+home.path, "XDG_CONFIG_HOME="+home.join("config"))
	c, err := startChild(childSpec{
		name:        "the Temporal server",
		path:        cli,
		args:        args,
		env:         env,
		dir:         home.path,
		logPath:     home.join(temporalLog),
		deathSignal: syscall.SIGKILL,
	})
	if err != nil {
		return nil, err
	}
	server := &Temporal{child: c, folder: home, port: port, uiPort: uiPort, namespace: options.Namespace}
	if err := server.awaitReady(ctx); err != nil {
		err = markPortTaken(fmt.Errorf("%w\n%s", err, logTail(server.LogPath())), server.LogPath())
		return nil, errors.Join(err, server.shutdown(context.WithoutCancel(ctx)))
	}
	return server, nil
}

// awaitReady polls until the namespace and the UI answer.
func (t *Temporal) awaitReady(ctx context.Context) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := t.answers(ctx)
		if err == nil && !t.child.exited() {
			return nil
		}
		select {
		case <-t.child.done:
			return fmt.Errorf("the Temporal server ended while it started (%v)", t.child.err)
		case <-ctx.Done():
			return fmt.Errorf("the Temporal server did not get ready: %w (last: %v)", ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

// answers asks the server for its health, its identity and its namespace, and the UI for a page.
func (t *Temporal) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	// No dial before somebody listens: the SDK's own retries would take seconds.
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.Address())
	if err != nil {
		return err
	}
	conn.Close()
	c, err := client.DialContext(ctx, client.Options{
		HostPort:  t.Address(),
		Namespace: t.namespace,
		Logger:    log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.CheckHealth(ctx, &client.CheckHealthRequest{}); err != nil {
		return err
	}
	if _, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: t.namespace}); err != nil {
		return err
	}
	cluster, err := c.WorkflowService().GetClusterInfo(ctx, &workflowservice.GetClusterInfoRequest{})
	if err != nil {
		return err
	}
	if own := t.clusterID(); own != "" && own != cluster.GetClusterId() {
		// This one is about to find its port taken and to end.
		return fmt.Errorf("another Temporal server answers on %s", t.Address())
	}
	if t.uiPort == 0 {
		return nil
	}
	return getOK(ctx, t.UIURL())
}

var clusterIDLine = regexp.MustCompile(`(?m)^\s*cluster-id:\s*"?([0-9a-fA-F-]+)`)

// clusterID is the identity that the CLI made up for this server and noted in its (here: our) configuration folder,
// or "" when it keeps no such note. It tells this server from a stranger's on the same port.
func (t *Temporal) clusterID() string {
	for _, pattern := range []string{"config/*/version-info.yaml", ".config/*/version-info.yaml"} {
		paths, err := filepath.Glob(t.folder.join(pattern))
		if err != nil {
			continue // only a malformed pattern fails
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				continue
			}
			if match := clusterIDLine.FindSubmatch(text); match != nil {
				return string(match[1])
			}
		}
	}
	return ""
}

func getOK(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

// Address is the host and port of the server's gRPC interface.
func (t *Temporal) Address() string { return net.JoinHostPort(loopback, strconv.Itoa(t.port)) }

// Namespace is the namespace that was made at the start.
func (t *Temporal) Namespace() string { return t.namespace }

// UIURL is the root of the web interface, without a slash at its end, or "" when the UI was not asked for.
func (t *Temporal) UIURL() string {
	if t.uiPort == 0 {
		return ""
	}
	return "http://" + net.JoinHostPort(loopback, strconv.Itoa(t.uiPort))
}

// LogPath is the file that the server logs to (errors alone). It is gone after Stop.
func (t *Temporal) LogPath() string { return t.folder.join(temporalLog) }

// Folder is the temporary folder that holds all files of the server. It is gone after Stop.
func (t *Temporal) Folder() string { return t.folder.path }

// PID is the process id of the server.
func (t *Temporal) PID() int { return t.child.pid() }

// Done is closed when the server has ended, be it by Stop or by itself.
func (t *Temporal) Done() <-chan struct{} { return t.child.done }

// Stop shuts the server down and removes its files. It returns within fifteen seconds; the end of ctx makes it kill
// the server at once. Later calls wait for the first and return what it returned.
func (t *Temporal) Stop(ctx context.Context) error {
	t.stopOnce.Do(func() {
		t.stopErr = errors.Join(t.shutdown(ctx), t.folder.remove())
	})
	return t.stopErr
}

// shutdown ends the process and leaves the files.
func (t *Temporal) shutdown(ctx context.Context) error {
	return t.child.stop(ctx,
		stopStep{syscall.SIGTERM, 5 * time.Second},
		stopStep{syscall.SIGKILL, 5 * time.Second},
	)
}
