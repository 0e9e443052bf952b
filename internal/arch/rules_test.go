package arch

import "slices"

// domains run inside a transaction, each a language of its own.
var domains = []string{"entitlements", "billing", "desiredstate", "fedwiki", "domains"}

// standard are the packages of Go that the rules name.
var standard = []string{"net/http", "database/sql", "testing", "os/exec"}

func rules() []rule { return slices.Concat(flow(), leaves(), outside(), tests()) }

// flow is the one way of the data: ingress → workflow → activity → lockorder → domain → SQL.
func flow() []rule {
	list := []rule{
		{why: "the ingress passes ids on: it knows no database, no workflow's code and no domain, so that it stays up when they are down",
			from: []string{"ingress"}, to: []string{""}, except: []string{"ingress", "workflows/contract"}},
		{why: "the database is reached by activities only: a workflow's code must give the same answer when it is replayed",
			from: []string{"workflows"}, to: append([]string{"db", "lockorder", "github.com/jackc", "database/sql"}, domains...)},
		{why: "a workflow knows activities by their methods and is started by the ingress or the worker: it imports neither of these",
			from: []string{"workflows"}, to: []string{"ingress", "worker", "cmd"}},
		{why: "an activity is called by workflows and starts none: it knows them by their contract",
			from: []string{"activities"}, to: []string{"ingress", "worker", "cmd", "workflows", "go.temporal.io/sdk/client", "go.temporal.io/sdk/workflow"}, except: []string{"workflows/contract"}},
		{why: "an activity composes domain functions in a lockorder transaction: its SQL belongs into their query files",
			from: []string{"activities"}, to: []string{"github.com/jackc", "database/sql", "db"}},
		{why: "a domain package runs inside a transaction: it calls nothing outside and knows nothing above it; one that it opens has its name from the table of paths",
			from: domains, to: []string{"ingress", "workflows", "activities", "worker", "cmd", "internal", "go.temporal.io", "go.opentelemetry.io", "net/http"},
			except: []string{"internal/lockpath"}},
		{why: "the schema is below everything: it knows the lock package only, for the lock of migrations",
			from: []string{"db"}, to: []string{""}, except: []string{"db", "lockorder"}},
		{why: "the processes are put together in worker and cmd, and by `bursar dev`; nothing builds on them",
			but: []string{"worker", "cmd", "internal/dev"}, to: []string{"worker"}},
		{why: "the ingress is a process, not a library",
			but: []string{"ingress", "cmd", "internal/dev"}, to: []string{"ingress"}},
		{why: "a command is not a library", but: []string{"cmd"}, to: []string{"cmd"}},
	}
	for _, d := range domains {
		others := slices.DeleteFunc(slices.Clone(domains), func(o string) bool { return o == d })
		list = append(list, rule{why: "domain packages never import each other: an activity composes two of them in one transaction",
			from: []string{d}, to: others})
	}
	return list
}

// leaves are the packages that import little of the module, or nothing.
func leaves() []rule {
	return []rule{
		{why: "the lock package is usable alone, by other projects too",
			from: []string{"lockorder"}, to: []string{""}, except: []string{"lockorder"}},
		{why: "the analyser reads code and runs none of it: other projects check theirs with it",
			from: []string{"lockorder/lockordervet"}, to: []string{""}, except: []string{"lockorder/lockordervet"}},
		{why: "the table of paths is a leaf, so that a transaction anywhere can name its path",
			from: []string{"internal/lockpath"}, to: []string{""}, except: []string{"internal/lockpath", "lockorder"}},
		{why: "the view of locks works in any database with the schema, whatever the domains do: it reads by SQL and names by the two tables",
			from: []string{"internal/lockview"}, to: []string{""}, except: []string{"internal/lockview", "internal/lockpath", "lockorder"}},
		{why: "the order graph knows names only: it joins what processes of other tests have written",
			from: []string{"internal/lockgraph"}, to: []string{""}, except: []string{"internal/lockgraph", "lockorder"}},
		{why: "the contract is a leaf, so that everything can name a workflow without running it",
			from: []string{"workflows/contract"}, to: []string{""}, except: []string{"workflows/contract"}},
		{why: "the client of Stripe knows no transaction and no domain: a call outside never happens under a lock",
			from: []string{"internal/stripeapi"}, to: []string{""}, except: []string{"internal/stripeapi"}},
		{why: "the stand-in for Stripe is as blind to Bursar as Stripe is, or tests against it would prove little",
			from: []string{"internal/stripeapi/standin"}, to: []string{""}, except: []string{"internal/stripeapi/standin"}},
		{why: "telemetry is used by every process and knows none; it measures lockorder and nothing else of the module",
			from: []string{"internal/telemetry"}, to: []string{""}, except: []string{"internal/telemetry", "lockorder"}},
		{why: "what starts real servers knows nothing of what runs against them",
			from: []string{"internal/devstack"}, to: []string{""}, except: []string{"internal/devstack"}},
	}
}

