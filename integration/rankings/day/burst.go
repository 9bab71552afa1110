package day

import "math/rand/v2"

// burst is a post that goes viral.
type burst struct {
	post     uint64
	from, to int // minutes of the day
	// share of the likes, of a thousand, that it has in its home region; elsewhere it has less.
	share, home int
}

const bursts = 48

func newBursts(rng *rand.Rand) []burst {
	list := make([]burst, bursts)
	for i := range list {
		from := rng.IntN(minutesOfDay)
		list[i] = burst{
			post: 1<<40 + uint64(rng.IntN(1<<20)), from: from, to: from + 3 + rng.IntN(50),
			share: 30 + rng.IntN(200), home: rng.IntN(len(Regions)),
		}
	}
	return list
}

// viral is a post that takes a like of a region now, or 0.
func (g *generator) viral(home int) uint64 {
	for i := range g.bursts {
		b := &g.bursts[i]
		if g.minute < b.from || g.minute >= b.to {
			continue
		}
		share := b.share
		if b.home != home {
			share /= 8
		}
		if g.rng.IntN(1000) < share {
			return b.post
		}
	}
	return 0
}
