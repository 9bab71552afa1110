package rankings

import (
	"fmt"
	"slices"
	"sync"

	"kudos/schema"
)

type published struct {
	*schema.Ranking
	name string // in messages: key, and number within the key
	kind *kind
	last *published // the previous one with the same key
	// sound: its positions and bounds are valid, so it can be recomputed.
	sound bool

	clocks []int64 // of the partitions at its positions by the log, without idle advance
	// lists are the partitions' lists, for the last ranking of a key.
	lists [][]place

	mu   sync.Mutex
	want top // the computed ranking
}

// read decodes all rankings, in order, and sets the last one of each key.
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

// header checks key, version and settings, and returns false if there cannot be such a ranking.
func (c *check) header(p *published, key string) bool {
	if own := p.Region + "/" + p.Window; own != key {
		c.d.Add("record", "%s is a ranking of %s", p.name, own)
		return false
	}
	if p.kind == nil || p.Region == "" {
		c.d.Add("record", "%s: unknown window", p.name)
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

func (c *check) positions(p *published) {
	if len(p.Positions) != len(c.log.Updates) {
		c.d.Add("positions", "%s names %d partitions of %d", p.name, len(p.Positions), len(c.log.Updates))
		p.sound = false
		return
	}
	for i, at := range p.Positions {
		switch end := c.log.Updates[i].End(); {
		case at.Partition != int32(i):
			c.d.Add("positions", "%s names partition %d instead of %d", p.name, at.Partition, i)
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
		c.d.Add("positions", "%s: to is %v, after %v", p.name, p.To, p.last.To)
	}
	back := func(what string, before, now any) {
		c.d.Add("positions", "%s: %s decreased from %v to %v", p.name, what, before, now)
	}
	if p.Exclusions < p.last.Exclusions {
		back("exclusions", p.last.Exclusions, p.Exclusions)
	}
	for i, now := range p.Positions {
		before := p.last.Positions[i]
		if now.Offset < before.Offset || now.Idle < before.Idle || now.Exclusions < before.Exclusions {
			back(fmt.Sprintf("the positions of partition %d", i), before, now)
		}
	}
}

func (c *check) previous(p *published) {
	ranks := map[uint64]int{}
	switch {
	case p.last == nil && p.Previous != nil:
		c.d.Add("previous", "%s names a previous ranking, but is the first", p.name)
	case p.last != nil && p.Previous == nil:
		c.d.Add("previous", "%s names no previous ranking", p.name)
	case p.last != nil && !sameBasis(p.Previous, &p.last.RankingBasis):
		c.d.Add("previous", "%s: want the basis of the previous ranking %+v, have %+v", p.name, p.last.RankingBasis,
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

func (c *check) needless(p *published) {
	if len(p.Posts) == 0 && (p.last == nil || len(p.last.Posts) == 0) {
		c.d.Add("needless", "%s is empty, and there was no previous ranking with posts", p.name)
		return
	}
	if p.last == nil || p.From != p.last.From || p.To != p.last.To {
		return
	}
	same := slices.EqualFunc(p.Posts, p.last.Posts, func(a, b schema.RankedPost) bool {
		return a.PostID == b.PostID && a.Score == b.Score && a.Likes == b.Likes
	})
	if same {
		c.d.Add("needless", "%s: the posts and bounds are those of the previous ranking", p.name)
	}
}
