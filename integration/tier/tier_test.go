package tier

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTurn: each of the slowest tests runs in one turn of three, and always if no turn is set.
func TestTurn(t *testing.T) {
	t.Setenv(Variable, verify)
	for now, want := range map[string]string{"4": "-1-", "866": "--2", "": "012"} {
		t.Setenv(TurnVariable, now)
		ran := ""
		for turn := range 3 {
			t.Run(fmt.Sprintf("%q/%d", now, turn), func(t *testing.T) {
				defer func() {
					if t.Skipped() {
						ran += "-"
					} else {
						ran += fmt.Sprint(turn)
					}
				}()
				Turn(turn)(t)
			})
		}
		require.Equal(t, want, ran)
	}
}
