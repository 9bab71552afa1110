package rankings

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"kudos/integration/oracle"
	"kudos/schema"
)

// Result is the result of a check.
type Result struct {
	Updates, Rankings int
	Differences       oracle.Differences
}

type check struct {
	log        *Log
	config     *Config
	lateness   int64 // in minutes
	kinds      map[string]*kind
	exclusions *exclusions
	d          *oracle.Differences

	all  []*published
	last map[string]*published // by key
	// parts are the partitions at the end of the log, faults their errors.
	parts  []*partition
	faults [][]string
}

// Check compares each ranking with the log at its named positions and, if end is not nil, the last ones with all of it.
func Check(log *Log, config Config, end *End) (*Result, error) {
	v := &Result{}
	c := &check{log: log, config: &config, lateness: int64(config.Lateness / time.Minute), kinds: map[string]*kind{},
		d: &v.Differences, last: map[string]*published{}, parts: make([]*partition, len(log.Updates)),
		faults: make([][]string, len(log.Updates))}
	for _, k := range config.kinds() {
		c.kinds[k.name] = k
	}
	var err error
	if c.exclusions, err = readExclusions(log.Exclusions); err != nil {
		return nil, err
	}
	c.read(log.Rankings)
	var replays sync.WaitGroup
	for i := range log.Updates {
		replays.Go(func() { c.replay(i) })
	}
	replays.Wait()
	for i, faults := range c.faults {
		for _, fault := range faults {
			c.d.Add("log", "like-updates/%d %s", i, fault)
		}
	}
	for _, p := range c.all {
		if p.sound {
			c.time(p)
			c.posts(p)
		}
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

// replay reads a partition once, and computes what it contributes to each ranking.
func (c *check) replay(i int) {
	todo := slices.DeleteFunc(slices.Clone(c.all), func(p *published) bool { return !p.sound })
	slices.SortStableFunc(todo, func(a, b *published) int {
		return cmp.Compare(a.Positions[i].Offset, b.Positions[i].Offset)
	})
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

// workOut adds to a ranking the contribution of a partition, which is at the named position.
func (c *check) workOut(part *partition, i int, p *published) {
	p.clocks[i] = part.clock
	list := part.best(question{kind: p.kind, region: p.Region, from: int64(p.From), to: int64(p.To),
		excluded: c.exclusions.before(p.Positions[i].Exclusions), minLikes: c.config.MinLikes, top: c.config.TopN})
	if c.last[schema.RankingKey(p.Region, p.Window)] == p {
		p.lists[i] = slices.Clone(list)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.want.merge(list, c.exclusions.before(p.Exclusions))
}

func (c *check) time(p *published) {
	clocks := advanced(p.clocks, func(i int) schema.Minute { return p.Positions[i].Idle })
	if p.kind.size > 0 {
		to := int64(p.To)
		switch {
		case !p.kind.stands(to, clocks, c.lateness):
			c.d.Add("alignment", "%s: to is %v, no partition's window end: clocks %s", p.name, p.To, minutes(clocks))
		case !p.kind.reached(to, clocks, c.lateness):
			c.d.Add("alignment", "%s: to is %v, which not all partitions with likes in the window have reached: "+
				"clocks %s", p.name, p.To, minutes(clocks))
		}
	}
	if want := p.kind.watermark(p.From, clocks, c.lateness); want != p.Watermark {
		c.d.Add("watermark", "%s: want %v, have %v: clocks %s", p.name, want, p.Watermark, minutes(clocks))
	}
}

// advanced returns the clocks after idle advance. A partition without records has no clock, however long idle.
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

func (c *check) posts(p *published) {
	for i, have := range p.Posts {
		if have.Rank != i+1 {
			c.d.Add("posts", "%s: post %d is number %d, but has rank %d", p.name, have.PostID, i+1, have.Rank)
		}
	}
	if differ := compare(p.want.finish(), p.Posts); differ != "" {
		c.d.Add("posts", "%s (%v to %v): %s", p.name, p.From, p.To, differ)
	}
}

// ranked is what a ranking says of a post; the zero value means none.
type ranked struct {
	there bool
	post  uint64
	score schema.Score
	likes int64
}

func (r ranked) String() string {
	if !r.there {
		return "none"
	}
	return fmt.Sprintf("post %d with score %v and %d likes", r.post, r.score, r.likes)
}

func compare(want []place, have []schema.RankedPost) string {
	first, wrong, all := "", 0, max(len(want), len(have))
	for i := range all {
		var w, h ranked
		if i < len(want) {
			w = ranked{true, want[i].post, schema.Score(want[i].score), want[i].likes}
		}
		if i < len(have) {
			h = ranked{true, have[i].PostID, have[i].Score, have[i].Likes}
		}
		if w == h {
			continue
		}
		if wrong++; wrong == 1 {
			first = fmt.Sprintf("rank %d: want %v, have %v", i+1, w, h)
		}
	}
	if wrong == 0 {
		return ""
	}
	return fmt.Sprintf("%s (%d of %d ranks differ)", first, wrong, all)
}

// End says that the log has ended and is fully ranked: nothing is in flight, the delay of publishing changes is over.
type End struct {
	// Idle is a time up to which the clock of every partition has certainly been advanced; schema.NoMinute: none.
	Idle schema.Minute
}

// end checks the last ranking of each key: it must cover the whole log, unless there is nothing to rank.
func (c *check) end(end *End) {
	regions := map[string]bool{schema.GlobalName: true}
	for _, part := range c.parts {
		for name := range part.regions {
			regions[name] = true
		}
	}
	for _, region := range slices.Sorted(maps.Keys(regions)) {
		for _, window := range slices.Sorted(maps.Keys(c.kinds)) {
			c.endOf(end, region, c.kinds[window])
		}
	}
}

func (c *check) endOf(end *End, region string, k *kind) {
	key := schema.RankingKey(region, k.name)
	last := c.last[key]
	if last != nil && !last.sound {
		return // already reported
	}
	from, to := schema.NoMinute, schema.NoMinute
	clocks := c.clocksAtEnd(end, last)
	if k.size > 0 {
		largest, ok := k.align(clocks, c.lateness)
		if !ok || last != nil && schema.Minute(largest) < last.To {
			return // no likes, or a partition has fallen behind: then nothing more is published
		}
		from, to = schema.Minute(largest-k.size), schema.Minute(largest)
	}
	want := c.wholeLog(region, k, from, to, clocks, last)
	switch {
	case len(want) == 0 && (last == nil || len(last.Posts) == 0):
	case last == nil:
		c.d.Add("missing", "%s: no ranking, but %d posts have likes from %v to %v", key, len(want), from, to)
	case last.To != to:
		c.d.Add("missing", "%s is the last, but ends at %v; at the end of the log the window ends at %v, with %d posts",
			last.name, last.To, to, len(want))
	default:
		if differ := compare(want, last.Posts); differ != "" {
			c.d.Add("missing", "%s is the last, but is wrong at the end of the log: %s", last.name, differ)
		}
	}
}

// clocksAtEnd returns the clocks at the end of the log, after the known idle advance.
func (c *check) clocksAtEnd(end *End, last *published) []int64 {
	clocks := make([]int64, len(c.parts))
	for i, part := range c.parts {
		clocks[i] = part.clock
	}
	return advanced(clocks, func(i int) schema.Minute {
		if last == nil {
			return end.Idle
		}
		return max(end.Idle, last.Positions[i].Idle)
	})
}

// wholeLog ranks the whole log in a window. A partition counts only up to where, by the last ranking, it moved past it.
func (c *check) wholeLog(region string, k *kind, from, to schema.Minute, clocks []int64, last *published) []place {
	excluded := c.exclusions.atEnd()
	merged := top{n: c.config.TopN, minLikes: c.config.MinLikes}
	for i, part := range c.parts {
		if k.size > 0 && last != nil && last.To == to && k.own(clocks[i], c.lateness) > int64(to) {
			merged.merge(last.lists[i], excluded)
			continue
		}
		merged.merge(part.best(question{kind: k, region: region, from: int64(from), to: int64(to), excluded: excluded,
			minLikes: c.config.MinLikes, top: c.config.TopN}), excluded)
	}
	return merged.finish()
}
