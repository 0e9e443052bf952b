package worker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/bursarhq/bursar/workflows/contract"
)

// hurry divides the time in which a sign of life is awaited, so that tests need not wait as long as operators may.
const hurry = 10

// aliveWithin is that time for the activities that call Stripe, hurried.
const aliveWithin = 20 * time.Second / hurry

// hurried makes workers await signs of life sooner, and changes nothing else: an activity for which none is awaited stays so.
type hurried struct{ interceptor.InterceptorBase }

func (*hurried) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &hurriedInbound{interceptor.WorkflowInboundInterceptorBase{Next: next}}
}

type hurriedInbound struct {
	interceptor.WorkflowInboundInterceptorBase
}

func (h *hurriedInbound) Init(next interceptor.WorkflowOutboundInterceptor) error {
	return h.Next.Init(&hurriedOutbound{interceptor.WorkflowOutboundInterceptorBase{Next: next}})
}

type hurriedOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
}

func (h *hurriedOutbound) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	return h.Next.ExecuteActivity(workflow.WithHeartbeatTimeout(ctx, workflow.GetActivityOptions(ctx).HeartbeatTimeout/hurry), name, args...)
}

func dialHurried(config TemporalConfig) (client.Client, error) {
	options, err := config.options(quiet())
	if err != nil {
		return nil, err
	}
	options.Interceptors = []interceptor.ClientInterceptor{&hurried{}}
	return client.Dial(options)
}

// hungReads makes reads of Stripe wait until release; begun gets the time of each.
func (r *rig) hungReads() (begun chan time.Time, release func()) {
	begun, gate := make(chan time.Time, 16), make(chan struct{})
	release = sync.OnceFunc(func() { close(gate) })
	r.t.Cleanup(release)
	r.stripe.OnRead(func(string) { begun <- time.Now(); <-gate })
	return begun, release
}

// A read of Stripe that takes longer than a sign of life is awaited is one try: the activity gives them.
func TestALongReadIsOneTry(t *testing.T) {
	r := newRig(t, "long-read")
	c, err := dialHurried(r.config.Temporal)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	r.start(Options{Temporal: c})
	begun, release := r.hungReads()
	r.organization("acme")
	customer := r.customer()
	r.link(customer, "acme")
	sub := r.subscribe(customer)
	require.NoError(t, r.starter.SignalReconcile(t.Context(), sub, contract.ReconcileSignal{EventType: "test"}))
	<-begun
	select {
	case <-begun:
		t.Fatal("the read was begun again while the first one ran: no sign of life was given")
	case <-time.After(3 * aliveWithin): // the length of the read
	}
	release()
	require.Equal(t, "active", r.outcome(sub).Status)
	require.Equal(t, 1, r.stripe.Reads(sub))

	history, started := r.temporal.GetWorkflowHistory(t.Context(), contract.SubscriptionWorkflowID(sub), "", false, 0), 0
	for history.HasNext() {
		event, err := history.Next()
		require.NoError(t, err)
		if a := event.GetActivityTaskStartedEventAttributes(); a != nil {
			started++
			require.EqualValues(t, 1, a.Attempt)
			require.Nil(t, a.LastFailure)
		}
		if a := event.GetActivityTaskScheduledEventAttributes(); a != nil {
			require.Equal(t, aliveWithin, a.HeartbeatTimeout.AsDuration())
		}
	}
	require.Equal(t, 1, started)
}

// What a killed process was doing is taken over soon, not when its time is over.
func TestAKilledWorkerIsTakenOver(t *testing.T) {
	r := newRig(t, "killed")
	begun, release := r.hungReads()
	r.organization("acme")
	customer := r.customer()
	r.link(customer, "acme")
	sub := r.subscribe(customer)

	victim := r.startProcess()
	require.NoError(t, r.starter.SignalReconcile(t.Context(), sub, contract.ReconcileSignal{EventType: "test"}))
	first := <-begun
	c, err := dialHurried(r.config.Temporal)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	r.start(Options{Temporal: c}) // the one that takes over
	if early := len(begun); early > 0 {
		t.Fatalf("%d reads were begun while the first process lived", early)
	}
	require.NoError(t, victim.Kill())
	killed := time.Now()
	select {
	case second := <-begun:
		require.True(t, second.After(killed), "taken over when it was killed, %s after its read began", killed.Sub(first))
	case <-time.After(aliveWithin + 10*time.Second): // all the time that a try may take is minutes
		t.Fatal("nobody has taken over")
	}
	release()
	require.Equal(t, contract.OutcomeApplied, r.outcome(sub).Outcome)
	require.Equal(t, 20, r.sites("acme"))
}

// workerProcess is the variable that makes the test's binary a worker.
const workerProcess = "BURSAR_TEST_WORKER_PROCESS"

// startProcess runs a worker in a process of its own, and returns once it is ready. It ends with the test at the latest.
func (r *rig) startProcess() *os.Process {
	r.t.Helper()
	self, err := os.Executable()
	require.NoError(r.t, err)
	command := exec.Command(self)
	command.Env = append(os.Environ(), workerProcess+"=1", "DATABASE_URL="+r.database.URL(), "STRIPE_API_KEY="+r.config.StripeKey.Reveal(),
		"STRIPE_API_URL="+r.config.StripeURL, "TEMPORAL_ADDRESS="+r.config.Temporal.Address, "TEMPORAL_NAMESPACE="+r.config.Temporal.Namespace)
	command.Stderr = os.Stderr
	stdin, err := command.StdinPipe() // its end is the sign for the process to end
	require.NoError(r.t, err)
	stdout, err := command.StdoutPipe()
	require.NoError(r.t, err)
	require.NoError(r.t, command.Start())
	r.t.Cleanup(func() {
		_ = stdin.Close()
		_ = command.Process.Kill()
		_ = command.Wait() // killed, so it has no good end
	})
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(stdout).ReadString('\n')
		said <- line
	}()
	select {
	case line := <-said:
		require.Equal(r.t, "ready\n", line, "the process ended before it was ready")
	case <-time.After(90 * time.Second):
		r.t.Fatal("the process is not ready after 90 s")
	}
	return command.Process
}

// runWorkerProcess is the process that startProcess starts.
func runWorkerProcess() error {
	config, err := LoadConfig(nil)
	if err != nil {
		return err
	}
	c, err := dialHurried(config.Temporal)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return Run(ctx, config, Options{Temporal: c, Logger: quiet(), TelemetryIsSet: true, Ready: func() { fmt.Println("ready") }})
}
