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

// local is the worker of trending-local for one partition: it counts the likes in windows,
// and of all time, and writes the partition's own top lists.
type local struct {
	table
	config  *window.Config
	metrics *metrics
	now     func() time.Time

	windows    *window.Partition
	totals     *totals
	exclusions *exclusions
	gap        schema.Minute
	update     schema.Update

	arrived time.Time // of the last update, or opened
	emitted int64     // the emit interval of the last lists
	sealed  kafka.Position
	sealDue bool
	stale   [][]byte // rows of lists made with other settings
	row     []byte
}

// Open brings the state up to date and into memory.
func (w *local) Open(ctx context.Context) (kafka.Position, error) {
	position, err := w.open(ctx)
	if err != nil {
		return position, err
	}
	w.windows, w.totals, w.exclusions = window.NewPartition(w.config), newTotals(), newExclusions()
	if err := w.load(); err != nil {
		return position, w.parkRows(err)
	}
	w.arrived, w.emitted, w.sealDue = w.now(), -1, true
	return position, w.pollExclusions(ctx)
}

// load reads the state table's rows. Lists made with other settings are not to go on from: all
// are made anew.
func (w *local) load() error {
	clock, err := w.loadClock()
	if err != nil {
		return err
	}
	err = w.scan(rowWindow, func(key, value []byte) error {
		row, err := parseRowKey(key)
		if err != nil {
			return err
		}
		return w.windows.LoadRow(row, value)
	})
	if err != nil {
		return err
	}
	err = w.scan(rowShared, func(key, _ []byte) error {
		post, err := parseSharedKey(key)
		if err == nil {
			w.windows.Share(post, true)
			w.totals.shared[post] = map[schema.Region]window.Post{}
		}
		return err
	})
	if err != nil {
		return err
	}
	listed, err := w.loadLists(clock.settings == w.config.Settings())
	if err != nil {
		return err
	}
	err = w.scan(rowLeaders, func(key, value []byte) error {
		if len(key) != regionSize {
			return fmt.Errorf("row key %x is of no region", key)
		}
		return w.totals.load(&w.table, schema.Region(key), value)
	})
	if err != nil {
		return err
	}
	w.gap = clock.gap
	w.windows.LoadClock(clock.clock, clock.idle, clock.kept, listed)
	for _, p := range w.windows.Partial() {
		w.log.Warn("a window reaches back further than likes were kept before it was set up: its rankings lack those until then",
			"partition", w.partition, "window", p.Window, "counted_since", p.Since, "complete_to", p.Complete)
	}
	return nil
}

func (w *local) loadClock() (clockRow, error) {
	value, err := w.store.Get(rowClock)
	if err != nil || value == nil {
		return clockRow{clock: schema.NoMinute, idle: schema.NoMinute, gap: schema.NoMinute}, err
	}
	clock, err := decodeClock(value)
	if err != nil {
		return clock, &rowError{fmt.Errorf("clock: %w", err)}
	}
	return clock, nil
}

// loadLists reads the last versions; those that are not good any more are only to be
// deleted.
func (w *local) loadLists(good bool) (listed map[window.Key][]window.Post, err error) {
	listed, w.stale = map[window.Key][]window.Post{}, nil
	err = w.scan(rowList, func(key, value []byte) error {
		k, _, _, err := parseLocalKey(key)
		if err != nil {
			return err
		}
		if !good {
			w.stale = append(w.stale, append([]byte(rowList), key...))
			return nil
		}
		var l localList
		if err := decodeList(value, &l); err != nil {
			return fmt.Errorf("list %s: %w", key, err)
		}
		if k.Window == schema.LeaderboardAll {
			w.totals.listed[k] = l.Posts
		} else {
			listed[k] = l.Posts
		}
		return nil
	})
	if len(w.stale) > 0 {
		w.log.Info("the settings have changed: all lists are made anew", "topic", w.input, "partition", w.partition)
	}
	return listed, err
}

// Process is the one way of an update: count, list, commit.
func (w *local) Process(ctx context.Context, b *stream.Batch) error {
	if err := w.pollExclusions(ctx); err != nil {
		return err
	}
	if len(b.Records) == 0 {
		return w.tick(ctx, b.Next)
	}
	w.arrived = w.now()
	out := w.newOutput()
	for i, rec := range b.Records {
		if err := w.countRecord(rec, out); err != nil {
			return err
		}
		// Old events in thin time move the clock with nearly every record.
		if w.full() {
			if next := after(rec); i < len(b.Records)-1 {
				if err := w.finish(ctx, out, next); err != nil {
					return err
				}
				out = w.newOutput()
			}
		}
	}
	if err := w.finish(ctx, out, b.Next); err != nil {
		return err
	}
	w.metrics.updates.Add(float64(len(b.Records)))
	return nil
}

