package arch

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// direct are the modules that Bursar imports itself, each with what it is for. A new one is a decision: it is kept up to date,
// read when it changes, and trusted with what Bursar knows.
var direct = map[string]string{
	"github.com/caarlos0/env/v11":                                       "reads the configuration from the environment and names all that is wrong with it at once",
	"github.com/exaring/otelpgx":                                        "makes each SQL statement a span, and measures it",
	"github.com/fergusstrange/embedded-postgres":                        "brings a PostgreSQL for development and tests to where none is installed",
	"github.com/goccy/go-yaml":                                          "reads the catalogue, and says in which line and column it is wrong",
	"github.com/google/uuid":                                            "identities",
	"github.com/jackc/pgx/v5":                                           "PostgreSQL: pipelines, the cancelling of statements and SQLSTATEs, on which lockorder is built",
	"github.com/jedib0t/go-pretty/v6":                                   "tables in a terminal, in the width that there is",
	"github.com/peterldowns/pgtestdb":                                   "a migrated database for each test, from a template",
	"github.com/pressly/goose/v3":                                       "migrations",
	"github.com/spf13/cobra":                                            "subcommands, their help and completion",
	"github.com/spf13/pflag":                                            "the flags of cobra, where a command needs their type",
	"github.com/stretchr/testify":                                       "assertions in tests",
	"github.com/stripe/stripe-go/v79":                                   "Stripe's types, client and signatures",
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp":     "spans and metrics of HTTP, of the ingress and of the calls to Stripe",
	"go.opentelemetry.io/otel":                                          "traces and metrics: the API",
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp": "exports metrics",
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp":   "exports traces",
	"go.opentelemetry.io/otel/metric":                                   "metrics: the API, a module of its own",
	"go.opentelemetry.io/otel/sdk":                                      "collects traces",
	"go.opentelemetry.io/otel/sdk/metric":                               "collects metrics, with exemplars",
	"go.opentelemetry.io/otel/trace":                                    "traces: the API, a module of its own",
	"go.opentelemetry.io/proto/otlp":                                    "what a collector receives, for tests of what is exported",
	"go.temporal.io/api":                                                "Temporal's errors, and what its client does not wrap: namespaces and search attributes",
	"go.temporal.io/sdk":                                                "workflows and activities",
	"go.temporal.io/sdk/contrib/opentelemetry":                          "carries a trace through Temporal, and gives its metrics",
	"go.uber.org/goleak":                                                "finds goroutines that a test left behind",
	"golang.org/x/sync":                                                 "groups of goroutines that end together",
	"golang.org/x/term":                                                 "the width of a terminal, and whether there is one",
	"golang.org/x/tools":                                                "reads Go code with its types, for lockordervet",
	"google.golang.org/protobuf":                                        "decodes what a collector receives, and Temporal's durations",
	"pgregory.net/rapid":                                                "property tests that shrink what they find",
}

// most is how many there may be before one should ask what could go.
const most = 34

func TestDirectDependencies(t *testing.T) {
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
		Replace []struct{ Old struct{ Path string } }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	required := map[string]bool{}
	for _, m := range mod.Require {
		if m.Indirect {
			continue
		}
		required[m.Path] = true
		if reason := direct[m.Path]; len(strings.TrimSpace(reason)) < 8 {
			t.Errorf("go.mod requires %s, and the list here does not say what for", m.Path)
		}
	}
	for path := range direct {
		if !required[path] {
			t.Errorf("%s stands in the list here and is not required (any more)", path)
		}
	}
	if len(required) > most {
		t.Errorf("%d modules are required directly, of at most %d", len(required), most)
	}
	for _, r := range mod.Replace {
		t.Errorf("go.mod replaces %s: `go install` of the command would not work", r.Old.Path)
	}
}