// outside says which packages may use a thing from outside the module.
func outside() []rule {
	sql := append([]string{"lockorder", "db", "internal/pgtest", "internal/locktest", "internal/lockview", "internal/devstack", "internal/telemetry"}, domains...)
	return []rule{
		{why: "SQL is run through a lockorder transaction or reader, by domain packages and the lock view; pgx is theirs",
			but: sql, to: []string{"github.com/jackc"}},
		{why: "only lockorder opens transactions, so only it has a pool; telemetry sets its tracer",
			but: []string{"lockorder", "internal/pgtest", "internal/locktest", "internal/telemetry"}, to: []string{"github.com/jackc/pgx/v5/pgxpool"}},
		{why: "database/sql would open transactions that lockorder does not see; migrations need it, in the package that runs them",
			but: []string{"db", "internal/pgtest"}, to: []string{"database/sql", "github.com/jackc/pgx/v5/stdlib"}},
		{why: "Stripe is called through internal/stripeapi, which bounds, retries and traces each call",
			but: []string{"internal/stripeapi"}, to: []string{"github.com/stripe/stripe-go/v79/*"}, except: []string{"github.com/stripe/stripe-go/v79/webhook"}},
		{why: "Stripe's types end in billing, which mirrors them: the rest has types of its own",
			but: []string{"internal/stripeapi", "billing", "activities", "internal/dev"}, to: []string{"github.com/stripe/stripe-go/v79"}, except: []string{"github.com/stripe/stripe-go/v79/webhook"}},
		{why: "signatures of webhooks are checked at the door",
			but: []string{"ingress", "internal/stripeapi/standin"}, to: []string{"github.com/stripe/stripe-go/v79/webhook"}},
		{why: "a Temporal client is made by the processes and handed on; activities and domains reach no Temporal server",
			but: []string{"worker", "cmd", "workflows", "internal/dev", "internal/devstack", "internal/telemetry"}, to: []string{"go.temporal.io/sdk/client"}},
		{why: "workflow code lives in workflows, where its determinism is checked and its histories are replayed",
			but: []string{"workflows"}, to: []string{"go.temporal.io/sdk/workflow"}},
		{why: "HTTP is spoken by the ingress, by clients of outside services and by the tools around; not inside a transaction",
			but: []string{"ingress", "internal/stripeapi", "internal/telemetry/otlptest", "internal/dev", "internal/devstack", "internal/locktest"}, to: []string{"net/http"}},
		{why: "telemetry is set up in one place; the rest uses OpenTelemetry's API",
			but: []string{"internal/telemetry"}, to: []string{"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "go.temporal.io/sdk/contrib/opentelemetry", "github.com/exaring/otelpgx"}},
		{why: "real parts are started by devstack, which stops them too",
			but: []string{"internal/devstack"}, to: []string{"github.com/fergusstrange/embedded-postgres", "go.temporal.io/sdk/testsuite"}},
		{why: "programs are run for development and tests only: a process of Bursar starts none",
			but: []string{"internal/devstack", "internal/locktest"}, to: []string{"os/exec"}},
		{why: "migrations are run by db, under the lock of migrations",
			but: []string{"db"}, to: []string{"github.com/pressly/goose/v3"}},
		{why: "what reads Go code is for the check of it, and stays out of the program",
			but: []string{"lockorder/lockordervet"}, to: []string{"golang.org/x/tools"}},
		{why: "commands are for cmd: a library takes its settings as arguments",
			but: []string{"cmd"}, to: []string{"github.com/spf13/cobra", "github.com/jedib0t/go-pretty/v6"}},
		{why: "the environment is read by the processes",
			but: []string{"worker"}, to: []string{"github.com/caarlos0/env/v11"}},
	}
}

// tests keeps what is for tests and development out of the rest.
func tests() []rule {
	return []rule{
		{why: "the stand-in for Stripe is for development and tests",
			but: []string{"internal/stripeapi/standin", "internal/dev", "cmd/bursar"}, to: []string{"internal/stripeapi/standin"}},
		{why: "`bursar dev` is the only command that starts servers",
			but: []string{"internal/devstack", "internal/dev", "internal/pgtest", "cmd/bursar"}, to: []string{"internal/devstack"}},
		{why: "what tests are built with stays out of the program",
			but: []string{"internal/pgtest", "internal/locktest", "internal/telemetry/otlptest"},
			to:  []string{"testing", "internal/pgtest", "internal/locktest", "internal/telemetry/otlptest"}},
		{why: "what tests are built with stays out of the program, and out of its binary",
			but: []string{"internal/pgtest"},
			to:  []string{"github.com/peterldowns/pgtestdb", "github.com/stretchr/testify", "pgregory.net/rapid", "go.uber.org/goleak"}},
		{why: "received telemetry is read in tests", but: []string{"internal/telemetry/otlptest"},
			to: []string{"go.opentelemetry.io/proto/otlp", "google.golang.org/protobuf"}},
	}
}