// What one transaction takes at most of what a batch can make many of.
const (
	maxMarks    = 1000
	maxVersions = 5000
)

func (w *local) full() bool {
	return len(w.windows.Marks) >= maxMarks || len(w.windows.Versions) >= maxVersions
}

func after(rec *kgo.Record) kafka.Position {
	return kafka.Position{Offset: rec.Offset + 1, Epoch: rec.LeaderEpoch}
}

// tick takes the clock on if nothing has come for long.
func (w *local) tick(ctx context.Context, at kafka.Position) error {
	now := w.now()
	if now.Sub(w.arrived) >= w.opts.IdleAfter {
		// After days it is a long way, with many lists on it.
		for w.windows.AdvanceIdle(schema.Minute(now.Unix()/60), at.Offset) {
			if w.full() {
				if err := w.finish(ctx, w.newOutput(), at); err != nil {
					return err
				}
			}
		}
	}
	if !w.listsDue(now, at) {
		return nil
	}
	return w.finish(ctx, w.newOutput(), at)
}

// listsDue tells whether lists are to be made: at each interval in which something has
// come, whenever the watermark has moved, and at once after an exclusion.
func (w *local) listsDue(now time.Time, at kafka.Position) bool {
	interval := now.UnixNano() / int64(w.opts.EmitInterval)
	return w.sealDue || len(w.windows.Marks) > 0 || interval != w.emitted && at.Offset != w.sealed.Offset
}

// finish commits all up to next, with the lists if they are due.
func (w *local) finish(ctx context.Context, out *output, next kafka.Position) error {
	if err := w.totals.settle(&w.table, out, w.config.TopN, w.exclusions.has); err != nil {
		return err
	}
	if now := w.now(); w.listsDue(now, next) {
		if err := w.seal(next, out); err != nil {
			return err
		}
		w.emitted = now.UnixNano() / int64(w.opts.EmitInterval)
	}
	if err := w.state(out); err != nil {
		return err
	}
	if err := w.commit(ctx, out, next); err != nil {
		return fmt.Errorf("%s/%d up to offset %d: %w", w.input, w.partition, next.Offset, err)
	}
	w.measure()
	return nil
}

func (w *local) countRecord(rec *kgo.Record, out *output) error {
	u := &w.update
	if err := schema.DecodeUpdate(rec.Value, u); err != nil {
		return stream.Park(stream.CauseRecord, laterVersion, "%s/%d offset %d: %w", w.input, w.partition, rec.Offset, err)
	}
	if u.Seq != out.nextSeq {
		if u.Seq < out.nextSeq || out.nextSeq != 0 && w.arrived.Sub(rec.Timestamp) < compacted {
			return stream.Park(stream.CauseLoss, makeAnew, "%s/%d offset %d has seq %d where %d was expected: records are missing or repeated", w.input, w.partition, rec.Offset, u.Seq, out.nextSeq)
		}
		// Compaction was ahead of us, or the ranker is younger than the log.
		w.gap = max(w.gap, schema.Minute(rec.Timestamp.Unix()/60))
	}
	out.nextSeq = u.Seq + 1
	if string(rec.Key) == schema.ProgressKey {
		w.progress.Layouts, w.progress.Moving = u.Layouts(), u.Moved
		return nil
	}
	post, err := schema.ParsePostKey(rec.Key)
	if err != nil {
		return stream.Park(stream.CauseRecord, "find out who else writes to "+w.input, "%s/%d offset %d: %w", w.input, w.partition, rec.Offset, err)
	}
	for i := range u.Deltas {
		u.Deltas[i].Region = w.config.Home(u.Deltas[i].Region)
	}
	if err := w.share(post, u.Buckets > 1, out); err != nil {
		return err
	}
	var late []int64
	if u.Moved { // they are counted as late, or not, in the partition where they came
		late = slices.Clone(w.windows.Late)
	}
	w.windows.Add(post, u.Deltas, rec.Offset)
	copy(w.windows.Late, late)
	w.totals.add(post, u, rec.Timestamp.UnixMilli())
	return nil
}

