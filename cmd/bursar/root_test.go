package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/bursarhq/bursar/internal/pgtest"
)

func TestUsageErrorsExitWith2(t *testing.T) {
	t.Parallel()
	s := &shell{t: t, env: map[string]string{}}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"catlog"}, `there is no command "bursar catlog"; did you mean catalog?`},
		{[]string{"org", "make"}, `there is no command "bursar org make"`},
		{[]string{"entitlements"}, "ORG is missing"},
		{[]string{"entitlements", "a", "b"}, `"b" is one argument too many`},
		{[]string{"customer", "link", "cus_1"}, "ORG is missing"},
		{[]string{"customer", "link"}, "CUSTOMER and ORG are missing"},
		{[]string{"org", "list", "--wrong"}, "unknown flag: --wrong"},
		{[]string{"parked", "--json=maybe"}, "invalid argument"},
	} {
		err := s.fails(2, c.args...)
		require.Contains(t, err, c.want)
		require.Contains(t, err, "--help' to see how it is used")
		require.NotContains(t, err, "Usage:", "no usage is dumped")
	}
}

func TestWithoutADatabase(t *testing.T) {
	t.Parallel()
	s := &shell{t: t, env: map[string]string{}}
	require.Equal(t, "bursar: DATABASE_URL is not set; it names the PostgreSQL database, like postgres://user:password@host:5432/bursar\n", s.fails(1, "org", "list"))
	s.env["DATABASE_URL"] = "postgres://someone:hunter2@127.0.0.1:1/none"
	err := s.fails(1, "org", "list")
	require.Contains(t, err, "look at DATABASE_URL")
	require.NotContains(t, err, "hunter2")
	s.env["DATABASE_URL"] = pgtest.NewEmpty(t).URL()
	require.Contains(t, s.fails(1, "org", "list"), "run bursar migrate")
}

func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	s := &shell{t: t, env: map[string]string{}}
	require.Regexp(t, `^bursar \S+`, s.must("--version"))
	help := s.must("--help")
	require.Equal(t, help, s.must(), "alone it prints its help")
	require.Contains(t, help, "bursar entitlements acme")
	require.Contains(t, s.must("parked", "--help"), "bursar parked retry")
}

// Each command says what it is, and how it is used.
func TestEveryCommandHasHelp(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	root := newApp(strings.NewReader(""), &out, &out).newRootCommand()
	count := 0
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		count++
		require.NotEmpty(t, c.Short, c.CommandPath())
		if !c.HasSubCommands() {
			require.NotEmpty(t, c.Example, "%s has no example", c.CommandPath())
			require.NotNil(t, c.RunE, c.CommandPath())
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
	require.Greater(t, count, 10)
}
