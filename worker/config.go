package worker

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/bursarhq/bursar/internal/stripeapi"
	"github.com/bursarhq/bursar/lockorder"
)

// Secret is a text that is never printed: fmt, logs and JSON show only whether it is set.
type Secret string

// Reveal returns the text itself.
func (s Secret) Reveal() string { return string(s) }

// String says whether the secret is set.
func (s Secret) String() string {
	if s == "" {
		return "(not set)"
	}
	return "(set)"
}

// GoString is String, for %#v.
func (s Secret) GoString() string { return s.String() }

// LogValue is String, for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is String, for JSON and the like.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Config is what the worker reads from the environment. LoadConfig fills it and checks it.
type Config struct {
	// DatabaseURL is PostgreSQL's address; it may hold a password.
	DatabaseURL Secret `env:"DATABASE_URL"`
	// DBMaxConns bounds the pool of this process.
	DBMaxConns int32 `env:"BURSAR_DB_MAX_CONNS" envDefault:"10"`
	// DBReserve is how many of those the transactions of the IO queue may use at once; 0 means half of them.
	DBReserve int32 `env:"BURSAR_DB_RESERVE" envDefault:"0"`
	// DBPooler is what stands between this process and PostgreSQL: "none" or "pgbouncer" (in transaction mode).
	DBPooler string `env:"BURSAR_DB_POOLER" envDefault:"none"`
	// IOSlots is how many activities of the IO queue run at once.
	IOSlots int `env:"BURSAR_IO_SLOTS" envDefault:"200"`

	// StripeKey is the secret or restricted key that subscriptions are read with.
	StripeKey Secret `env:"STRIPE_API_KEY"`
	// StripeURL is another address of Stripe's API; empty means Stripe's own.
	StripeURL string `env:"STRIPE_API_URL"`

	// Temporal says how to reach Temporal.
	Temporal TemporalConfig

	// ParkedRetryInterval is how often parked work is looked through for what is due.
	ParkedRetryInterval time.Duration `env:"BURSAR_PARKED_RETRY_INTERVAL" envDefault:"30s"`
	// ShutdownTimeout is how long running activities may take to finish once the process is asked to stop.
	ShutdownTimeout time.Duration `env:"BURSAR_SHUTDOWN_TIMEOUT" envDefault:"20s"`
	// LogLevel is the lowest level that is logged: debug, info, warn or error.
	LogLevel slog.Level `env:"BURSAR_LOG_LEVEL" envDefault:"info"`
}

// expected says what each variable that is not text must be, for the error when it is not.
var expected = map[string]string{
	"BURSAR_DB_MAX_CONNS":          "a whole number such as 10",
	"BURSAR_DB_RESERVE":            "a whole number such as 5, or 0 for half of the pool",
	"BURSAR_IO_SLOTS":              "a whole number such as 200",
	"BURSAR_PARKED_RETRY_INTERVAL": "a duration such as 30s",
	"BURSAR_SHUTDOWN_TIMEOUT":      "a duration such as 20s",
	"BURSAR_LOG_LEVEL":             "one of debug, info, warn, error",
	"TEMPORAL_TLS":                 "true or false",
}

// ConfigError lists everything that is wrong with a configuration, each with its variable and what to do.
type ConfigError struct{ Problems []string }

func (e *ConfigError) Error() string {
	if len(e.Problems) == 1 {
		return "configuration: " + e.Problems[0]
	}
	return fmt.Sprintf("configuration: %d problems\n  - %s", len(e.Problems), strings.Join(e.Problems, "\n  - "))
}

// LoadConfig reads the configuration through getenv; nil is os.Getenv. All problems come back at once in a *ConfigError; no
// secret is in its text.
func LoadConfig(getenv func(string) string) (Config, error) {
	var c Config
	problems := ParseEnv(&c, getenv, expected)
	problems = AddProblems(problems, c.problems()...)
	if len(problems) > 0 {
		return c, &ConfigError{Problems: problems}
	}
	return c, nil
}

// AddProblems appends problems with variables that have none yet: a value that cannot be read is not also too small.
func AddProblems(problems []string, more ...string) []string {
	named := map[string]bool{}
	for _, p := range problems {
		named[variableIn(p)] = true
	}
	for _, p := range more {
		if !named[variableIn(p)] {
			problems = append(problems, p)
		}
	}
	return problems
}

// variableIn is the variable that a problem begins with.
func variableIn(problem string) string {
	name, _, _ := strings.Cut(problem, " ")
	return name
}

