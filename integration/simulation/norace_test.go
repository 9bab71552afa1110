//go:build !race

package simulation

import "kudos/integration/tier"

func defaultSchedules() int { return tier.Size(2_000, tier.Limited(20_000, 6_000)) }
