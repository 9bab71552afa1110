package window

import (
	"cmp"
	"slices"

	"kudos/schema"
)

// Mark is a watermark of a partition, and the position at which the partition reached it.
type Mark struct {
	Watermark schema.Minute
	Offset    int64         // in like-updates
	Idle      schema.Minute // where ticks had advanced the clock
	// Exclusions is the offset in trending-exclusions up to which the lists leave posts out. The caller of a Partition
	// sets it.
	Exclusions int64
}

// Seal is the last position of a partition up to which all of its lists are known.
type Seal struct {
	Clock schema.Minute // NoMinute: the partition never had a record
	Mark
}

// Clock is the progress of a partition of like-updates, by its own reports.
type Clock struct {
	// Since is the watermark of the first report: lists of earlier ends may be missing. NoMinute: there was no clock
	// yet.
	Since schema.Minute
	// Marks are the watermarks that the partition has reached, in order, as far back as they are needed.
	Marks []Mark
	Seal  Seal
}

// Align finds the end of the window for a ranking of all partitions: the largest that all have reached, except those
// with nothing in the window. ok is false if that end cannot be used: no partition has a clock (end is NoMinute), a
// partition is behind an end that was used already (last), or lists of that end are missing.
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
	// An earlier window may begin before the clock of partitions that a later one leaves out.
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

// In tells whether the partition may have likes in the window that ends at end.
func (c *Clock) In(w *Window, end schema.Minute) bool {
	return c.Seal.Clock != schema.NoMinute && c.Seal.Clock >= w.From(end)
}

// At is how much of the partition a ranking of a window that ends at end covers: all that is known, or for a partition
// beyond that end, what there was when it left it.
func (c *Clock) At(end schema.Minute) Mark {
	for _, m := range c.Marks {
		if m.Watermark >= end {
			return m
		}
	}
	return c.Seal.Mark
}

// Position is the mark in the form in which rankings name it.
func (m Mark) Position(partition int32) schema.RankingPosition {
	return schema.RankingPosition{Partition: partition, Offset: m.Offset, Idle: m.Idle, Exclusions: m.Exclusions}
}

// WatermarkAt is the least watermark among the partitions that may have likes in the window that ends at end, as of
// what the ranking covers of them.
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

// Forget drops and returns the marks that no end from here on needs.
func (c *Clock) Forget(end schema.Minute) []Mark {
	n := 0
	for n < len(c.Marks) && c.Marks[n].Watermark < end {
		n++
	}
	gone := c.Marks[:n]
	c.Marks = c.Marks[n:]
	return gone
}

// Merge makes one list of the partitions' lists. It is exact: a post is in one partition only, or shared and then in
// the lists of all partitions that have likes of it. Scores are sums over likes, so a shared post's is the sum of
// those.
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
