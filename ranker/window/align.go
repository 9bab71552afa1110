package window

import (
	"cmp"
	"slices"

	"kudos/schema"
)

// Clock is what is known of a partition of like-updates from its own reports.
type Clock struct {
	// Since is the watermark as it was first heard of: what lists were at earlier ends is
	// not known for certain. NoMinute: nothing was before.
	Since schema.Minute
	// Marks are the watermarks it had, in order, as far back as they are needed. Lists of
	// a mark have the Exclusions that were known then.
	Marks []SealedMark
	// Seal is its last position: all lists are known up to there.
	Seal Seal
}

// SealedMark is a Mark with the exclusions of its lists.
type SealedMark struct {
	Mark
	Exclusions int64
}

// Seal is where a partition stands.
type Seal struct {
	Clock      schema.Minute // NoMinute: it never had a record
	Watermark  schema.Minute
	Offset     int64
	Idle       schema.Minute
	Exclusions int64
}

// Align finds the window's end for a ranking of all partitions: the largest that all
// have reached, but for those that have nothing in the window. ok is false if it cannot
// be used: nobody has a clock (NoMinute), somebody has fallen behind an end that was used
// already (last), or lists of that end are not known.
func Align(w *Window, clocks []Clock, last schema.Minute) (end schema.Minute, ok bool) {
	end = schema.NoMinute
	for i := range clocks {
		if c := &clocks[i]; c.Seal.Clock != schema.NoMinute {
			end = max(end, w.End(c.Seal.Watermark))
		}
	}
	if end == schema.NoMinute {
		return end, false
	}
	// Going back, the window may come to partitions that it was beyond.
	for {
		least := end
		for i := range clocks {
			if c := &clocks[i]; c.In(w, end) {
				least = min(least, w.End(c.Seal.Watermark))
			}
		}
		if least == end {
			break
		}
		end = least
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

// Position is what a ranking of the window that ends at end covers of the partition: all
// that is known, or if the partition is beyond that end, what there was when it left it.
func (c *Clock) Position(partition int32, end schema.Minute) schema.RankingPosition {
	for _, m := range c.Marks {
		if m.Watermark >= end {
			return schema.RankingPosition{Partition: partition, Offset: m.Offset, Idle: m.Idle, Exclusions: m.Exclusions}
		}
	}
	return c.Now(partition)
}

// Now is all that is known of the partition.
func (c *Clock) Now(partition int32) schema.RankingPosition {
	s := &c.Seal
	return schema.RankingPosition{Partition: partition, Offset: s.Offset, Idle: s.Idle, Exclusions: s.Exclusions}
}

// WatermarkAt is the least watermark among the partitions that may have likes in the
// window that ends at end, as of what the ranking covers of them.
func WatermarkAt(w *Window, clocks []Clock, end schema.Minute) schema.Minute {
	least := schema.NoMinute
	for i := range clocks {
		c := &clocks[i]
		if !c.In(w, end) {
			continue
		}
		watermark := c.Seal.Watermark
		if at := slices.IndexFunc(c.Marks, func(m SealedMark) bool { return m.Watermark >= end }); at >= 0 {
			watermark = c.Marks[at].Watermark
		}
		if least == schema.NoMinute || watermark < least {
			least = watermark
		}
	}
	return least
}

// Forget drops and returns the marks that no end from here on needs.
func (c *Clock) Forget(end schema.Minute) []SealedMark {
	n := 0
	for n < len(c.Marks) && c.Marks[n].Watermark < end {
		n++
	}
	gone := c.Marks[:n]
	c.Marks = c.Marks[n:]
	return gone
}

// Merge makes one list of the partitions' lists: exact, since each post is in one only, but
// those shared, which are in the lists of all partitions where they have likes. Scores are
// sums over likes, so that a shared post's is the sum of those.
func Merge(lists [][]Post, topN int, minLikes int64, excluded func(post uint64) bool) []Post {
	var all []Post
	for _, l := range lists {
		all = append(all, l...)
	}
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
