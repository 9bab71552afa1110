package dev

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"kudos/schema"
)

// Shape says what the simulated likes look like. Shares are between 0 and 1.
type Shape struct {
	// Posts that there are. The post with id n is the n-th most popular one.
	Posts int `mapstructure:"posts"`
	// Skew is the exponent of the Zipf distribution of popularity, above 1.
	Skew float64 `mapstructure:"skew"`
	// Users at the start, and how many join each second.
	Users        int     `mapstructure:"users"`
	NewUsersRate float64 `mapstructure:"new_users_rate"`
	// Dislikes among first reactions.
	Dislikes float64 `mapstructure:"dislikes"`
	// ChangedMinds are events about a reaction of a short while ago: mostly it is
	// withdrawn, sometimes turned into its opposite.
	ChangedMinds float64 `mapstructure:"changed_minds"`
	// DoubleClicks are events that come twice.
	DoubleClicks float64 `mapstructure:"double_clicks"`
	// Late events happened up to MaxLate ago.
	Late    float64       `mapstructure:"late"`
	MaxLate time.Duration `mapstructure:"max_late"`
	// ViralEvery is the mean time between two posts that go viral; one then draws
	// ViralShare of all events for ViralFor.
	ViralEvery time.Duration `mapstructure:"viral_every"`
	ViralFor   time.Duration `mapstructure:"viral_for"`
	ViralShare float64       `mapstructure:"viral_share"`
}

// DefaultShape is a small network on a busy day. The embedded database scans its
// tables, and memory grows with posts × users: so neither is large.
func DefaultShape() Shape {
	return Shape{
		Posts: 2_000, Skew: 1.1,
		Users: 50_000, NewUsersRate: 5,
		Dislikes: 0.05, ChangedMinds: 0.10, DoubleClicks: 0.03,
		Late: 0.02, MaxLate: 10 * time.Minute,
		ViralEvery: 90 * time.Second, ViralFor: 20 * time.Second, ViralShare: 0.4,
	}
}

// Validate says what is wrong with the shape, all of it.
func (s Shape) Validate() error {
	var errs []error
	if s.Posts < 1 || s.Users < 1 || s.NewUsersRate < 0 {
		errs = append(errs, errors.New("posts and users must be at least 1, and new_users_rate not below 0"))
	}
	if s.Skew <= 1 {
		errs = append(errs, fmt.Errorf("skew is %g; it must be above 1", s.Skew))
	}
	for name, share := range map[string]float64{
		"dislikes": s.Dislikes, "changed_minds": s.ChangedMinds, "double_clicks": s.DoubleClicks, "late": s.Late, "viral_share": s.ViralShare,
	} {
		if share < 0 || share > 1 {
			errs = append(errs, fmt.Errorf("%s is %g; it must be between 0 and 1", name, share))
		}
	}
	if s.MaxLate < 0 || s.ViralEvery <= 0 || s.ViralFor < 0 {
		errs = append(errs, errors.New("viral_every must be above 0; max_late and viral_for not below"))
	}
	return errors.Join(errs...)
}

// regions and how many of 100 users live there.
var regions = [...]struct {
	code   string
	weight uint64
}{
	{"US", 22}, {"IN", 18}, {"BR", 10}, {"GB", 8}, {"DE", 8}, {"US-CA", 6}, {"JP", 6}, {"FR", 6},
	{"NG", 5}, {"ID", 5}, {"MX", 4}, {"ZZ", 2},
}

// Generator makes likes. It is pure: the same shape, seed and clock values give the
// same events. Not for use by several goroutines.
type Generator struct {
	shape  Shape
	random *rand.Rand
	posts  *rand.Zipf
	begun  time.Time

	again  []schema.Event // to be repeated next; one at most
	recent [4096]schema.Event
	made   uint64 // first reactions so far; they fill recent in turn

	viral      uint64 // post, 0 for none
	viralUntil time.Time
	viralNext  time.Time
}

// NewGenerator makes a generator whose clock starts at begun.
func NewGenerator(shape Shape, seed uint64, begun time.Time) *Generator {
	random := rand.New(rand.NewPCG(seed, 0))
	g := &Generator{
		shape:  shape,
		random: random,
		posts:  rand.NewZipf(random, shape.Skew, 1, uint64(shape.Posts-1)),
		begun:  begun,
	}
	g.viralNext = g.nextViral(begun)
	return g
}

// Next is the event that arrives at now.
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

// reaction is somebody's first reaction to a post (or a repeated one: users are few).
func (g *Generator) reaction(now time.Time) schema.Event {
	users := uint64(g.shape.Users) + uint64(g.shape.NewUsersRate*now.Sub(g.begun).Seconds())
	e := schema.Event{PostID: g.post(now), UserID: 1 + g.random.Uint64N(users), Action: schema.Like}
	e.Region = home(e.UserID)
	if g.chance(g.shape.Dislikes) {
		e.Action = schema.Dislike
	}
	g.recent[g.made%uint64(len(g.recent))] = e
	g.made++
	return e
}

// changedMind withdraws a recent reaction, or turns it around.
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
		g.viralUntil = now.Add(g.shape.ViralFor)
		g.viralNext = g.nextViral(g.viralUntil)
	}
	if now.Before(g.viralUntil) && g.chance(g.shape.ViralShare) {
		return g.viral
	}
	return 1 + g.posts.Uint64()
}

// unpopular is a post that few have heard of until it goes viral.
func (g *Generator) unpopular() uint64 {
	popular := g.shape.Posts / 10
	return 1 + uint64(popular+g.random.IntN(g.shape.Posts-popular))
}

func (g *Generator) nextViral(after time.Time) time.Time {
	return after.Add(time.Duration(g.random.ExpFloat64() * float64(g.shape.ViralEvery)))
}

func (g *Generator) chance(share float64) bool { return share > 0 && g.random.Float64() < share }

// home is where a user lives, always the same.
func home(user uint64) schema.Region {
	// Fibonacci hashing (Knuth, TAOCP 3, 6.4): neighbours live far apart.
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
