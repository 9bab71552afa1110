package ranker

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/ranker/window"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
)

// This file merges the lists of all partitions into rankings: the group trending.

type source struct {
	reported bool // at least one seal has arrived
	window.Clock
	gap     schema.Minute
	origin  origin
	layout  layout
	pending map[window.Key]bool // keys with new lists that are not sealed yet
}

func newSource(from origin) source {
	seal := window.Seal{Clock: schema.NoMinute, Mark: window.Mark{Watermark: schema.NoMinute, Idle: schema.NoMinute}}
	clock := window.Clock{Since: schema.NoMinute, Seal: seal}
	return source{Clock: clock, gap: schema.NoMinute, origin: from, pending: map[window.Key]bool{}}
}

// fields are all fields except Marks, which have their own rows, and pending, which follows from the rows of the lists.
func (s *source) fields(c *codec) {
	c.flag(&s.reported)
	c.origin(&s.origin)
	signed(c, &s.Since)
	c.seal(&s.Seal)
	signed(c, &s.gap)
	c.layout(&s.layout)
}

// findSources adds the partitions that like-updates has now.
func (w *trending) findSources(ctx context.Context) error {
	topics, err := kafka.LookUpTopics(ctx, w.txn.Client(), schema.TopicUpdates)
	if err != nil {
		return err
	}
	n := int(topics.ByName[schema.TopicUpdates].Partitions)
	for len(w.sources) < n {
		w.sources = append(w.sources, newSource(origin{}))
	}
	if len(w.sources) > n {
		return parkFewer(len(w.sources)-1, n)
	}
	return nil
}

// source returns that of a partition. It parks if like-updates was recreated with fewer partitions.
func (w *trending) source(p uint32) (*source, error) {
	if int(p) >= len(w.sources) {
		return nil, parkFewer(int(p), len(w.sources))
	}
	return &w.sources[p], nil
}

func parkFewer(p, n int) error {
	return stream.Park(stream.CauseTopics, actionReset, "there are lists of partition %d, but %s has only %d "+
		"partitions", p, schema.TopicUpdates, n)
}

// takeList stores a list. It becomes valid with the next seal.
func (w *trending) takeList(key window.Key, p int32, rec *kgo.Record) error {
	var l localList
	if err := decode(rec.Value, l.fields); err != nil {
		return w.parkAt(rec, actionUpgrade, err)
	}
	if err := w.checkOrigin(p, l.origin); err != nil {
		return err
	}
	w.set(versionKey{key, p, l.End, l.Offset, l.exclusions}.row(), bytes.Clone(rec.Value))
	w.listed(key, l.End)
	w.sources[p].pending[key] = true
	return nil
}

func (w *trending) takeSeal(p int32, rec *kgo.Record) error {
	var l localSeal
	if err := decode(rec.Value, l.fields); err != nil {
		return w.parkAt(rec, actionUpgrade, err)
	}
	if err := w.checkOrigin(p, l.origin); err != nil {
		return err
	}
	s := &w.sources[p]
	if !s.reported {
		s.reported, s.Since = true, l.Watermark
	}
	s.Seal, s.gap, s.layout, s.Marks = l.Seal, l.gap, l.layout, append(s.Marks, l.marks...)
	for _, m := range l.marks {
		w.set(markKey(p, m.Watermark), encode(func(c *codec) { c.mark(&m) }))
	}
	for key := range s.pending {
		w.key(key).dirty = true
	}
	clear(s.pending)
	return nil
}

// checkOrigin deletes all that a partition has reported if it has restarted from an empty table or with other settings.
func (w *trending) checkOrigin(p int32, from origin) error {
	s := &w.sources[p]
	if s.origin == from {
		return nil
	}
	if s.origin != (origin{}) {
		w.log.Info("a partition's lists were reset: discarding the old ones",
			"topic", schema.TopicUpdates, "partition", p)
	}
	if from.Settings != w.settings {
		w.log.Warn("a partition's lists were computed with other settings than this process has: "+
			"rankings wait until all rankers have the same", "topic", schema.TopicUpdates, "partition", p)
	}
	for _, rec := range w.tx.rows {
		if row, err := parseVersionKey(rec.Key[1:]); err == nil && rec.Key[0] == rowVersion[0] && row.partition == p {
			w.set(rec.Key, nil)
		}
	}
	for key, k := range w.keys {
		k.dirty = true
		err := w.scan(versionPrefix(key, p), nil, func(row, _ []byte) error {
			w.set(bytes.Clone(row), nil)
			return nil
		})
		if err != nil {
			return err
		}
	}
	w.dropMarks(p, s.Marks)
	*s = newSource(from)
	w.keepSource(p)
	return nil
}

func (w *trending) keepSource(p int32) {
	w.set(partitionKey(rowSource, p), encode(w.sources[p].fields))
}

func (w *trending) dropMarks(p int32, marks []window.Mark) {
	for _, m := range marks {
		w.set(markKey(p, m.Watermark), nil)
	}
}

func (w *trending) loadSource(key, value []byte) error {
	s, err := w.sourceOf(key)
	if err != nil {
		return err
	}
	return decode(value, s.fields)
}

func (w *trending) loadMark(key, value []byte) error {
	s, err := w.sourceOf(key)
	if err == nil && len(key) != 4+8 {
		err = fmt.Errorf("row key %x is not that of a mark", key)
	}
	if err != nil {
		return err
	}
	m := window.Mark{Watermark: parseOrdered(key[4:])}
	err = decode(value, func(c *codec) { c.mark(&m) })
	s.Marks = append(s.Marks, m)
	return err
}

func (w *trending) sourceOf(key []byte) (*source, error) {
	if len(key) < 4 {
		return nil, fmt.Errorf("row key %x does not name a partition", key)
	}
	return w.source(binary.BigEndian.Uint32(key))
}

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
	b := schema.RankingBasis{From: win.From(end), To: end, Watermark: window.WatermarkAt(win, clocks, end),
		Exclusions: w.exclusions.next}
	for p := range clocks {
		b.Positions = append(b.Positions, clocks[p].At(end).Position(int32(p)))
	}
	return b
}

func (w *trending) basisOfAll(clocks []window.Clock, region schema.Region) schema.RankingBasis {
	b := schema.RankingBasis{From: schema.NoMinute, To: schema.NoMinute, Watermark: schema.NoMinute,
		Exclusions: w.exclusions.next}
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
	r := &schema.Ranking{Version: schema.RankingVersion, Region: schema.RankingRegion(key.Region), Window: key.Window,
		RankingBasis: basis, Posts: make([]schema.RankedPost, len(posts)), Score: scoreCount, TopN: w.config.TopN,
		MinLikes: w.config.MinLikes}
	if win != nil && win.HalfLife > 0 {
		r.Score, r.HalfLife = scoreDecay, schema.WindowName(time.Duration(win.HalfLife)*time.Minute)
	}
	before := map[uint64]int{}
	if last != nil {
		r.Previous = new(last.RankingBasis) // a copy, so that the last ranking can be freed
		for _, p := range last.Posts {
			before[p.PostID] = p.Rank
		}
	}
	for i, p := range posts {
		r.Posts[i] = schema.RankedPost{Rank: i + 1, PreviousRank: before[p.ID], PostID: p.ID, Score: p.Score,
			Likes: p.Likes}
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
