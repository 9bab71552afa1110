package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"kudos/integration/chaos"
)

// TestWrite: the table replaces the last one, and nothing else in the file changes.
func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reliability.md")
	s := settings{table: path, report: filepath.Join(t.TempDir(), "reliability.json")}
	read := func(path string) string {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(text)
	}
	require.NoError(t, s.write(&chaos.Report{Faults: 7}))
	require.Contains(t, read(path), tableBegin+"\n\n|fault|")
	require.Contains(t, read(s.report), `"faults": 7`)

	require.NoError(t, os.WriteFile(path, []byte("# Reliability\n\n"+tableBegin+"\nold\n"+tableEnd+"\n\nmore\n"),
		0o644))
	for range 2 {
		require.NoError(t, s.write(&chaos.Report{Faults: 8}))
		require.Regexp(t, `^# Reliability\n\n`+tableBegin+`\n\n\|fault\|[^Z]*\n\n`+tableEnd+`\n\nmore\n$`, read(path))
		require.NotContains(t, read(path), "\nold\n")
	}
	require.NoError(t, os.WriteFile(path, []byte("# Reliability\n"), 0o644))
	require.NoError(t, s.write(&chaos.Report{}))
	require.Regexp(t, `^# Reliability\n\n`+tableBegin+"\n", read(path))
	require.NoError(t, os.WriteFile(path, []byte(tableBegin+"\nno end"), 0o644))
	require.ErrorContains(t, s.write(&chaos.Report{}), "not "+tableEnd)
}
