package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/bursarhq/bursar/worker"
	"github.com/bursarhq/bursar/workflows"
	"github.com/bursarhq/bursar/workflows/contract"
)

// act is one act of a person: the activity that does it, and what it is about.
type act struct {
	// name is the activity's, one of the contract's constants.
	name string
	// input is the activity's input; it names the ids of the rows it makes.
	input any
	// organization is the slug of the organisation, object what the act is about; either may be empty.
	organization, object string
	// summary is one line for the Temporal UI.
	summary string
}

// acted is what became of an act.
type acted struct {
	// Workflow is the id of the act's workflow.
	Workflow string `json:"workflow"`
	contract.ActResult
}

// actFlags are what every command that acts takes.
type actFlags struct{ json, yes bool }

// actFlagsOf adds the flags of a command that acts. confirmed says that it asks before it acts, and so takes --yes.
func actFlagsOf(cmd *cobra.Command, confirmed bool) *actFlags {
	f := &actFlags{}
	cmd.Flags().BoolVar(&f.json, "json", false, "print as JSON")
	if confirmed {
		cmd.Flags().BoolVar(&f.yes, "yes", false, "do it without asking")
	}
	return f
}

// slowAct is after how long a person is told that no answer has come yet.
const slowAct = 10 * time.Second

// runAct starts the workflow of an act, tells its id, and waits for its outcome. With quiet nothing is printed on out: the caller
// prints JSON.
func (a *app) runAct(ctx context.Context, what act, quiet bool) (acted, error) {
	input, err := json.Marshal(what.input)
	if err != nil {
		return acted{}, fmt.Errorf("the act's input: %w", err)
	}
	c, err := a.openTemporal(ctx)
	if err != nil {
		return acted{}, err
	}
	id := uuid.NewString()
	result := acted{Workflow: contract.OperatorActWorkflowID(id)}
	run, err := workflows.Starter{Client: c}.StartAct(ctx, id, contract.OperatorActInput{
		Act: what.name, Input: input, Organization: what.organization, Object: what.object, Summary: what.summary,
	})
	if err != nil {
		return result, fmt.Errorf("%w; it may have been started all the same: look for %s in the Temporal UI before you try again", err, result.Workflow)
	}
	if !quiet {
		fmt.Fprintf(a.out, "Workflow %s\n", result.Workflow)
	}
	slow := time.AfterFunc(slowAct, func() {
		fmt.Fprintf(a.err, "bursar: %s has no outcome yet; does a 'bursar worker' run? It is done once one does\n", result.Workflow)
	})
	defer slow.Stop()
	if err := run.Get(ctx, &result.ActResult); err != nil {
		return result, actError(ctx, result.Workflow, err)
	}
	return result, nil
}

// finishAct runs an act and prints its outcome: the sentence, or all of it as JSON.
func (a *app) finishAct(ctx context.Context, what act, flags *actFlags) error {
	result, err := a.runAct(ctx, what, flags.json)
	switch {
	case err != nil:
		return err
	case flags.json:
		return a.printJSON(result)
	}
	fmt.Fprintln(a.out, result.Detail)
	if change := result.Change; change != nil && change.Owed > 0 {
		fmt.Fprintf(a.out, "%s still to be settled: workflow %s does it; 'bursar rule status %s' tells how far it is\n",
			plural(change.Owed, "pool"), contract.RuleChangeDrainWorkflowID(change.ID), change.ID)
	}
	return nil
}

// actError says what became of an act that has no result.
func actError(ctx context.Context, workflow string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("stopped waiting; %s goes on by itself, and the Temporal UI shows what becomes of it", workflow)
	}
	var failed *temporal.ApplicationError
	if errors.As(err, &failed) {
		return errors.New(failed.Message())
	}
	var timedOut *temporal.TimeoutError
	if errors.As(err, &timedOut) {
		return fmt.Errorf("%s did not get through in time; the Temporal UI shows its tries: %w", workflow, err)
	}
	return fmt.Errorf("%s: %w", workflow, err)
}

// confirm asks a person whether to go on, unless yes says so already.
func (a *app) confirm(question string, yes bool) (bool, error) {
	if yes {
		return true, nil
	}
	agreed, err := a.ask("", question)
	if err == nil && !agreed {
		fmt.Fprintln(a.out, "Nothing was changed.")
	}
	return agreed, err
}

// openTemporal connects to the Temporal of TEMPORAL_ADDRESS, once.
func (a *app) openTemporal(ctx context.Context) (client.Client, error) {
	if a.temporal != nil {
		return a.temporal, nil
	}
	var config struct{ Temporal worker.TemporalConfig }
	problems := worker.ParseEnv(&config, a.getenv, map[string]string{"TEMPORAL_TLS": "true or false"})
	if problems = worker.AddProblems(problems, config.Temporal.Problems()...); len(problems) > 0 {
		return nil, &worker.ConfigError{Problems: problems}
	}
	c, err := config.Temporal.Dial(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, fmt.Errorf("%w; acts are done by a worker, through Temporal", err)
	}
	a.temporal = c
	return c, nil
}
