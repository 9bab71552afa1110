package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryMutantStillFits: the text that each mutant replaces occurs exactly once, and the test that is to catch it
// exists. (`make mutants` checks that it does catch it.)
func TestEveryMutantStillFits(t *testing.T) {
	top, err := root()
	require.NoError(t, err)
	l := &lab{root: top}
	rules, seen := map[int]int{}, map[string]bool{}
	for _, m := range mutants {
		rules[m.rule]++
		require.False(t, seen[m.clause], "%q is in the table twice", m.clause)
		seen[m.clause] = true
		_, err := l.overlay(t.TempDir(), m.edits)
		require.NoError(t, err, "rule %d, %s", m.rule, m.clause)
		for name := range strings.SplitSeq(m.by.run, "|") {
			require.True(t, hasTest(t, filepath.Join(top, m.by.pkg), name), "rule %d, %s: %s has no %s", m.rule, m.clause, m.by.pkg, name)
		}
	}
	for rule := 1; rule <= 9; rule++ {
		require.NotZero(t, rules[rule], "no mutant for rule %d", rule)
	}
}

func hasTest(t *testing.T, dir, name string) bool {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	declared := regexp.MustCompile(`(?m)^func ` + name)
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		if declared.Match(b) {
			return true
		}
	}
	return false
}
