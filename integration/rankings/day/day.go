package day

import (
	"iter"
	"math/rand/v2"
	"sort"
	"time"

	"kudos/schema"
)

// Event is an event from a client, and its arrival time.
type Event struct {
	schema.Event
	ArrivalMs int64
}

// Options configure a day.
type Options struct {
	Seed uint64
	// Events is the total number. Most become an update; some change nothing, or cancel each other within a batch.
	Events int
	// Start of the 24 hours. It should not be midnight, so that the day contains one.
	Start time.Time
	// Posts (at least 10) and Users are maxima. Few users with many events mean that many likes are repeated.
	Posts, Users int
}

// DefaultOptions are a day with that many events.
func DefaultOptions(events int) Options {
	return Options{Seed: 1, Events: events, Start: time.Date(2026, 3, 9, 16, 30, 0, 0, time.UTC),
		Posts: max(200, min(events/100, 60_000)), Users: max(500, min(events/4, 2_000_000))}
}

// Regions are the regions of likes; homes are the regions of each ten users.
var (
	Regions = [5]schema.Region{{'U', 'S'}, {'B', 'R'}, {'I', 'N'}, {'D', 'E'}, {'J', 'P'}}
	homes   = [10]int{0, 0, 0, 0, 1, 1, 2, 2, 3, 4}
)

const (
	minuteMs     = 60_000
	minutesOfDay = 24 * 60
	// The quiet period, in minutes, is longer than a short window.
	quietFrom, quietTo = 9 * 60, 9*60 + 25
	// remembered is the number of likes kept for withdrawals and repetitions.
	remembered = 1 << 16
	togglers   = 8
)

// hourly is the relative rate in each hour of the day.
var hourly = [24]int{9, 10, 10, 9, 8, 6, 4, 3, 2, 1, 1, 1, 2, 3, 4, 5, 6, 6, 7, 7, 7, 7, 8, 8}

// Events are the events of a day in order of arrival: likes by popularity and region, bursts, withdrawals, repeated
// likes, dislikes, duplicates, events minutes or hours late, a few from the future, and a few users who toggle all day.
func Events(o Options) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		g := newGenerator(o)
		total, done, sent := 0, 0, 0
		for m := range minutesOfDay {
			total += weight(m)
		}
		for m := range minutesOfDay {
			done += weight(m)
			n := int(int64(o.Events)*int64(done)/int64(total)) - sent
			sent += n
			g.minute = m
			begin := o.Start.UnixMilli() + int64(m)*minuteMs
			for i := range n {
				if !yield(g.next(begin + int64(i)*minuteMs/int64(n))) {
					return
				}
			}
		}
	}
}

func weight(minute int) int {
	if minute >= quietFrom && minute < quietTo {
		return 0
	}
	return hourly[minute/60]
}

type generator struct {
	o      Options
	rng    *rand.Rand
	world  zipf // ranks of posts that are popular everywhere
	local  zipf // ranks of posts that are popular in a region
	bursts []burst
	minute int

	recent, liked, withdrawn pool
	toggles                  [togglers]schema.Event
}

func newGenerator(o Options) *generator {
	rng := rand.New(rand.NewPCG(o.Seed, 0x6b75646f73))
	g := &generator{o: o, rng: rng, world: newZipf(o.Posts / 2), local: newZipf(o.Posts / 2 / len(Regions)),
		bursts: newBursts(rng)}
	for i := range g.toggles {
		home := i % len(Regions)
		g.toggles[i] = schema.Event{PostID: worldPost(uint64(3 * i)), UserID: uint64(o.Users + 1 + i),
			Action: schema.Unlike, Region: Regions[home]}
	}
	return g
}

func (g *generator) next(arrivalMs int64) Event {
	e := Event{g.choose(arrivalMs), arrivalMs}
	g.recent.put(g.rng, e.Event)
	if e.Action == schema.Like {
		g.liked.put(g.rng, e.Event)
	}
	return e
}

