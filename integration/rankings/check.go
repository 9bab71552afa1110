package rankings

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"kudos/integration/oracle"
	"kudos/schema"
)

// Verdict is what a check found.
type Verdict struct {
	Updates, Rankings int
	Differences       oracle.Differences
}

// check is one under way.
type check struct {
	log        *Log
	config     *Config
	lateness   int64 // in minutes
	kinds      map[string]*kind
	exclusions *exclusions
	d          *oracle.Differences

	all  []*published
	last map[string]*published // by key
	// parts are the partitions as of the end of the log, faults what is wrong with them.
	parts  []*partition
	faults [][]string
}

// Check holds every ranking against what follows from the log at the positions that it names; and if end is not nil, the
// last ones against the whole log.
func Check(log *Log, config Config, end *End) (*Verdict, error) {
	v := &Verdict{}
	c := &check{
		log: log, config: &config, lateness: int64(config.Lateness / time.Minute), kinds: map[string]*kind{}, d: &v.Differences,
		last: map[string]*published{}, parts: make([]*partition, len(log.Updates)), faults: make([][]string, len(log.Updates)),
	}
	for _, k := range config.kinds() {
		c.kinds[k.name] = k
	}
	var err error
	if c.exclusions, err = readExclusions(log.Exclusions); err != nil {
		return nil, err
	}
	c.read(log.Rankings)
	c.replay()
	for i, faults := range c.faults {
		for _, fault := range faults {
			c.d.Add("log", "like-updates/%d %s", i, fault)
		}
	}
	for _, p := range c.all {
		c.time(p)
		c.posts(p)
	}
	if end != nil {
		c.end(end)
	}
	for _, tape := range log.Updates {
		v.Updates += tape.Len()
	}
	v.Rankings = len(log.Rankings)
	return v, nil
}

// replay reads each partition once, and works out on the way what rankings say of it.
func (c *check) replay() {
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range c.log.Updates {
		g.Go(func() error {
			c.replayPartition(i)
			return nil
		})
	}
	_ = g.Wait() // none fails
}

func (c *check) replayPartition(i int) {
	todo := slices.Clone(c.all)
	todo = slices.DeleteFunc(todo, func(p *published) bool { return !p.sound })
	slices.SortStableFunc(todo, func(a, b *published) int { return cmp.Compare(a.Positions[i].Offset, b.Positions[i].Offset) })
	part := newPartition()
	for rec := range c.log.Updates[i].All() {
		for len(todo) > 0 && todo[0].Positions[i].Offset <= rec.Offset {
			c.workOut(part, i, todo[0])
			todo = todo[1:]
		}
		if fault := part.add(rec); fault != "" {
			c.faults[i] = append(c.faults[i], fault)
		}
	}
	for _, p := range todo {
		c.workOut(part, i, p)
	}
	c.parts[i] = part
}

// workOut adds to a ranking what a partition, which is at the position named, has for it.
func (c *check) workOut(part *partition, i int, p *published) {
	p.clocks[i] = part.clock
	list := part.best(question{
		kind: p.kind, region: p.Region, from: int64(p.From), to: int64(p.To),
		excluded: c.exclusions.before(p.Positions[i].Exclusions), minLikes: c.config.MinLikes, top: c.config.TopN,
	})
	if c.last[schema.RankingKey(p.Region, p.Window)] == p {
		p.lists[i] = slices.Clone(list)
	}
	p.merge(list, c.exclusions.before(p.Exclusions))
}

// time holds bounds and watermark against the clocks.
func (c *check) time(p *published) {
	if !p.sound {
		return
	}
	clocks := advanced(p.clocks, func(i int) schema.Minute { return p.Positions[i].Idle })
	if p.kind.size > 0 {
		to := int64(p.To)
		switch {
		case !p.kind.stands(to, clocks, c.lateness):
			c.d.Add("alignment", "%s: to is %v, where no partition stands: clocks %s", p.name, p.To, minutes(clocks))
		case !p.kind.reached(to, clocks, c.lateness):
			c.d.Add("alignment", "%s: to is %v, which not all have reached that have something in the window: clocks %s", p.name, p.To, minutes(clocks))
		}
	}
	if want := p.kind.watermark(p.From, clocks, c.lateness); want != p.Watermark {
		c.d.Add("watermark", "%s: want %v, have %v: clocks %s", p.name, want, p.Watermark, minutes(clocks))
	}
}

// advanced are clocks with idle advance. A partition that never had a record has no clock, however long it was idle.
func advanced(clocks []int64, idle func(i int) schema.Minute) []int64 {
	clocks = slices.Clone(clocks)
	for i := range clocks {
		if clocks[i] != int64(schema.NoMinute) {
			clocks[i] = max(clocks[i], int64(idle(i)))
		}
	}
	return clocks
}

func minutes(clocks []int64) string {
	text := make([]schema.Minute, len(clocks))
	for i, clock := range clocks {
		text[i] = schema.Minute(clock)
	}
	return fmt.Sprint(text)
}

// posts compares who is ranked with what was worked out.
func (c *check) posts(p *published) {
	if !p.sound {
		return
	}
	for i, have := range p.Posts {
		if have.Rank != i+1 {
			c.d.Add("posts", "%s: post %d stands at %d and has rank %d", p.name, have.PostID, i+1, have.Rank)
		}
	}
	if differ := compare(p.want.finish(), p.Posts); differ != "" {
		c.d.Add("posts", "%s (%v to %v): %s", p.name, p.From, p.To, differ)
	}
}

// compare says how posts differ from what they should be, "" if they do not: the first rank that does.
func compare(want []place, have []schema.RankedPost) string {
	places := make([]place, len(have))
	for i, post := range have {
		places[i] = place{post: post.PostID, score: int64(post.Score), likes: post.Likes}
	}
	at := func(places []place, i int) string {
		if i >= len(places) {
			return "none"
		}
		p := places[i]
		return fmt.Sprintf("post %d with score %v and %d likes", p.post, schema.Score(p.score), p.likes)
	}
	same := func(i int) bool {
		if i >= len(want) || i >= len(places) {
			return false
		}
		w := want[i]
		w.reached = 0
		return w == places[i]
	}
	first, wrong := -1, 0
	for i := range max(len(want), len(places)) {
		if !same(i) {
			wrong++
			if first < 0 {
				first = i
			}
		}
	}
	if wrong == 0 {
		return ""
	}
	return fmt.Sprintf("rank %d: want %s, have %s (%d of %d ranks differ)", first+1, at(want, first), at(places, first), wrong, max(len(want), len(places)))
}
