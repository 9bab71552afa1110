//go:build race

package simulation

// The race detector makes a schedule some ten times as slow; `make verify` runs the full number without it.
func defaultSchedules() int { return 500 }
