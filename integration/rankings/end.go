package rankings

import (
	"maps"
	"slices"

	"kudos/schema"
)

// End says that the log has ended and all of it was ranked: nothing is under way, and the time for which changes wait to be
// written is over.
type End struct {
	// Idle is a time to which the clock of every partition surely was advanced; schema.NoMinute: none.
	Idle schema.Minute
}

// end looks at the last ranking of each key: it is that of the whole log, or there is nothing to rank.
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
		return // said already
	}
	from, to := schema.NoMinute, schema.NoMinute
	clocks := c.clocksAtEnd(end, last)
	if k.size > 0 {
		largest, ok := k.align(clocks, c.lateness)
		if !ok || last != nil && schema.Minute(largest) < last.To {
			return // nothing came, or a partition has fallen behind: then nothing more is published
		}
		from, to = schema.Minute(largest-k.size), schema.Minute(largest)
	}
	want := c.wholeLog(region, k, from, to, clocks, last)
	switch {
	case len(want) == 0 && (last == nil || len(last.Posts) == 0):
	case last == nil:
		c.d.Add("missing", "%s: no ranking, where %d posts have likes from %v to %v", key, len(want), from, to)
	case last.To != to:
		c.d.Add("missing", "%s is the last, and ends at %v; at the end of the log the window ends at %v, with %d posts", last.name, last.To, to, len(want))
	default:
		if differ := compare(want, last.Posts); differ != "" {
			c.d.Add("missing", "%s is the last, and at the end of the log not right any more: %s", last.name, differ)
		}
	}
}

// clocksAtEnd are the clocks as of the end of the log, advanced by what is known of idle time.
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

// wholeLog is what the whole log makes of a window; but a partition that has gone on to later ones is covered only up to
// where it did, which the last ranking names.
func (c *check) wholeLog(region string, k *kind, from, to schema.Minute, clocks []int64, last *published) []place {
	excluded := c.exclusions.before(c.exclusions.end())
	merged := top{n: c.config.TopN, minLikes: c.config.MinLikes}
	for i, part := range c.parts {
		if k.size > 0 && last != nil && last.To == to && k.own(clocks[i], c.lateness) > int64(to) {
			merged.merge(last.lists[i], excluded)
			continue
		}
		merged.merge(part.best(question{
			kind: k, region: region, from: int64(from), to: int64(to),
			excluded: excluded, minLikes: c.config.MinLikes, top: c.config.TopN,
		}), excluded)
	}
	return merged.finish()
}
