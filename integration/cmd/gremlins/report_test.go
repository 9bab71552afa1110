package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func found(statuses ...string) (all []mutation) {
	for i, s := range statuses {
		all = append(all, mutation{Type: "NEGATION", Status: s, Line: i + 1, Column: 1, Pkg: "fold", File: "fold.go",
			Text: "a | b"})
	}
	return all
}

func TestSampleIsTheSameForASeed(t *testing.T) {
	all := found("RUNNABLE", "NOT COVERED", "RUNNABLE", "RUNNABLE", "RUNNABLE", "RUNNABLE")
	require.Len(t, sample(all, 400, 1), 5, "only covered mutants")
	require.Len(t, sample(all, 2, 1), 2)
	require.Equal(t, sample(all, 3, 1), sample(all, 3, 1))
	require.NotEqual(t, sample(all, 5, 1), sample(all, 5, 2))
}

func TestReport(t *testing.T) {
	chosen := found("RUNNABLE", "RUNNABLE", "RUNNABLE", "RUNNABLE")
	for i := range chosen {
		chosen[i].Text = "x := 1"
	}
	const known = "# why\nfold/fold.go | NEGATION | x := 1 | it is only a hint\n"
	require.NoError(t, report(found("KILLED", "KILLED", "KILLED", "LIVED"), chosen, known, 75))
	require.ErrorContains(t, report(found("KILLED", "KILLED", "KILLED", "LIVED"), chosen, "", 75),
		"1 survived without an explanation in survivors.txt")
	require.ErrorContains(t, report(found("KILLED", "KILLED", "KILLED", "LIVED"), chosen, known, 76),
		"75.0 % were killed")
	require.NoError(t, report(found("KILLED", "TIMED OUT", "NOT VIABLE", "KILLED"), chosen, "", 100))
	require.ErrorContains(t, report(found("KILLED", "KILLED", "KILLED"), chosen, known, 75), "1 of 4 were not tested")
	require.NoError(t, report(found("KILLED", "KILLED", "KILLED", "KILLED", "LIVED"), chosen, "", 100),
		"other mutants of the line do not count")
	require.ErrorContains(t, report(nil, chosen, "fold/fold.go | NEGATION | x := 1 | ", 85), "survivors.txt")
}
