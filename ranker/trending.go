package ranker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/ranker/window"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
)

// trending is the worker of the group trending for one partition: it merges the
// partitions' lists of those rankings that live here.
type trending struct {
	table
	config  *window.Config
	metrics *metrics
	now     func() time.Time

	settings   uint64 // of config
	sources    []source
	keys       map[window.Key]*ranking
	ends       map[string]schema.Minute // of each window, as last published
	exclusions *exclusions
	emitted    int64 // the emit interval of the last rankings
	due        bool  // moderation does not wait for the next one
}

// source is what is known of a partition of like-updates.
type source struct {
	heard bool
	window.Clock
	gap    schema.Minute
	origin origin
	layout
	// pending are keys whose new lists are not sealed yet.
	pending map[window.Key]bool
}

// ranking is one of those that live here.
type ranking struct {
	dirty  bool            // it may have changed since
	last   *schema.Ranking // nil: there was none
	newest schema.Minute   // the largest end of its lists
}

// Open brings the state up to date and into memory.
func (w *trending) Open(ctx context.Context) (kafka.Position, error) {
	position, err := w.open(ctx)
	if err != nil {
		return position, err
	}
	w.sources = nil
	if err := w.findSources(ctx); err != nil {
		return position, err
	}
	w.settings = w.config.Settings()
	w.keys, w.ends, w.exclusions = map[window.Key]*ranking{}, map[string]schema.Minute{}, newExclusions()
	if err := w.load(); err != nil {
		return position, w.parkRows(err)
	}
	w.emitted, w.due = -1, false
	return position, w.pollExclusions(ctx)
}

// findSources asks how many partitions like-updates has; there may be more than before.
func (w *trending) findSources(ctx context.Context) error {
	topics, err := kafka.LookUpTopics(ctx, w.txn.Client(), schema.TopicUpdates)
	if err != nil {
		return err
	}
	for len(w.sources) < int(topics.ByName[schema.TopicUpdates].Partitions) {
		w.sources = append(w.sources, source{})
		w.sources[len(w.sources)-1].forget()
	}
	return nil
}

// forget is for a source that has not been heard of.
func (s *source) forget() {
	seal := window.Seal{Clock: schema.NoMinute, Watermark: schema.NoMinute, Idle: schema.NoMinute}
	*s = source{Clock: window.Clock{Since: schema.NoMinute, Seal: seal}, gap: schema.NoMinute, pending: map[window.Key]bool{}}
}

func (w *trending) load() error {
	err := w.scan(rowVersion, func(key, _ []byte) error {
		row, err := parseVersionKey(key)
		if err != nil {
			return err
		}
		w.listed(row.key, row.end).dirty = true
		w.sources[row.partition].pending[row.key] = true
		return nil
	})
	if err != nil {
		return err
	}
	if err := w.scan(rowSource, w.loadSource); err != nil {
		return err
	}
	if err := w.scan(rowMark, w.loadMark); err != nil {
		return err
	}
	err = w.scan(rowEnd, func(key, value []byte) error {
		r := newReader(value)
		w.ends[string(key)] = r.minute()
		return r.err
	})
	if err != nil {
		return err
	}
	return w.scan(rowRanking, func(_, value []byte) error {
		last, err := schema.DecodeRanking(value)
		if err != nil {
			return err
		}
		key, err := parseKey(last.Region, last.Window)
		if err != nil {
			return err
		}
		k := w.key(key)
		k.last, k.dirty = last, true
		return nil
	})
}

func (w *trending) key(key window.Key) *ranking {
	k := w.keys[key]
	if k == nil {
		k = &ranking{newest: schema.NoMinute}
		w.keys[key] = k
	}
	return k
}

// listed notes that there is a list of a ranking as of an end.
func (w *trending) listed(key window.Key, end schema.Minute) *ranking {
	k := w.key(key)
	k.newest = max(k.newest, end)
	return k
}

