//go:build race

package simulation

import "kudos/integration/tier"

// The race detector makes schedules some ten times slower; `make verify` runs the full number without it.
func defaultSchedules() int { return tier.Limited(500, 200) }
