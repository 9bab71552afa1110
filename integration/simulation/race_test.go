//go:build race

package simulation

// The race detector makes a schedule some ten times as slow; `make test` runs the full
// number without it.
const defaultSchedules = 500