// Process is the one way of a list: keep, align, merge, publish. What came is committed
// before anything is made of it, so that all is made of what is in the table.
func (w *trending) Process(ctx context.Context, b *stream.Batch) error {
	if err := w.pollExclusions(ctx); err != nil {
		return err
	}
	if len(b.Records) > 0 {
		out := w.newOutput()
		if err := w.take(ctx, b.Records, out); err != nil {
			return err
		}
		if err := w.commit(ctx, out, b.Next); err != nil {
			return fmt.Errorf("%s/%d up to offset %d: %w", w.input, w.partition, b.Next.Offset, err)
		}
	}
	// Half an interval after the lists of the partitions.
	interval := (w.now().UnixNano() - int64(w.opts.EmitInterval)/2) / int64(w.opts.EmitInterval)
	if interval == w.emitted && !w.due {
		return nil
	}
	out := w.newOutput()
	if err := w.publish(out); err != nil {
		return err
	}
	published := len(out.records)
	if len(out.state) > 0 {
		if err := w.commit(ctx, out, b.Next); err != nil {
			return fmt.Errorf("publishing %d rankings of %s/%d: %w", published, w.input, w.partition, err)
		}
	}
	w.emitted, w.due = interval, false
	w.metrics.rankings.Add(float64(published))
	return nil
}

// take keeps what the partitions report.
func (w *trending) take(ctx context.Context, records []*kgo.Record, out *output) error {
	touched := map[int32]bool{}
	for _, rec := range records {
		key, p, seal, err := parseLocalKey(rec.Key)
		if err == nil && int(p) >= len(w.sources) {
			if err := w.findSources(ctx); err != nil {
				return err
			}
		}
		if err == nil && int(p) >= len(w.sources) {
			err = fmt.Errorf("partition %d of %d", p, len(w.sources))
		}
		if err == nil && seal {
			touched[p] = true
			before := w.sources[p].layout
			if err = w.takeSeal(p, rec.Value, out); err == nil && w.sources[p].layout != before {
				// Before rankings are made of this, those partitions count of which nothing was heard.
				if err := w.findSources(ctx); err != nil {
					return err
				}
			}
		} else if err == nil {
			err = w.takeList(key, p, rec.Value, out)
		}
		if err != nil {
			return stream.Park(stream.CauseRecord, laterVersion, "%s/%d offset %d: %w", w.input, w.partition, rec.Offset, err)
		}
	}
	for p := range touched {
		w.keepSource(p, out)
	}
	return nil
}

func (w *trending) takeList(key window.Key, p int32, value []byte, out *output) error {
	l := localList{}
	if err := decodeList(value, &l); err != nil {
		return err
	}
	if err := w.meet(p, l.Origin, out); err != nil {
		return err
	}
	out.set(versionKey{key, p, l.End, l.Offset, l.Exclusions}.append(nil), append([]byte(nil), value...))
	w.listed(key, l.End)
	w.sources[p].pending[key] = true
	return nil
}

func (w *trending) takeSeal(p int32, value []byte, out *output) error {
	l := localSeal{}
	if err := decodeSeal(value, &l); err != nil {
		return err
	}
	if err := w.meet(p, l.Origin, out); err != nil {
		return err
	}
	s := &w.sources[p]
	if !s.heard {
		s.heard, s.Since = true, l.Watermark
	}
	s.Seal, s.gap, s.layout, s.Marks = l.Seal, l.Gap, l.layout, append(s.Marks, l.Marks...)
	w.keepMarks(p, l.Marks, out)
	for key := range s.pending {
		w.key(key).dirty = true
	}
	clear(s.pending)
	return nil
}