// ParseEnv fills target, a pointer to a struct with env tags, through getenv; nil is os.Getenv. A variable that is empty counts
// as not set. It returns a problem for each value that cannot be read; hints say what a variable must be.
func ParseEnv(target any, getenv func(string) string, hints map[string]string) []string {
	if getenv == nil {
		getenv = os.Getenv
	}
	fields, err := env.GetFieldParams(target)
	if err != nil {
		return []string{err.Error()}
	}
	environ := map[string]string{}
	for _, f := range fields {
		if value := getenv(f.Key); value != "" {
			environ[f.Key] = value
		}
	}
	err = env.ParseWithOptions(target, env.Options{Environment: environ})
	if err == nil {
		return nil
	}
	var all env.AggregateError
	if !errors.As(err, &all) {
		return []string{err.Error()}
	}
	var problems []string
	for _, one := range all.Errors {
		var parse env.ParseError
		if errors.As(one, &parse) {
			// The parser's own text repeats the value, which may be a secret that was set in the wrong variable.
			name := variableOf(reflect.TypeOf(target).Elem(), parse.Name)
			problems = append(problems, fmt.Sprintf("%s cannot be read: set it to %s", name, cmp.Or(hints[name], "a "+parse.Type.String())))
			continue
		}
		problems = append(problems, one.Error())
	}
	return problems
}

// variableOf finds the variable that a field is read from.
func variableOf(t reflect.Type, field string) string {
	for i := range t.NumField() {
		f := t.Field(i)
		if tag := f.Tag.Get("env"); f.Name == field && tag != "" {
			return strings.Split(tag, ",")[0]
		}
		if f.Type.Kind() == reflect.Struct && f.Tag.Get("env") == "" {
			if name := variableOf(f.Type, field); name != "" {
				return name
			}
		}
	}
	return ""
}

// problems returns what is wrong with values that could be read.
func (c Config) problems() []string {
	var p []string
	add := func(bad bool, format string, args ...any) {
		if bad {
			p = append(p, fmt.Sprintf(format, args...))
		}
	}
	add(c.DatabaseURL == "", "DATABASE_URL is not set: set it to PostgreSQL's address, such as postgres://user:password@host:5432/bursar")
	if c.DatabaseURL != "" {
		err := lockorder.CheckURL(c.DatabaseURL.Reveal())
		add(err != nil, "DATABASE_URL cannot be read: set it to a URL such as postgres://user:password@host:5432/bursar; special characters in the password are written as %%XX")
	}
	add(c.DBMaxConns < 2, "BURSAR_DB_MAX_CONNS is %d: set it to 2 or more, one for each of the two queues", c.DBMaxConns)
	add(c.DBReserve < 0 || c.DBMaxConns >= 2 && c.DBReserve >= c.DBMaxConns,
		"BURSAR_DB_RESERVE is %d: set it to less than BURSAR_DB_MAX_CONNS (%d), or to 0 for half of it", c.DBReserve, c.DBMaxConns)
	if _, err := Pooled(c.DBPooler); err != nil {
		add(true, "%v", err)
	}
	add(c.IOSlots < 1, "BURSAR_IO_SLOTS is %d: set it to 1 or more", c.IOSlots)
	add(c.ParkedRetryInterval < time.Second, "BURSAR_PARKED_RETRY_INTERVAL is %s: set it to 1s or more", c.ParkedRetryInterval)
	add(c.ShutdownTimeout < time.Second, "BURSAR_SHUTDOWN_TIMEOUT is %s: set it to 1s or more", c.ShutdownTimeout)
	if c.StripeKey == "" {
		add(true, "STRIPE_API_KEY is not set: set it to a secret or restricted key of the Stripe account (sk_… or rk_…)")
	} else if err := (stripeapi.Config{Key: c.StripeKey.Reveal()}).Validate(); err != nil {
		add(true, "STRIPE_API_KEY is wrong: set it to another key: %v", err)
	} else if err := c.stripe().Validate(); err != nil {
		add(true, "STRIPE_API_URL is wrong: set it to another address, or not at all for Stripe's own: %v", err)
	}
	return append(p, c.Temporal.Problems()...)
}

// Pooled reads the value of BURSAR_DB_POOLER: whether DATABASE_URL leads to a pooler of transactions. Empty means none.
func Pooled(value string) (bool, error) {
	switch value {
	case "", "none":
		return false, nil
	case "pgbouncer":
		return true, nil
	}
	return false, errors.New("BURSAR_DB_POOLER is wrong: set it to pgbouncer where DATABASE_URL goes through PgBouncer in transaction mode, or to none")
}

// pooled is Pooled of a configuration that was checked.
func (c Config) pooled() bool {
	pooled, err := Pooled(c.DBPooler)
	return err == nil && pooled
}

func (c Config) stripe() stripeapi.Config {
	return stripeapi.Config{Key: c.StripeKey.Reveal(), BaseURL: c.StripeURL}
}

// reserve is how many connections the transactions of the IO queue may use at once; the rest are for the DB queue.
func (c Config) reserve() int {
	if c.DBReserve > 0 {
		return int(c.DBReserve)
	}
	return max(int(c.DBMaxConns)/2, 1)
}
