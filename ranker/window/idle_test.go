package window

import (
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/schema"
)

// TestIdleAdvanceGoesByStepsWhileThereIsSomething: the lists on a long way are not all made
// at once; where nothing is left, it is one step.
func TestIdleAdvanceGoesByStepsWhileThereIsSomething(t *testing.T) {
	const start, to = schema.Minute(30_000_000), schema.Minute(40_000_000)
	p := NewPartition(configOf(New(10, 0), New(60, 0)))
	for m := range schema.Minute(60) {
		like(p, uint64(m), start+m)
	}
	steps := 0
	for p.Versions = nil; p.AdvanceIdle(to, 60); p.Versions = nil {
		require.LessOrEqual(t, len(p.Versions), 2*2*(idleStep+1), "two windows, two boards")
		steps++
	}
	require.Equal(t, to, p.Clock())
	require.Equal(t, to, p.Idle())
	require.Equal(t, 7, steps, "six until the hour is over")
}
