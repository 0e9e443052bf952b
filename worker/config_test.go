package worker

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	password = "hunter2hunter2"
	apiKey   = "sk_test_51SecretSecretSecret"
)

func environment(changes map[string]string) func(string) string {
	all := map[string]string{
		"DATABASE_URL":   "postgres://bursar:" + password + "@db.example:5432/bursar",
		"STRIPE_API_KEY": apiKey,
	}
	for k, v := range changes {
		all[k] = v
	}
	return func(name string) string { return all[name] }
}

func TestDefaults(t *testing.T) {
	c, err := LoadConfig(environment(nil))
	require.NoError(t, err)
	require.Equal(t, "localhost:7233", c.Temporal.Address)
	require.Equal(t, "default", c.Temporal.Namespace)
	require.EqualValues(t, 10, c.DBMaxConns)
	require.Equal(t, 5, c.reserve())
	require.False(t, c.pooled())
	require.Equal(t, 20*time.Second, c.ShutdownTimeout)
	require.Equal(t, 30*time.Second, c.ParkedRetryInterval)
	require.Equal(t, slog.LevelInfo, c.LogLevel)
	require.Equal(t, "postgres://bursar:"+password+"@db.example:5432/bursar", c.DatabaseURL.Reveal())
}

func TestValuesAreRead(t *testing.T) {
	c, err := LoadConfig(environment(map[string]string{
		"TEMPORAL_ADDRESS": "temporal:1", "TEMPORAL_NAMESPACE": "members", "TEMPORAL_API_KEY": "k", "TEMPORAL_TLS": "true",
		"BURSAR_DB_MAX_CONNS": "20", "BURSAR_DB_RESERVE": "4", "BURSAR_DB_POOLER": "pgbouncer", "BURSAR_IO_SLOTS": "9", "BURSAR_LOG_LEVEL": "debug",
		"BURSAR_SHUTDOWN_TIMEOUT": "5s", "BURSAR_PARKED_RETRY_INTERVAL": "1m", "STRIPE_API_URL": "http://127.0.0.1:1",
	}))
	require.NoError(t, err)
	require.Equal(t, TemporalConfig{Address: "temporal:1", Namespace: "members", APIKey: "k", TLS: true}, c.Temporal)
	require.Equal(t, 4, c.reserve())
	require.True(t, c.pooled())
	require.Equal(t, slog.LevelDebug, c.LogLevel)
	require.Equal(t, 16, workerOptions(c, "db").MaxConcurrentActivityExecutionSize)
	require.Equal(t, 9, workerOptions(c, "io").MaxConcurrentActivityExecutionSize)
	require.Equal(t, 5*time.Second, workerOptions(c, "io").WorkerStopTimeout)
	require.True(t, workerOptions(c, "io").DisableWorkflowWorker)
}

func TestEveryProblemIsNamedAtOnce(t *testing.T) {
	_, err := LoadConfig(environment(map[string]string{
		"DATABASE_URL": "", "STRIPE_API_KEY": "", "STRIPE_API_URL": "", "TEMPORAL_ADDRESS": "nowhere", "TEMPORAL_NAMESPACE": "a b", "TEMPORAL_TLS": "perhaps",
		"BURSAR_DB_MAX_CONNS": "ten", "BURSAR_DB_RESERVE": "-1", "BURSAR_IO_SLOTS": "0", "BURSAR_LOG_LEVEL": "loud",
		"BURSAR_SHUTDOWN_TIMEOUT": "soon", "BURSAR_PARKED_RETRY_INTERVAL": "1ms", "BURSAR_DB_POOLER": "pgpool",
	}))
	var problems *ConfigError
	require.ErrorAs(t, err, &problems)
	for _, name := range []string{
		"DATABASE_URL", "STRIPE_API_KEY", "TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "TEMPORAL_TLS", "BURSAR_DB_MAX_CONNS", "BURSAR_DB_RESERVE",
		"BURSAR_IO_SLOTS", "BURSAR_LOG_LEVEL", "BURSAR_SHUTDOWN_TIMEOUT", "BURSAR_PARKED_RETRY_INTERVAL", "BURSAR_DB_POOLER",
	} {
		count := 0
		for _, p := range problems.Problems {
			if strings.HasPrefix(p, name+" ") {
				count++
				require.Contains(t, p, "set it to", "it says what to do")
			}
		}
		require.Equal(t, 1, count, "%s is named once in:\n%s", name, err)
	}
}

func TestNoSecretIsPrinted(t *testing.T) {
	c, err := LoadConfig(environment(map[string]string{"TEMPORAL_API_KEY": "tmprl-key-secret"}))
	require.NoError(t, err)
	asJSON, err := json.Marshal(c)
	require.NoError(t, err)
	var logged strings.Builder
	slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "config", c, "key", c.StripeKey)
	texts := []string{fmt.Sprintf("%v %+v %#v %s", c, c, c, c.StripeKey), string(asJSON), logged.String()}

	for _, wrong := range []map[string]string{
		{"DATABASE_URL": "postgres://bursar:" + password + "@db.example:port/bursar"},
		{"STRIPE_API_KEY": "whsec_" + apiKey},
		{"STRIPE_API_KEY": apiKey + "\n"},
		{"BURSAR_DB_MAX_CONNS": apiKey},
		{"BURSAR_DB_POOLER": apiKey},
		{"BURSAR_SHUTDOWN_TIMEOUT": apiKey, "BURSAR_LOG_LEVEL": password},
	} {
		_, err := LoadConfig(environment(wrong))
		require.Error(t, err)
		texts = append(texts, err.Error())
	}
	for _, text := range texts {
		for _, secret := range []string{password, apiKey, "tmprl-key-secret"} {
			require.NotContains(t, text, secret)
		}
	}
}
