package dev

import (
	"math"
	"math/rand/v2"
	"time"

	"kudos/schema"
)

// Shape describes the simulated likes. Shares are between 0 and 1.
type Shape struct {
	Posts int     // post n is the n-th most popular one
	Skew  float64 // exponent of the Zipf distribution of popularity, above 1
	// Users at the start, new users per second, and the maximum number of users.
	Users        int
	NewUsersRate float64
	MaxUsers     int
	// Reactions bounds all reactions, except to viral posts: each post has an audience in proportion to its popularity.
	Reactions int
	// Moods is the period in which the share of likes among a post's reactions rises and falls: audiences are bounded,
	// so new likes are possible only if others are withdrawn. 0: likes are never withdrawn.
	Moods        time.Duration
	Dislikes     float64 // share of first reactions
	ChangedMinds float64 // events about a recent reaction: mostly a withdrawal, sometimes the opposite reaction
	DoubleClicks float64 // events that are sent twice
	Late         float64 // events that happened up to MaxLate ago
	MaxLate      time.Duration
	// ViralPosts can go viral, each with an audience of ViralAudience users. ViralEvery is the mean time between two
	// viral posts; each draws ViralShare of all events for ViralFor.
	ViralPosts, ViralAudience int
	ViralEvery, ViralFor      time.Duration
	ViralShare                float64
}

// DefaultShape is bounded: the embedded database scans tables, and the state table has a row per reaction ever made.
func DefaultShape() Shape {
	return Shape{
		Posts: 2_000, Skew: 1.1,
		Users: 50_000, NewUsersRate: 5, MaxUsers: 51_000,
		Reactions: 60_000, Moods: 20 * time.Minute,
		Dislikes: 0.05, ChangedMinds: 0.10, DoubleClicks: 0.03,
		Late: 0.02, MaxLate: 10 * time.Minute,
		ViralPosts: 20, ViralAudience: 5_000,
		ViralEvery: 90 * time.Second, ViralFor: 20 * time.Second, ViralShare: 0.4,
	}
}

// regions and their users per 100.
var regions = [...]struct {
	code   string
	weight uint64
}{
	{"US", 22}, {"IN", 18}, {"BR", 10}, {"GB", 8}, {"DE", 8}, {"US-CA", 6}, {"JP", 6}, {"FR", 6},
	{"NG", 5}, {"ID", 5}, {"MX", 4}, {"ZZ", 2},
}

// Generator generates likes. The same shape, seed and clock values give the same events. Not safe for concurrent use.
type Generator struct {
	shape  Shape
	random *rand.Rand
	posts  *rand.Zipf
	weight float64 // sum over all posts; post n has n^-Skew
	begun  time.Time

	again  []schema.Event // to be repeated next; at most one
	recent [4096]schema.Event
	made   uint64 // first reactions so far; recent is their ring buffer

	viral      uint64          // post, 0: none
	full       map[uint64]bool // posts that nearly all of their viral audience like
	viralUntil time.Time
	viralNext  time.Time
}

// NewGenerator returns a generator whose clock starts at begun.
func NewGenerator(shape Shape, seed uint64, begun time.Time) *Generator {
	random := rand.New(rand.NewPCG(seed, 0))
	g := &Generator{shape: shape, random: random, begun: begun, full: map[uint64]bool{},
		posts: rand.NewZipf(random, shape.Skew, 1, uint64(shape.Posts-1))}
	for n := range shape.Posts {
		g.weight += math.Pow(float64(n+1), -shape.Skew)
	}
	g.viralNext = g.nextViral(begun)
	return g
}

// Next returns the event that arrives at now.
func (g *Generator) Next(now time.Time) schema.Event {
	if len(g.again) > 0 {
		e := g.again[0]
		g.again = g.again[:0]
		return e
	}
	var e schema.Event
	if g.made > 0 && g.chance(g.shape.ChangedMinds) {
		e = g.changedMind()
	} else {
		e = g.reaction(now)
	}
	e.TimeMs = now.UnixMilli()
	if g.chance(g.shape.Late) {
		e.TimeMs -= int64(g.random.Float64() * float64(g.shape.MaxLate.Milliseconds()))
	}
	if g.chance(g.shape.DoubleClicks) {
		g.again = append(g.again, e)
	}
	return e
}