// meet forgets what a partition had reported before it began anew.
func (w *trending) meet(p int32, from origin, out *output) error {
	s := &w.sources[p]
	if s.origin == from {
		return nil
	}
	if s.origin != (origin{}) {
		w.log.Info("a partition's lists begin anew", "topic", schema.TopicUpdates, "partition", p)
	}
	if from.Settings != w.settings {
		w.log.Warn("a partition's lists are made with other settings than this process has: rankings wait until all rankers have the same", "topic", schema.TopicUpdates, "partition", p)
	}
	for _, rec := range out.state {
		if row, err := parseVersionKey(rec.Key[1:]); err == nil && rec.Key[0] == rowVersion[0] && row.partition == p {
			out.set(rec.Key, nil)
		}
	}
	for key, k := range w.keys {
		k.dirty = true
		err := w.scan(string(versionPrefix(key, p)), func(rest, _ []byte) error {
			out.set(append(versionPrefix(key, p), rest...), nil)
			return nil
		})
		if err != nil {
			return err
		}
	}
	w.dropMarks(p, s.Marks, out)
	s.forget()
	s.origin = from
	w.keepSource(p, out)
	return nil
}

// publish makes the rankings that have changed.
func (w *trending) publish(out *output) error {
	clocks := make([]window.Clock, len(w.sources))
	for i := range w.sources {
		if s := &w.sources[i]; !s.heard || s.origin.Settings != w.settings {
			return nil // its lists are on their way
		}
		if w.sources[i].moving || w.sources[i].layout != w.sources[0].layout {
			return nil // posts are on their way from one partition to another
		}
		clocks[i] = w.sources[i].Clock
	}
	oldest := schema.NoMinute
	for i := range w.config.Windows {
		win := &w.config.Windows[i]
		last, ok := w.ends[win.Name]
		if !ok {
			last = schema.NoMinute
		}
		end, ok := window.Align(win, clocks, last)
		if oldest == schema.NoMinute || end < oldest {
			oldest = end
		}
		if !ok {
			continue
		}
		if end != last {
			w.ends[win.Name] = end
			out.set([]byte(rowEnd+win.Name), appendMinute(nil, end))
		}
		basis := w.basis(win, clocks, end)
		for _, key := range w.dirty(win.Name, last, end) {
			if err := w.rank(key, win, end, basis, out); err != nil {
				return err
			}
		}
	}
	for _, key := range w.dirty(schema.LeaderboardAll, 0, 0) {
		if err := w.rank(key, nil, 0, w.basisOfAll(clocks, key.Region), out); err != nil {
			return err
		}
	}
	w.forgetMarks(oldest, out)
	return nil
}

// dirty is the keys of a window that may have changed since it ended at last, in order. An
// empty ranking stays empty until there are other lists: most regions have nothing most of the
// time.
func (w *trending) dirty(name string, last, end schema.Minute) []window.Key {
	var keys []window.Key
	for key, k := range w.keys {
		empty := k.last == nil || len(k.last.Posts) == 0
		if key.Window == name && (k.dirty || end != last && !(empty && k.newest <= last)) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b window.Key) int { return slices.Compare(a.Region[:], b.Region[:]) })
	return keys
}

func (w *trending) basis(win *window.Window, clocks []window.Clock, end schema.Minute) schema.RankingBasis {
	b := schema.RankingBasis{
		From: win.From(end), To: end, Watermark: window.WatermarkAt(win, clocks, end), Exclusions: w.exclusions.next,
	}
	for p := range clocks {
		b.Positions = append(b.Positions, clocks[p].Position(int32(p), end))
	}
	return b
}

// basisOfAll is that of a leaderboard of all time.
func (w *trending) basisOfAll(clocks []window.Clock, region schema.Region) schema.RankingBasis {
	b := schema.RankingBasis{From: schema.NoMinute, To: schema.NoMinute, Watermark: schema.NoMinute, Exclusions: w.exclusions.next}
	for p := range clocks {
		b.Positions = append(b.Positions, clocks[p].Now(int32(p)))
		if m := clocks[p].Seal.Watermark; b.Watermark == schema.NoMinute || m != schema.NoMinute && m < b.Watermark {
			b.Watermark = m
		}
		if region != schema.Global {
			b.From = max(b.From, w.sources[p].gap)
		}
	}
	return b
}

