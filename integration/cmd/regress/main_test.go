package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryRegressionCaseHasATest(t *testing.T) {
	cases, err := parse(list)
	require.NoError(t, err)
	names := map[string]bool{}
	for _, c := range cases {
		require.False(t, names[c.name], "two cases are named %s", c.name)
		names[c.name] = true
		require.Regexp(t, `^[a-z0-9-]+$`, c.name)
		files, err := filepath.Glob(filepath.Join("../../..", c.pkg, "*_test.go"))
		require.NoError(t, err)
		declared := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(c.test) + `\(`)
		require.True(t, slices.ContainsFunc(files, func(file string) bool {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			return declared.Match(content)
		}), "%s: %s has no %s", c.name, c.pkg, c.test)
	}
}

func TestParseNamesTheLine(t *testing.T) {
	_, err := parse("# a comment\n\nname ./pkg TestIt")
	require.ErrorContains(t, err, "name ./pkg TestIt")
	_, err = parse("# nothing else")
	require.Error(t, err)
}

func TestRunRefusesAnUnknownName(t *testing.T) {
	require.ErrorContains(t, run([]string{"no-such-case"}), "make regress")
}
