//go:build !race

package simulation

import (
	"os"

	"kudos/integration/tier"
)

// defaultSchedules are fewer in CI, whose machines need up to ten minutes for 20,000.
func defaultSchedules() int {
	if os.Getenv("CI") != "" {
		return tier.Size(2_000, 6_000)
	}
	return tier.Size(2_000, 20_000)
}
