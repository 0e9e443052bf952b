package worker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"

	"github.com/bursarhq/bursar/internal/telemetry"
	"github.com/bursarhq/bursar/workflows/contract"
)

// TemporalConfig says how to reach Temporal. The worker and the ingress read the same variables.
type TemporalConfig struct {
	// Address is the host and port of the frontend.
	Address string `env:"TEMPORAL_ADDRESS" envDefault:"localhost:7233"`
	// Namespace is the namespace that workflows run in.
	Namespace string `env:"TEMPORAL_NAMESPACE" envDefault:"default"`
	// APIKey is the key of Temporal Cloud; with it the connection uses TLS.
	APIKey Secret `env:"TEMPORAL_API_KEY"`
	// TLS makes the connection use TLS also without a key.
	TLS bool `env:"TEMPORAL_TLS" envDefault:"false"`
}

// Problems returns what is wrong with the values, each naming its variable.
func (t TemporalConfig) Problems() []string {
	var p []string
	if host, port, err := net.SplitHostPort(t.Address); err != nil || host == "" || port == "" {
		p = append(p, fmt.Sprintf("TEMPORAL_ADDRESS is %q: set it to a host and a port, such as localhost:7233", t.Address))
	}
	if t.Namespace == "" || strings.ContainsAny(t.Namespace, " \t\n/") {
		p = append(p, fmt.Sprintf("TEMPORAL_NAMESPACE is %q: set it to the name of a namespace, such as default", t.Namespace))
	}
	return p
}

// dialTimeout bounds the first contact with Temporal.
const dialTimeout = 15 * time.Second

// Dial connects to Temporal with tracing and metrics. Workers of the client have them too. The error says what to check.
func (t TemporalConfig) Dial(ctx context.Context, logger *slog.Logger) (client.Client, error) {
	options, err := t.options(logger)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := client.DialContext(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("Temporal at %s cannot be reached: %w; check TEMPORAL_ADDRESS, TEMPORAL_TLS and TEMPORAL_API_KEY, and that the server runs", t.Address, err)
	}
	return c, nil
}

// DialLazily is Dial for a process that can start before Temporal does: the client connects when it is first used, and again
// whenever it must.
func (t TemporalConfig) DialLazily(logger *slog.Logger) (client.Client, error) {
	options, err := t.options(logger)
	if err != nil {
		return nil, err
	}
	return client.NewLazyClient(options)
}

func (t TemporalConfig) options(logger *slog.Logger) (client.Options, error) {
	tracing, err := telemetry.TemporalInterceptor()
	if err != nil {
		return client.Options{}, err
	}
	options := client.Options{
		HostPort:       t.Address,
		Namespace:      t.Namespace,
		Logger:         log.NewStructuredLogger(logger),
		Interceptors:   []interceptor.ClientInterceptor{tracing},
		MetricsHandler: telemetry.TemporalMetrics(),
	}
	if t.APIKey != "" {
		options.Credentials = client.NewAPIKeyStaticCredentials(t.APIKey.Reveal())
	}
	if t.TLS || t.APIKey != "" {
		options.ConnectionOptions.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return options, nil
}

// Ready returns a readiness check: it answers nil when Temporal can be reached now and serves the namespace.
func Ready(c client.Client, namespace string) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace}); err != nil {
			return fmt.Errorf("Temporal does not serve the namespace %q: %w", namespace, err)
		}
		return nil
	}
}

// attributesTimeout bounds how long EnsureSearchAttributes waits until new attributes can be used: the server's caches
// learn of them only after some seconds.
const attributesTimeout = time.Minute

// EnsureSearchAttributes makes the search attributes that the workflows set. Where they exist it does nothing; any number of
// processes may call it at once. Without them every signal would fail, so an error means: do not start. It says how to make them
// by hand where this client may not.
func EnsureSearchAttributes(ctx context.Context, c client.Client, namespace string) error {
	const keyword = enumspb.INDEXED_VALUE_TYPE_KEYWORD
	ctx, cancel := context.WithTimeout(ctx, attributesTimeout)
	defer cancel()
	listed, err := c.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		// Not everybody may list them. Whether a query may name them tells as much.
		if usable(ctx, c, namespace) == nil {
			return nil
		}
		var away *serviceerror.Unavailable
		if errors.As(err, &away) || ctx.Err() != nil {
			return fmt.Errorf("Temporal cannot be asked for its search attributes: %w", err)
		}
		return fmt.Errorf("the search attributes of Temporal's namespace %q cannot be read: %w. Look at TEMPORAL_NAMESPACE; where the namespace is right, make the attributes with: %s", namespace, err, attributesCommand(namespace, contract.SearchAttributes()))
	}
	missing := map[string]enumspb.IndexedValueType{}
	var names []string
	for _, name := range contract.SearchAttributes() {
		have, ok := listed.GetCustomAttributes()[name]
		switch {
		case !ok:
			missing[name] = keyword
			names = append(names, name)
		case have != keyword:
			return fmt.Errorf("the Temporal namespace %q has the search attribute %s as %s, and Bursar needs it as Keyword: use another namespace, or remove it", namespace, name, have)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	_, err = c.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{Namespace: namespace, SearchAttributes: missing})
	var exists *serviceerror.AlreadyExists
	if err != nil && !errors.As(err, &exists) {
		return fmt.Errorf("the Temporal namespace %q lacks the search attributes %s, and they could not be added: %w; make them with: %s",
			namespace, strings.Join(names, ", "), err, attributesCommand(namespace, names))
	}
	return awaitUsable(ctx, c, namespace)
}

func awaitUsable(ctx context.Context, c client.Client, namespace string) error {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := usable(ctx, c, namespace)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the search attributes were added to the Temporal namespace %q and cannot be used yet: %w; start again in a minute", namespace, err)
		case <-ticker.C:
		}
	}
}

// usable answers nil when a query may name every search attribute.
func usable(ctx context.Context, c client.Client, namespace string) error {
	var terms []string
	for _, name := range contract.SearchAttributes() {
		terms = append(terms, name+" = 'x'")
	}
	_, err := c.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: namespace, Query: strings.Join(terms, " AND ")})
	return err
}

func attributesCommand(namespace string, names []string) string {
	command := "temporal operator search-attribute create --namespace " + namespace
	for _, name := range names {
		command += " --name " + name + " --type Keyword"
	}
	return command + " (on Temporal Cloud: in the namespace's settings)"
}
