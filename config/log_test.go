package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLogIsForWhoeverReadsIt: a person on a terminal, a program elsewhere, unless it is said.
func TestLogIsForWhoeverReadsIt(t *testing.T) {
	for _, c := range []struct {
		format   string
		terminal bool
		json     bool
	}{{"auto", true, false}, {"auto", false, true}, {"text", false, false}, {"json", true, true}} {
		var b strings.Builder
		log := Log{Level: "info", Format: c.format}
		require.NoError(t, log.Validate())
		log.New(&b, c.terminal).Info("hello", "post", 1)
		require.Equal(t, c.json, strings.HasPrefix(b.String(), "{"), b.String())
		require.Contains(t, b.String(), "hello")
	}
	require.ErrorContains(t, Log{Level: "info", Format: "xml"}.Validate(), `"xml" is none of auto, text, json`)
}
