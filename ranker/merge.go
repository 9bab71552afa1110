package ranker

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"kudos/ranker/window"
	"kudos/schema"
)

// dirty returns the sorted keys of a window's rankings that may have changed since the window end last. An empty
// ranking stays empty until there are new lists: most regions have no likes most of the time.
func (w *trending) dirty(name string, last, end schema.Minute) []window.Key {
	var keys []window.Key
	for key, k := range w.keys {
		empty := k.last == nil || len(k.last.Posts) == 0
		if key.Window == name && (k.dirty || end != last && !(empty && k.newest <= last)) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b window.Key) int { return compareRegions(a.Region, b.Region) })
	return keys
}

func (w *trending) basis(win *window.Window, clocks []window.Clock, end schema.Minute) schema.RankingBasis {
	b := schema.RankingBasis{
		From: win.From(end), To: end, Watermark: window.WatermarkAt(win, clocks, end), Exclusions: w.exclusions.next,
	}
	for p := range clocks {
		b.Positions = append(b.Positions, clocks[p].At(end).Position(int32(p)))
	}
	return b
}

func (w *trending) basisOfAll(clocks []window.Clock, region schema.Region) schema.RankingBasis {
	b := schema.RankingBasis{
		From: schema.NoMinute, To: schema.NoMinute, Watermark: schema.NoMinute, Exclusions: w.exclusions.next,
	}
	for p := range clocks {
		mark := clocks[p].Seal.Mark
		b.Positions = append(b.Positions, mark.Position(int32(p)))
		if m := mark.Watermark; b.Watermark == schema.NoMinute || m != schema.NoMinute && m < b.Watermark {
			b.Watermark = m
		}
		if region != schema.Global {
			b.From = max(b.From, w.sources[p].gap)
		}
	}
	return b
}

// rank merges the lists of a key and publishes the ranking if it has changed. win is nil for the all-time leaderboard.
func (w *trending) rank(key window.Key, win *window.Window, end schema.Minute, basis schema.RankingBasis) error {
	k := w.keys[key]
	k.dirty = false
	var lists [][]window.Post
	for p := range w.sources {
		posts, err := w.listOf(key, int32(p), end)
		if err != nil {
			return err
		}
		if win == nil || w.sources[p].In(win, end) {
			lists = append(lists, posts)
		}
	}
	posts := window.Merge(lists, w.config.TopN, w.config.MinLikes, w.exclusions.has)
	r := w.ranking(key, win, basis, posts, k.last)
	if !changed(k.last, r) {
		return nil
	}
	value, err := schema.EncodeRanking(r)
	if err != nil {
		return err
	}
	w.emit(w.partition, rankingKey(key), value)
	w.set(append([]byte(rowRanking), rankingKey(key)...), value)
	k.last = r
	return nil
}

// listOf returns a partition's last sealed list up to a window end. It deletes earlier ones: no later end needs them.
func (w *trending) listOf(key window.Key, p int32, end schema.Minute) (posts []window.Post, err error) {
	s := &w.sources[p]
	prefix := versionPrefix(key, p)
	later := appendOrdered(bytes.Clone(prefix), end+1) // later lists exist if the window waits for another partition
	var last []byte                                    // key of the row with posts
	err = w.scan(prefix, later, func(rowKey, value []byte) error {
		row, err := parseVersionKey(rowKey[len(rowVersion):])
		if err != nil || row.offset > s.Seal.Offset || row.exclusions > s.Seal.Exclusions {
			return err
		}
		var l localList
		if err := decode(value, l.fields); err != nil {
			return fmt.Errorf("list %s of partition %d: %w", rankingKey(key), p, err)
		}
		rowKey = bytes.Clone(rowKey)
		if l.origin != s.origin {
			// checkOrigin has deleted it, but this local store was offline until the tombstone was compacted away.
			w.set(rowKey, nil)
			return nil
		}
		if last != nil {
			w.set(last, nil)
		}
		last, posts = rowKey, l.Posts
		return nil
	})
	return posts, err
}

func (w *trending) ranking(
	key window.Key, win *window.Window, basis schema.RankingBasis, posts []window.Post, last *schema.Ranking,
) *schema.Ranking {
	r := &schema.Ranking{
		Version: schema.RankingVersion, Region: schema.RankingRegion(key.Region), Window: key.Window,
		RankingBasis: basis, Posts: make([]schema.RankedPost, len(posts)),
		Score: scoreCount, TopN: w.config.TopN, MinLikes: w.config.MinLikes,
	}
	if win != nil && win.HalfLife > 0 {
		r.Score, r.HalfLife = scoreDecay, schema.WindowName(time.Duration(win.HalfLife)*time.Minute)
	}
	before := map[uint64]int{}
	if last != nil {
		basis := last.RankingBasis // a copy, so that the last ranking can be freed
		r.Previous = &basis
		for _, p := range last.Posts {
			before[p.PostID] = p.Rank
		}
	}
	for i, p := range posts {
		r.Posts[i] = schema.RankedPost{
			Rank: i + 1, PreviousRank: before[p.ID], PostID: p.ID, Score: p.Score, Likes: p.Likes,
		}
	}
	return r
}

func changed(last, r *schema.Ranking) bool {
	if last == nil || len(last.Posts) == 0 {
		return len(r.Posts) > 0
	}
	same := func(a, b schema.RankedPost) bool {
		return a.PostID == b.PostID && a.Score == b.Score && a.Likes == b.Likes
	}
	return last.From != r.From || last.To != r.To || !slices.EqualFunc(last.Posts, r.Posts, same)
}