func (g *generator) choose(arrivalMs int64) schema.Event {
	now := arrivalMs - g.rng.Int64N(15_000)
	again := func(from pool, a schema.Action) schema.Event {
		e, ok := from.take(g.rng)
		if !ok {
			return g.like(now)
		}
		e.Action, e.TimeMs = a, now
		return e
	}
	switch n := g.rng.IntN(1000); {
	case n < 8:
		e := &g.toggles[g.rng.IntN(togglers)]
		e.Action, e.TimeMs = schema.Like+schema.Unlike-e.Action, now
		return *e
	case n < 40: // a duplicate
		if e, ok := g.recent.take(g.rng); ok {
			return e
		}
	case n < 110:
		e := again(g.liked, schema.Unlike)
		g.withdrawn.put(g.rng, e)
		return e
	case n < 130:
		return again(g.withdrawn, schema.Like)
	case n < 140:
		return again(g.liked, schema.Dislike)
	case n < 160:
		e := g.like(now)
		e.Action = schema.Dislike
		return e
	case n < 180: // minutes late
		return g.like(now - 1*minuteMs - g.rng.Int64N(20*minuteMs))
	case n < 190: // hours late
		return g.like(now - g.rng.Int64N(30*60*minuteMs))
	case n < 192: // from a fast clock
		return g.like(now + g.rng.Int64N(5*minuteMs))
	}
	return g.like(now)
}

func (g *generator) like(timeMs int64) schema.Event {
	user := g.rng.Uint64N(uint64(g.o.Users))
	home := homes[user%uint64(len(homes))]
	e := schema.Event{UserID: user + 1, Action: schema.Like, TimeMs: timeMs, Region: Regions[home]}
	if g.rng.IntN(50) == 0 { // traveling
		e.Region = Regions[g.rng.IntN(len(Regions))]
	}
	switch viral := g.viral(home); {
	case viral != 0:
		e.PostID = viral
	case g.rng.IntN(2) == 0:
		e.PostID = worldPost(g.world.rank(g.rng))
	default:
		e.PostID = postID(2*(g.local.rank(g.rng)*uint64(len(Regions))+uint64(home)) + 1)
	}
	return e
}

type burst struct {
	post     uint64
	from, to int // minutes of the day
	// share, in thousandths, is the burst's share of likes in its home region; it is lower elsewhere.
	share, home int
}

const bursts = 48

func newBursts(rng *rand.Rand) []burst {
	list := make([]burst, bursts)
	for i := range list {
		from := rng.IntN(minutesOfDay)
		list[i] = burst{post: 1<<40 + uint64(rng.IntN(1<<20)), from: from, to: from + 3 + rng.IntN(50),
			share: 30 + rng.IntN(200), home: rng.IntN(len(Regions))}
	}
	return list
}

// viral returns a post that currently draws a like of a region, or 0.
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

// postID permutes the 32-bit numbers by an odd factor, so that ids do not follow popularity.
func postID(n uint64) uint64 { return uint64(uint32(n)*2_654_435_761) + 1 }

func worldPost(rank uint64) uint64 { return postID(2 * rank) }

// zipf draws rank k with a probability proportional to 1/(k+6), in integers, for the same results on every machine.
type zipf struct{ upTo []uint64 } // cumulative weights

func newZipf(n int) zipf {
	z := zipf{make([]uint64, n)}
	sum := uint64(0)
	for k := range z.upTo {
		sum += 1 << 40 / uint64(k+6)
		z.upTo[k] = sum
	}
	return z
}

func (z zipf) rank(rng *rand.Rand) uint64 {
	x := rng.Uint64N(z.upTo[len(z.upTo)-1])
	return uint64(sort.Search(len(z.upTo), func(k int) bool { return z.upTo[k] > x }))
}

type pool []schema.Event

func (p *pool) put(rng *rand.Rand, e schema.Event) {
	if len(*p) < remembered {
		*p = append(*p, e)
		return
	}
	(*p)[rng.IntN(remembered)] = e
}

func (p pool) take(rng *rand.Rand) (e schema.Event, ok bool) {
	if len(p) == 0 {
		return e, false
	}
	return p[rng.IntN(len(p))], true
}
