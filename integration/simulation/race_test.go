//go:build race

package simulation

// The race detector makes schedules some ten times slower; `make verify` runs the full number without it.
func defaultSchedules() int { return 200 }
