//go:build !race

package simulation

const defaultSchedules = 20_000
