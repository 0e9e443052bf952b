package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/bursarhq/bursar/workflows/contract"
)

// catchupWindow is how far back a server that was down starts what it missed. Every schedule here looks at the tables as they
// are, so one run makes up for all that were missed.
const catchupWindow = time.Minute

// schedules is the one list of what runs by itself.
func schedules(c Config) []client.ScheduleOptions {
	parkedRetry := client.ScheduleOptions{
		ID:   contract.ScheduleParkedRetry,
		Spec: client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: c.ParkedRetryInterval}}},
		Action: &client.ScheduleWorkflowAction{
			ID:                       contract.ParkedRetryWorkflowID,
			Workflow:                 contract.ParkedRetry,
			TaskQueue:                contract.QueueDB,
			WorkflowExecutionTimeout: 30 * time.Minute,
			WorkflowTaskTimeout:      10 * time.Second,
			StaticSummary:            "Retry parked work that is due",
		},
		Overlap:       enumspb.SCHEDULE_OVERLAP_POLICY_SKIP,
		CatchupWindow: catchupWindow,
		Note:          scheduleNote,
	}
	return []client.ScheduleOptions{
		parkedRetry,
		drainStart(),
		kept(contract.ScheduleGrantExpiry, contract.KeeperInput{
			Workflow: contract.GrantExpiry, ID: contract.GrantExpiryWorkflowID, Summary: "Expire and begin the grants that are due",
		}),
	}
}

const scheduleNote = "Made by bursar worker. It may be paused; everything else is set again at the next start."

// keepEvery is how often a keeper looks after what it keeps.
const keepEvery = time.Minute

// drainStart is the schedule that starts drains. Drains have ids of their own, so it needs no keeper.
func drainStart() client.ScheduleOptions {
	return client.ScheduleOptions{
		ID:   contract.ScheduleDrainStart,
		Spec: client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: keepEvery}}},
		Action: &client.ScheduleWorkflowAction{
			ID:                       contract.DrainStartWorkflowID,
			Workflow:                 contract.DrainStart,
			TaskQueue:                contract.QueueDB,
			WorkflowExecutionTimeout: 15 * time.Minute,
			WorkflowTaskTimeout:      10 * time.Second,
			StaticSummary:            "Start the drains of changes that owe pools",
		},
		Overlap:       enumspb.SCHEDULE_OVERLAP_POLICY_SKIP,
		CatchupWindow: catchupWindow,
		Note:          scheduleNote,
	}
}

// kept is the schedule of a keeper.
func kept(id string, in contract.KeeperInput) client.ScheduleOptions {
	return client.ScheduleOptions{
		ID:   id,
		Spec: client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: keepEvery}}},
		Action: &client.ScheduleWorkflowAction{
			ID:                       contract.KeeperWorkflowID(in.ID),
			Workflow:                 contract.Keeper,
			Args:                     []any{in},
			TaskQueue:                contract.QueueDB,
			WorkflowExecutionTimeout: 5 * time.Minute,
			WorkflowTaskTimeout:      10 * time.Second,
			StaticSummary:            "Keep " + in.ID + " running",
		},
		Overlap:       enumspb.SCHEDULE_OVERLAP_POLICY_SKIP,
		CatchupWindow: catchupWindow,
		Note:          scheduleNote,
	}
}

// ensureSchedules makes the schedules that are missing and brings those that differ to what they should be. A pause by an
// operator stays. Any number of workers may call it at once.
func ensureSchedules(ctx context.Context, c client.Client, wanted []client.ScheduleOptions, logger *slog.Logger) error {
	for _, want := range wanted {
		err := ensureSchedule(ctx, c, want, logger)
		if err != nil {
			return fmt.Errorf("the schedule %q could not be made or updated: %w", want.ID, err)
		}
	}
	return nil
}

func ensureSchedule(ctx context.Context, c client.Client, want client.ScheduleOptions, logger *slog.Logger) error {
	_, err := c.ScheduleClient().Create(ctx, want)
	if err == nil {
		logger.Info("schedule made", "schedule", want.ID)
		return nil
	}
	if !errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
		return err
	}
	changed := false
	err = c.ScheduleClient().GetHandle(ctx, want.ID).Update(ctx, client.ScheduleUpdateOptions{
		DoUpdate: func(in client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
			have := in.Description.Schedule
			if sameSchedule(have, want) {
				return nil, temporal.ErrSkipScheduleUpdate
			}
			changed = true
			spec := want.Spec
			have.Spec, have.Action = &spec, want.Action
			have.Policy = &client.SchedulePolicies{Overlap: want.Overlap, CatchupWindow: want.CatchupWindow, PauseOnFailure: want.PauseOnFailure}
			return &client.ScheduleUpdate{Schedule: &have}, nil
		},
	})
	if err == nil && changed {
		logger.Info("schedule updated", "schedule", want.ID)
	}
	return err
}

// sameSchedule compares what a worker sets.
func sameSchedule(have client.Schedule, want client.ScheduleOptions) bool {
	spec, policy := have.Spec, have.Policy
	action, ok := have.Action.(*client.ScheduleWorkflowAction)
	if !ok || spec == nil || policy == nil {
		return false
	}
	wanted := want.Action.(*client.ScheduleWorkflowAction)
	return slices.Equal(spec.Intervals, want.Spec.Intervals) && len(spec.Calendars) == 0 && len(spec.CronExpressions) == 0 && len(spec.Skip) == 0 &&
		policy.Overlap == want.Overlap && policy.CatchupWindow == want.CatchupWindow && policy.PauseOnFailure == want.PauseOnFailure &&
		action.ID == wanted.ID && action.Workflow == wanted.Workflow && action.TaskQueue == wanted.TaskQueue && sameArgs(action.Args, wanted.Args) &&
		action.WorkflowExecutionTimeout == wanted.WorkflowExecutionTimeout && action.WorkflowTaskTimeout == wanted.WorkflowTaskTimeout &&
		action.StaticSummary == wanted.StaticSummary
}

// sameArgs compares the arguments of a schedule that stands, which come encoded, with those of one that is wanted.
func sameArgs(have, want []any) bool {
	if len(have) == 0 && len(want) == 0 {
		return true
	}
	encoded, err := converter.GetDefaultDataConverter().ToPayloads(want...)
	if err != nil {
		return false
	}
	return slices.EqualFunc(have, encoded.GetPayloads(), func(had any, wanted *commonpb.Payload) bool {
		payload, ok := had.(*commonpb.Payload)
		return ok && payload.Equal(wanted)
	})
}