// share notes whether a post is in other partitions too, which its updates tell.
func (w *local) share(post uint64, shared bool, out *output) error {
	if _, was := w.totals.shared[post]; shared == was {
		return nil
	}
	value := []byte{wireVersion}
	if !shared {
		value = nil
	}
	out.set(appendSharedKey(nil, post), value)
	w.windows.Share(post, shared)
	return w.totals.share(&w.table, post, shared, w.config.TopN, w.exclusions.has)
}

// compacted is the age from which a record may be missing: like-updates is not compacted
// for 7 days.
const compacted = 6 * 24 * time.Hour

// seal makes all lists that have changed, and tells every partition of trending-local
// that up to next there are no others.
func (w *local) seal(next kafka.Position, out *output) error {
	w.windows.MakeVersions(next.Offset)
	lists, err := w.totals.lists(&w.table, w.config, w.exclusions.has, next.Offset)
	if err != nil {
		return err
	}
	for _, rowKey := range w.stale {
		out.set(rowKey, nil)
	}
	w.stale = nil
	from := origin{Table: w.progress.StateID, Settings: w.config.Settings()}
	last := map[window.Key]*localList{}
	for _, v := range append(w.windows.Versions, lists...) {
		l := &localList{Version: v, Exclusions: w.exclusions.next, Origin: from}
		partition := schema.KeyPartition([]byte(schema.RankingKey(schema.RankingRegion(v.Region), v.Window)), w.outputs)
		out.records = append(out.records, &kgo.Record{
			Topic: w.output, Partition: partition, Key: listKey(v.Key, w.partition), Value: appendList(nil, l),
		})
		last[v.Key] = l
	}
	for key, l := range last {
		rowKey := append([]byte(rowList), listKey(key, w.partition)...)
		if len(l.Posts) == 0 {
			out.set(rowKey, nil)
		} else {
			out.set(rowKey, appendList(nil, l))
		}
	}
	s := localSeal{Gap: w.gap, Origin: from, layout: layout{w.progress.Layouts, w.progress.Moving}, Seal: window.Seal{
		Clock: w.windows.Clock(), Watermark: w.windows.Watermark(), Idle: w.windows.Idle(),
		Offset: next.Offset, Exclusions: w.exclusions.next,
	}}
	for _, m := range w.windows.Marks {
		s.Marks = append(s.Marks, window.SealedMark{Mark: m, Exclusions: w.exclusions.next})
	}
	value := appendSeal(nil, &s)
	for p := range w.outputs {
		out.records = append(out.records, &kgo.Record{Topic: w.output, Partition: p, Key: sealKey(w.partition), Value: value})
	}
	w.windows.Versions, w.windows.Marks = w.windows.Versions[:0], w.windows.Marks[:0]
	w.sealed, w.sealDue = next, false
	return nil
}

// state writes the rows that have changed.
func (w *local) state(out *output) (err error) {
	w.row, err = w.windows.Changed(w.row, func(key window.RowKey, value []byte) error {
		out.set(appendRowKey(nil, rowWindow, key), append([]byte(nil), value...))
		return nil
	})
	if err != nil {
		return err
	}
	w.totals.keep(out)
	out.set([]byte(rowClock), appendClock(nil, clockRow{w.windows.Clock(), w.windows.Idle(), w.gap, w.config.Settings(), w.windows.Kept()}))
	return nil
}

func (w *local) pollExclusions(ctx context.Context) error {
	before := w.exclusions.next
	changed := false
	err := w.exclusions.poll(ctx, w.txn.Client(), w.now(), w.log, func(post uint64, excluded bool) {
		changed = true
		w.windows.Exclude(post, excluded)
	})
	if changed {
		w.totals.exclusionsChanged()
	}
	if w.exclusions.next != before {
		w.sealDue = true // moderation does not wait for the next interval
	}
	return err
}

// Close gives the partition up.
func (w *local) Close() {
	w.metrics.gone(w.partition)
	w.table.Close()
}

func (w *local) measure() {
	m := w.metrics
	for i := range w.windows.Late {
		m.late.WithLabelValues(w.config.Windows[i].Name).Add(float64(w.windows.Late[i]))
		w.windows.Late[i] = 0
	}
	posts, cells := w.windows.Size()
	m.size(w.partition, posts, cells)
}
