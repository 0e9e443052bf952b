package workflows

import (
	"compress/gzip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/bursarhq/bursar/workflows/contract"
)

const replayFolder = "testdata/replay"

// Every recorded history still replays: a workflow that runs somewhere goes on with the code of today. A workflow
// without a history fails.
func TestRecordedHistoriesReplay(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			files := histories(t, name)
			require.NotEmpty(t, files, "%s has no recorded history under %s: add a scenario to record_test.go and run make record", name, filepath.Join(replayFolder, name))
			for _, file := range files {
				t.Run(filepath.Base(file), func(t *testing.T) {
					history := readHistory(t, file)
					require.Equal(t, name, history.Events[0].GetWorkflowExecutionStartedEventAttributes().GetWorkflowType().GetName(),
						"the history lies in another workflow's folder")
					replayer := worker.NewWorkflowReplayer()
					Register(replayer)
					require.NoError(t, replay(replayer, history))
				})
			}
		})
	}
}

// A folder whose workflow is no longer registered would never be replayed.
func TestEveryHistoryBelongsToAWorkflow(t *testing.T) {
	entries, err := os.ReadDir(replayFolder)
	require.NoError(t, err)
	for _, entry := range entries {
		require.Contains(t, Names(), entry.Name(), "%s holds histories of a workflow that is not registered", filepath.Join(replayFolder, entry.Name()))
	}
}

// The replay notices a change: the same histories against a workflow that does something else do not pass.
func TestReplayNoticesAChange(t *testing.T) {
	replayer := worker.NewWorkflowReplayer()
	replayer.RegisterWorkflowWithOptions(func(ctx workflow.Context, in contract.SubscriptionReconcileInput) (contract.SubscriptionReconcileResult, error) {
		result, err := reconcileSubscription(ctx, contract.ReconcileRequest{SubscriptionID: in.SubscriptionID})
		if err == nil {
			_, err = reconcileSubscription(ctx, contract.ReconcileRequest{SubscriptionID: in.SubscriptionID})
		}
		return contract.SubscriptionReconcileResult{Last: result}, err
	}, workflow.RegisterOptions{Name: contract.SubscriptionReconcile})
	for _, file := range histories(t, contract.SubscriptionReconcile) {
		require.ErrorContains(t, replay(replayer, readHistory(t, file)), "TMPRL1100", file)
	}
}

// replay runs a history under the ids that it was recorded with: SubscriptionReconcile looks at its own.
func replay(replayer worker.WorkflowReplayer, history *historypb.History) error {
	started := history.Events[0].GetWorkflowExecutionStartedEventAttributes()
	return replayer.ReplayWorkflowHistoryWithOptions(quiet(), history, worker.ReplayWorkflowHistoryOptions{
		OriginalExecution: workflow.Execution{ID: started.GetWorkflowId(), RunID: started.GetOriginalExecutionRunId()},
	})
}

func histories(t *testing.T, workflowName string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(replayFolder, workflowName, "*.json.gz"))
	require.NoError(t, err)
	slices.Sort(files)
	return files
}

func readHistory(t *testing.T, file string) *historypb.History {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	require.NoError(t, err)
	history, err := client.HistoryFromJSON(unzipped, client.HistoryJSONOptions{})
	require.NoError(t, err)
	require.NotEmpty(t, history.Events)
	return history
}
