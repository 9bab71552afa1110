package rankings

import (
	"fmt"
	"slices"
	"sync"

	"kudos/schema"
)

// published is a ranking as it was published.
type published struct {
	*schema.Ranking
	name string // for people: key, and which one of the key
	kind *kind
	last *published // the one before, of the same key
	// sound: its positions and bounds are such that it can be worked out.
	sound bool

	clocks []int64 // of the partitions at its positions by the log, without idle advance
	// lists are the partitions' own, for the last ranking of a key.
	lists [][]place

	mu   sync.Mutex
	want top // what was worked out
}

// read decodes all rankings, in order, and remembers the last one of each key.
func (c *check) read(records []Record) {
	count := map[string]int{}
	for _, rec := range records {
		key := string(rec.Key)
		count[key]++
		name := fmt.Sprintf("%s #%d", key, count[key])
		r, err := schema.DecodeRanking(rec.Value)
		if err != nil {
			c.d.Add("record", "%s: %v", name, err)
			continue
		}
		p := &published{Ranking: r, name: name, kind: c.kinds[r.Window], last: c.last[key],
			clocks: make([]int64, len(c.log.Updates)), lists: make([][]place, len(c.log.Updates))}
		p.want.n, p.want.minLikes = c.config.TopN, c.config.MinLikes
		if c.header(p, key) {
			wrong := p.kind.isWindow(p.From, p.To)
			if p.sound = wrong == ""; !p.sound {
				c.d.Add("bounds", "%s: %s", name, wrong)
			}
			c.positions(p)
			c.previous(p)
			c.needless(p)
			c.all = append(c.all, p)
			c.last[key] = p
		}
	}
}

// header looks at key, version and settings; false: there is no such ranking.
func (c *check) header(p *published, key string) bool {
	if own := p.Region + "/" + p.Window; own != key {
		c.d.Add("record", "%s is of %s", p.name, own)
		return false
	}
	if p.kind == nil || p.Region == "" {
		c.d.Add("record", "%s: there is no such window", p.name)
		return false
	}
	for _, s := range []struct {
		name       string
		want, have any
	}{
		{"version", 1, p.Version},
		{"score", p.kind.score, p.Score},
		{"half_life", p.kind.halfLife, p.HalfLife},
		{"top_n", c.config.TopN, p.TopN},
		{"min_likes", c.config.MinLikes, p.MinLikes},
	} {
		if s.want != s.have {
			c.d.Add("record", "%s: want %s %v, have %v", p.name, s.name, s.want, s.have)
		}
	}
	return true
}

// positions looks at the positions by themselves, and at those of the ranking before.
func (c *check) positions(p *published) {
	if len(p.Positions) != len(c.log.Updates) {
		c.d.Add("positions", "%s names %d partitions of %d", p.name, len(p.Positions), len(c.log.Updates))
		p.sound = false
		return
	}
	for i, at := range p.Positions {
		switch end := c.log.Updates[i].End(); {
		case at.Partition != int32(i):
			c.d.Add("positions", "%s names partition %d in the place of %d", p.name, at.Partition, i)
			p.sound = false
		case at.Offset < 0 || at.Offset > end:
			c.d.Add("positions", "%s names offset %d of partition %d, which ends at %d", p.name, at.Offset, i, end)
			p.sound = false
		}
	}
	if p.last == nil || len(p.last.Positions) != len(p.Positions) {
		return
	}
	if p.To < p.last.To {
		c.d.Add("positions", "%s: to %v, after %v", p.name, p.To, p.last.To)
	}
	back := func(what string, before, now any) {
		c.d.Add("positions", "%s: %s go back from %v to %v", p.name, what, before, now)
	}
	if p.Exclusions < p.last.Exclusions {
		back("exclusions", p.last.Exclusions, p.Exclusions)
	}
	for i, now := range p.Positions {
		before := p.last.Positions[i]
		if now.Offset < before.Offset || now.Idle < before.Idle || now.Exclusions < before.Exclusions {
			back(fmt.Sprintf("those of partition %d", i), before, now)
		}
	}
}

// previous holds what is said of the ranking before against it.
func (c *check) previous(p *published) {
	ranks := map[uint64]int{}
	switch {
	case p.last == nil && p.Previous != nil:
		c.d.Add("previous", "%s names a ranking before, and is the first", p.name)
	case p.last != nil && p.Previous == nil:
		c.d.Add("previous", "%s names no ranking before", p.name)
	case p.last != nil && !sameBasis(p.Previous, &p.last.RankingBasis):
		c.d.Add("previous", "%s: want the basis of the ranking before %+v, have %+v", p.name, p.last.RankingBasis,
			*p.Previous)
	}
	if p.last != nil {
		for i, post := range p.last.Posts {
			ranks[post.PostID] = i + 1
		}
	}
	for _, post := range p.Posts {
		if want := ranks[post.PostID]; post.PreviousRank != want {
			c.d.Add("previous", "%s: post %d had rank %d (0: none), not %d", p.name, post.PostID, want,
				post.PreviousRank)
		}
	}
}

func sameBasis(a, b *schema.RankingBasis) bool {
	return a.From == b.From && a.To == b.To && a.Watermark == b.Watermark && a.Exclusions == b.Exclusions &&
		slices.Equal(a.Positions, b.Positions)
}

// needless looks whether anything has changed since the ranking before.
func (c *check) needless(p *published) {
	if len(p.Posts) == 0 && (p.last == nil || len(p.last.Posts) == 0) {
		c.d.Add("needless", "%s is empty, and there was nothing before", p.name)
		return
	}
	if p.last == nil || p.From != p.last.From || p.To != p.last.To {
		return
	}
	same := slices.EqualFunc(p.Posts, p.last.Posts, func(a, b schema.RankedPost) bool {
		return a.PostID == b.PostID && a.Score == b.Score && a.Likes == b.Likes
	})
	if same {
		c.d.Add("needless", "%s: the posts and bounds are those of the ranking before", p.name)
	}
}