// rank merges the lists of one key and publishes the ranking if it is another one. Without
// win it is of all time.
func (w *trending) rank(key window.Key, win *window.Window, end schema.Minute, basis schema.RankingBasis, out *output) error {
	k := w.keys[key]
	k.dirty = false
	var lists [][]window.Post
	for p := range w.sources {
		posts, err := w.listOf(key, int32(p), end, out)
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
	name := []byte(schema.RankingKey(r.Region, r.Window))
	out.records = append(out.records, &kgo.Record{Topic: w.output, Partition: w.partition, Key: name, Value: value})
	out.set(append([]byte(rowRanking), name...), value)
	k.last = r
	return nil
}

// listOf is a partition's list as of an end, and drops those that no later end needs.
func (w *trending) listOf(key window.Key, p int32, end schema.Minute, out *output) (posts []window.Post, err error) {
	prefix := versionPrefix(key, p)
	var before []byte // the row that holds so far
	// Of a window that waits for a partition the lists of all later ends are there already.
	later := appendOrdered(append([]byte(nil), prefix...), end+1)
	err = w.scanUntil(string(prefix), later, func(rest, value []byte) error {
		rowKey := append(append([]byte(nil), prefix...), rest...)
		row, err := parseVersionKey(rowKey[len(rowVersion):])
		sealed := &w.sources[p].Seal
		if err != nil || row.offset > sealed.Offset || row.exclusions > sealed.Exclusions {
			return err
		}
		l := localList{}
		if err := decodeList(value, &l); err != nil {
			return fmt.Errorf("list %s of partition %d: %w", schema.RankingKey(schema.RankingRegion(key.Region), key.Window), p, err)
		}
		if l.Origin != w.sources[p].origin {
			// meet has deleted it, but this local store was away for so long that the
			// tombstone was compacted.
			out.set(rowKey, nil)
			return nil
		}
		if before != nil {
			out.set(before, nil)
		}
		before, posts = rowKey, l.Posts
		return nil
	})
	return posts, err
}

func (w *trending) ranking(key window.Key, win *window.Window, basis schema.RankingBasis, posts []window.Post, last *schema.Ranking) *schema.Ranking {
	r := &schema.Ranking{
		Version: schema.RankingVersion, Region: schema.RankingRegion(key.Region), Window: key.Window, RankingBasis: basis,
		Posts: make([]schema.RankedPost, len(posts)), Score: scoreCount, TopN: w.config.TopN, MinLikes: w.config.MinLikes,
	}
	if win != nil && win.HalfLife > 0 {
		r.Score, r.HalfLife = scoreDecay, schema.WindowName(time.Duration(win.HalfLife)*time.Minute)
	}
	before := map[uint64]int{}
	if last != nil {
		basis := last.RankingBasis // a copy: the last ranking is not to be kept for it
		r.Previous = &basis
		for _, p := range last.Posts {
			before[p.PostID] = p.Rank
		}
	}
	for i, p := range posts {
		r.Posts[i] = schema.RankedPost{Rank: i + 1, PreviousRank: before[p.ID], PostID: p.ID, Score: p.Score, Likes: p.Likes}
	}
	return r
}

// changed tells whether a ranking has to be published after the last one.
func changed(last, r *schema.Ranking) bool {
	if last == nil || len(last.Posts) == 0 {
		return len(r.Posts) > 0
	}
	return last.From != r.From || last.To != r.To || !slices.EqualFunc(last.Posts, r.Posts, func(a, b schema.RankedPost) bool {
		return a.PostID == b.PostID && a.Score == b.Score && a.Likes == b.Likes
	})
}

// forgetMarks drops what no window needs any more.
func (w *trending) forgetMarks(oldest schema.Minute, out *output) {
	for p := range w.sources {
		s := &w.sources[p]
		w.dropMarks(int32(p), s.Forget(oldest), out)
	}
}

func (w *trending) pollExclusions(ctx context.Context) error {
	return w.exclusions.poll(ctx, w.txn.Client(), w.now(), w.log, func(uint64, bool) {
		w.due = true
		for _, k := range w.keys {
			k.dirty = true
		}
	})
}
