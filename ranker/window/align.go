package window

import (
	"cmp"
	"slices"

	"kudos/schema"
)

// Mark is a watermark of a partition and the offset at which the partition reached it.
type Mark struct {
	Watermark  schema.Minute
	Offset     int64         // in like-updates
	Idle       schema.Minute // the time to which ticks had advanced the clock
	Exclusions int64         // offset in trending-exclusions up to which lists omit posts; a Partition's caller sets it
}

// Seal is the last position of a partition up to which all of its lists are known.
type Seal struct {
	Clock schema.Minute // NoMinute if the partition never had a record
	Mark
}

// Clock is the progress of a partition of like-updates, as its reports say.
type Clock struct {
	// Since is the watermark of the first report: lists with earlier ends may be missing. NoMinute means no clock yet.
	Since schema.Minute
	Marks []Mark // that the partition has reached, in order, as far back as they are needed
	Seal  Seal
}

// Align finds the window end for a ranking over all partitions: the largest end that all of them have reached, ignoring
// partitions with nothing in the window. ok is false if that end cannot be used: no partition has a clock (then end is
// NoMinute), a partition is behind the last end used (last), or lists with that end are missing.
func Align(w *Window, clocks []Clock, last schema.Minute) (end schema.Minute, ok bool) {
	end = schema.NoMinute
	for i := range clocks {
		if s := &clocks[i].Seal; s.Clock != schema.NoMinute {
			end = max(end, w.End(s.Watermark))
		}
	}
	if end == schema.NoMinute {
		return end, false
	}
	// An earlier window may start before the clock of a partition that a later window ignores.
	for least := end; ; end = least {
		for i := range clocks {
			if c := &clocks[i]; c.In(w, end) {
				least = min(least, w.End(c.Seal.Watermark))
			}
		}
		if least == end {
			break
		}
	}
	for i := range clocks {
		if c := &clocks[i]; c.In(w, end) && c.Since != schema.NoMinute && end < w.End(c.Since) {
			return end, false
		}
	}
	return end, last == schema.NoMinute || end >= last
}

// In reports whether the partition may have likes in the window that ends at end.
func (c *Clock) In(w *Window, end schema.Minute) bool {
	return c.Seal.Clock != schema.NoMinute && c.Seal.Clock >= w.From(end)
}

// At is the mark up to which a ranking with this window end covers the partition: all that is known, or, if the
// partition is past that end, the mark at which it passed it.
func (c *Clock) At(end schema.Minute) Mark {
	for _, m := range c.Marks {
		if m.Watermark >= end {
			return m
		}
	}
	return c.Seal.Mark
}

// Position converts the mark to the form used in rankings.
func (m Mark) Position(partition int32) schema.RankingPosition {
	return schema.RankingPosition{Partition: partition, Offset: m.Offset, Idle: m.Idle, Exclusions: m.Exclusions}
}

// WatermarkAt is the lowest watermark among the partitions that may have likes in the window that ends at end, each at
// the mark that the ranking covers.
func WatermarkAt(w *Window, clocks []Clock, end schema.Minute) schema.Minute {
	least := schema.NoMinute
	for i := range clocks {
		if c := &clocks[i]; c.In(w, end) {
			if at := c.At(end).Watermark; least == schema.NoMinute || at < least {
				least = at
			}
		}
	}
	return least
}

// Forget drops and returns the marks that no window end from end on needs.
func (c *Clock) Forget(end schema.Minute) []Mark {
	n := 0
	for n < len(c.Marks) && c.Marks[n].Watermark < end {
		n++
	}
	gone := c.Marks[:n]
	c.Marks = c.Marks[n:]
	return gone
}

// Merge combines the lists of the partitions. The result is exact: a post is in one partition only, or shared and then
// in the lists of all partitions that have likes of it. Scores are sums over likes, so those of a shared post add up.
func Merge(lists [][]Post, topN int, minLikes int64, excluded func(post uint64) bool) []Post {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(a, b Post) int { return cmp.Compare(a.ID, b.ID) })
	n := 0
	for _, p := range all {
		if n > 0 && all[n-1].ID == p.ID {
			sum := &all[n-1]
			sum.Likes, sum.Score, sum.Reached = sum.Likes+p.Likes, sum.Score+p.Score, max(sum.Reached, p.Reached)
			continue
		}
		all[n] = p
		n++
	}
	all = slices.DeleteFunc(all[:n], func(p Post) bool { return p.Likes < minLikes || p.Score <= 0 || excluded(p.ID) })
	slices.SortFunc(all, Better)
	return all[:min(len(all), topN)]
}
