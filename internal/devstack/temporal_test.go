package devstack

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
)

func startTemporalForTest(t *testing.T, options TemporalOptions) *Temporal {
	t.Helper()
	options.Progress = func(line string) { t.Log(line) }
	server, err := StartTemporal(testContext(t), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return server
}

func TestTemporalStartsAnswersAndLeavesNothing(t *testing.T) {
	t.Setenv("TEMPORAL_NAMESPACE", "of-the-callers-shell")
	server := startTemporalForTest(t, TemporalOptions{
		Namespace:        "bursar-test",
		UI:               true,
		SearchAttributes: map[string]string{"BursarCustomer": "Keyword"},
	})
	ctx := testContext(t)
	c, err := client.DialContext(ctx, client.Options{HostPort: server.Address(), Namespace: server.Namespace()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	described, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: "bursar-test"})
	if err != nil {
		t.Fatal(err)
	}
	if state := described.GetNamespaceInfo().GetState(); state != enums.NAMESPACE_STATE_REGISTERED {
		t.Errorf("namespace state %v", state)
	}
	attributes, err := c.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: "bursar-test"})
	if err != nil {
		t.Fatal(err)
	}
	if got := attributes.GetCustomAttributes()["BursarCustomer"]; got != enums.INDEXED_VALUE_TYPE_KEYWORD {
		t.Errorf("search attribute: %v", got)
	}
	if got := server.clusterID(); got == "" {
		t.Error("the server's identity was not found, so a stranger on its port would pass for it")
	}
	response, err := http.Get(server.UIURL())
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(strings.ToLower(string(page)), "<html") {
		t.Errorf("the UI answers %s (%v): %.100s", response.Status, err, page)
	}
	assertOwnGroup(t, server.PID())
	if pids := processesIn(t, server.Folder()); len(pids) != 1 {
		t.Errorf("processes in the folder: %v, want the server alone", pids)
	}

	begun := time.Now()
	if err := server.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 9*time.Second {
		t.Errorf("the stop took %v", took)
	}
	assertGone(t, server.PID(), server.Folder())
	if err := server.Stop(ctx); err != nil {
		t.Errorf("second stop: %v", err)
	}
}

func TestTemporalWithoutUI(t *testing.T) {
	server := startTemporalForTest(t, TemporalOptions{})
	if server.UIURL() != "" || server.Namespace() != "default" {
		t.Errorf("UI %q, namespace %q", server.UIURL(), server.Namespace())
	}
	// A server that does not even look at its signals is killed in bounded time.
	if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	begun := time.Now()
	if err := server.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the stop took %v", took)
	}
	assertGone(t, server.PID(), server.Folder())
}

func TestTemporalStartFailsWithItsLogAndLeavesNothing(t *testing.T) {
	base := openTempDir(t)
	t.Setenv("TMPDIR", base)
	_, err := StartTemporal(testContext(t), TemporalOptions{SearchAttributes: map[string]string{"Odd": "NoSuchType"}})
	if err == nil {
		t.Fatal("a server with an unknown search attribute type started")
	}
	if !strings.Contains(err.Error(), "NoSuchType") {
		t.Errorf("the error has not the server's own words: %v", err)
	}
	if entries, err := os.ReadDir(base); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v (%v)", entries, err)
	}
}

func TestTemporalOfKilledOwnerEnds(t *testing.T) {
	t.Setenv("TMPDIR", openTempDir(t))
	owner, owned := startOwner(t, "temporal")
	if !processAlive(owned.PID) {
		t.Fatalf("no server to watch: %+v", owned)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait()
	eventually(t, 10*time.Second, "the killed owner's server is gone", func() bool { return !processAlive(owned.PID) })
	sweep(filepath.Dir(owned.Folder))
	assertGone(t, owned.PID, owned.Folder)
}