// reaction is a user's first reaction to a post, or a repeated one: audiences are small.
func (g *Generator) reaction(now time.Time) schema.Event {
	post := g.post(now)
	e := schema.Event{PostID: post, UserID: g.fan(post, now), Action: schema.Like}
	e.Region = home(e.UserID)
	switch {
	case !g.liked(post, now):
		e.Action = schema.Unlike
	case g.chance(g.shape.Dislikes):
		e.Action = schema.Dislike
	}
	g.recent[g.made%uint64(len(g.recent))] = e
	g.made++
	return e
}

// Past returns the i-th of n likes of the day before now, by time. Their users are not used again, so the likes stay.
func (g *Generator) Past(i, n int, now time.Time) schema.Event {
	const day, wave = 24 * time.Hour, 0.1 // hours differ by a factor of up to four
	part := float64(i) / float64(n)
	at := now.Add(-day + time.Duration((part+wave*math.Sin(2*math.Pi*part))*float64(day)))
	user := uint64(g.shape.MaxUsers + 1 + i)
	e := schema.Event{PostID: 1 + g.posts.Uint64(), UserID: user, Region: home(user), Action: schema.Like,
		TimeMs: at.UnixMilli()}
	if g.chance(g.shape.Dislikes) {
		e.Action = schema.Dislike
	}
	return e
}

// fan returns a user of a post's audience. Users who have joined replace those who have not yet.
func (g *Generator) fan(post uint64, now time.Time) uint64 {
	size := max(1, int(float64(g.shape.Reactions)*math.Pow(float64(post), -g.shape.Skew)/g.weight))
	if post == g.viral && now.Before(g.viralUntil) {
		size = g.shape.ViralAudience
	}
	joined := uint64(g.shape.Users) + uint64(g.shape.NewUsersRate*now.Sub(g.begun).Seconds())
	member := spread(post<<32 + g.random.Uint64N(uint64(min(size, g.shape.MaxUsers))))
	if user := member % uint64(g.shape.MaxUsers); user < joined {
		return 1 + user
	}
	return 1 + member%uint64(g.shape.Users)
}

// liked reports whether the next reaction to a post is a like or dislike, and not a withdrawal. Posts come into fashion
// and go out of it. A post that goes viral repeatedly gets likes and withdrawals by turns.
func (g *Generator) liked(post uint64, now time.Time) bool {
	if g.shape.Moods == 0 {
		return true
	}
	if post == g.viral && now.Before(g.viralUntil) {
		return g.full[post]
	}
	turn := float64(now.Sub(g.begun))/float64(g.shape.Moods) + float64(spread(post)%1000)/1000
	return g.chance(0.55 + 0.4*math.Sin(2*math.Pi*turn))
}

// spread returns a pseudo-random number that depends on n only (the finalizer of SplitMix64).
func spread(n uint64) uint64 {
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

func (g *Generator) changedMind() schema.Event {
	e := g.recent[g.random.Uint64N(min(g.made, uint64(len(g.recent))))]
	switch {
	case g.chance(0.8):
		e.Action = schema.Unlike
	case e.Action == schema.Like:
		e.Action = schema.Dislike
	default:
		e.Action = schema.Like
	}
	return e
}

func (g *Generator) post(now time.Time) uint64 {
	if !now.Before(g.viralNext) {
		g.viral = g.unpopular()
		g.full[g.viral] = !g.full[g.viral]
		g.viralUntil = now.Add(g.shape.ViralFor)
		g.viralNext = g.nextViral(g.viralUntil)
	}
	if now.Before(g.viralUntil) && g.chance(g.shape.ViralShare) {
		return g.viral
	}
	return 1 + g.posts.Uint64()
}

// unpopular returns a post that gets few likes until it goes viral.
func (g *Generator) unpopular() uint64 {
	popular := g.shape.Posts / 10
	few := min(g.shape.ViralPosts, g.shape.Posts-popular)
	return 1 + uint64(popular+g.random.IntN(few)*((g.shape.Posts-popular)/few))
}

func (g *Generator) nextViral(after time.Time) time.Time {
	return after.Add(time.Duration(g.random.ExpFloat64() * float64(g.shape.ViralEvery)))
}

func (g *Generator) chance(share float64) bool { return share > 0 && g.random.Float64() < share }

// home returns a user's region, which never changes.
func home(user uint64) schema.Region {
	// Fibonacci hashing (Knuth, TAOCP 3, 6.4) spreads consecutive ids.
	at := (user * 0x9e3779b97f4a7c15 >> 32) % 100
	for _, r := range regions {
		if at < r.weight {
			region, _ := schema.ParseRegion(r.code)
			return region
		}
		at -= r.weight
	}
	return schema.UnknownRegion
}
