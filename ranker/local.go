package ranker

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kudos/ranker/window"
	"kudos/schema"
	"kudos/stream"
	"kudos/stream/kafka"
)

// local is the worker of trending-local for one partition: it counts likes, windowed and all-time, and writes lists.
type local struct {
	table

	windows *window.Partition
	totals  *totals
	gap     schema.Minute
	update  schema.Update

	arrived time.Time      // when the last update arrived, or the worker opened
	sealed  kafka.Position // of the last lists
	sealDue bool           // write lists without waiting for the next interval
	stale   [][]byte       // keys of rows with lists computed with other settings
}

// Open catches up the state and loads it into memory.
func (w *local) Open(ctx context.Context) (kafka.Position, error) {
	w.windows, w.totals, w.stale = window.NewPartition(w.config), newTotals(&w.table), nil
	return w.open(ctx, w.load, w.pollExclusions)
}

func (w *local) load() error {
	clock := clockRow{clock: schema.NoMinute, idle: schema.NoMinute, gap: schema.NoMinute}
	settings, listed := w.config.Settings(), map[window.Key][]window.Post{}
	err := w.loadRows(
		rows{rowClock, func(_, value []byte) error {
			if err := decode(value, clock.fields); err != nil {
				return fmt.Errorf("clock: %w", err)
			}
			return nil
		}},
		rows{rowWindow, func(key, value []byte) error {
			if len(key) != regionSize+8 {
				return fmt.Errorf("row key %x is not a region and a post", key)
			}
			row := window.RowKey{Region: schema.Region(key), Post: binary.BigEndian.Uint64(key[regionSize:])}
			return w.windows.LoadRow(row, value)
		}},
		rows{rowShared, func(key, _ []byte) error {
			if len(key) != 8 {
				return fmt.Errorf("row key %x is not a post", key)
			}
			post := binary.BigEndian.Uint64(key)
			w.windows.Share(post, true)
			w.totals.shared[post] = map[schema.Region]window.Post{}
			return nil
		}},
		rows{rowList, func(key, value []byte) error {
			k, _, _, err := parseLocalKey(key)
			if err != nil {
				return err
			}
			if clock.settings != settings {
				w.stale = append(w.stale, append([]byte(rowList), key...))
				return nil
			}
			var l localList
			if err := decode(value, l.fields); err != nil {
				return fmt.Errorf("list %s: %w", key, err)
			}
			if k.Window == schema.LeaderboardAll {
				w.totals.region(k.Region).listed = l.Posts
			} else {
				listed[k] = l.Posts
			}
			return nil
		}},
		rows{rowLeaders, w.totals.load},
	)
	if err != nil {
		return err
	}
	if clock.regions != 0 && clock.regions != w.config.RegionsHash() {
		return stream.Park(stream.CauseState, "restore ranker.regions; or "+actionReset,
			"ranker.regions has changed since the likes of %s/%d were counted by region", w.input, w.partition)
	}
	if err := w.totals.loadLikes(); err != nil {
		return err
	}
	if len(w.stale) > 0 {
		w.log.Info("the settings have changed: rebuilding all lists", "topic", w.input, "partition", w.partition)
	}
	w.gap = clock.gap
	w.windows.LoadClock(clock.clock, clock.idle, clock.kept, listed)
	for _, p := range w.windows.Partial() {
		w.log.Warn("a new window covers more time than likes were kept for: "+
			"its rankings are incomplete until complete_to",
			"partition", w.partition, "window", p.Window, "counted_since", p.Since, "complete_to", p.Complete)
	}
	w.arrived, w.sealDue = time.Now(), true
	return nil
}

// Process counts updates, computes the lists that are due, and commits.
func (w *local) Process(ctx context.Context, b *stream.Batch) error {
	if err := w.pollExclusions(ctx); err != nil {
		return err
	}
	if len(b.Records) == 0 {
		return w.tick(ctx, b.Next)
	}
	w.arrived = time.Now()
	for i, rec := range b.Records {
		if err := w.count(rec); err != nil {
			return err
		}
		// If events are sparse, nearly every record moves the clock and adds marks.
		if w.full() && i < len(b.Records)-1 {
			if err := w.finish(ctx, kafka.Position{Offset: rec.Offset + 1, Epoch: rec.LeaderEpoch}); err != nil {
				return err
			}
		}
	}
	if err := w.finish(ctx, b.Next); err != nil {
		return err
	}
	w.metrics.updates.Add(float64(len(b.Records)))
	return nil
}

// full reports whether the transaction has as many marks or versions as one may have.
func (w *local) full() bool {
	const maxMarks, maxVersions = 1000, 5000
	return len(w.windows.Marks) >= maxMarks || len(w.windows.Versions) >= maxVersions
}

// tick advances the clock if nothing has arrived for IdleAfter.
func (w *local) tick(ctx context.Context, at kafka.Position) error {
	now := time.Now()
	if now.Sub(w.arrived) >= w.opts.IdleAfter {
		// After days of downtime this takes many steps and lists.
		for w.windows.AdvanceIdle(schema.Minute(now.Unix()/60), at.Offset) {
			if w.full() {
				if err := w.finish(ctx, at); err != nil {
					return err
				}
			}
		}
	}
	if !w.listsDue(now, at) {
		return nil
	}
	return w.finish(ctx, at)
}

// listsDue reports true once per interval with input, when the watermark has moved, and right after an exclusion.
func (w *local) listsDue(now time.Time, at kafka.Position) bool {
	return w.sealDue || len(w.windows.Marks) > 0 || w.interval(now) != w.emitted && at.Offset != w.sealed.Offset
}

func (w *local) count(rec *kgo.Record) error {
	u := &w.update
	if err := schema.DecodeUpdate(rec.Value, u); err != nil {
		return w.parkAt(rec, actionUpgrade, err)
	}
	if u.Seq != w.tx.nextSeq {
		if u.Seq < w.tx.nextSeq || w.tx.nextSeq != 0 && w.arrived.Sub(rec.Timestamp) < compacted {
			return stream.Park(stream.CauseLoss, actionReset,
				"%s/%d offset %d has seq %d where %d was expected: records are missing or repeated",
				w.input, w.partition, rec.Offset, u.Seq, w.tx.nextSeq)
		}
		// Records were compacted before they could be counted.
		w.gap = max(w.gap, schema.Minute(rec.Timestamp.Unix()/60))
	}
	w.tx.nextSeq = u.Seq + 1
	if string(rec.Key) == schema.ProgressKey {
		w.progress.Layouts, w.progress.Migrating = u.Layouts(), u.Moved
		return nil
	}
	post, err := schema.ParsePostKey(rec.Key)
	if err != nil {
		return w.parkAt(rec, "find out who else writes to "+w.input, err)
	}
	for i := range u.Deltas {
		u.Deltas[i].Region = w.config.PartitionOf(u.Deltas[i].Region)
	}
	_, was := w.totals.shared[post]
	w.cross(post, u, rec, was)
	if err := w.share(post, u.Buckets > 1); err != nil {
		return err
	}
	var late []int64
	if u.Moved { // the partition where these likes arrived has already counted the late ones
		late = slices.Clone(w.windows.Late)
	}
	w.windows.Add(post, u.Deltas, rec.Offset)
	copy(w.windows.Late, late)
	w.totals.add(post, u, rec.Timestamp.UnixMilli())
	return nil
}

const compacted = 6 * 24 * time.Hour // from this age, records may be missing: like-updates stays uncompacted for 7 days

// share records whether a post is also in other partitions, according to its last update.
func (w *local) share(post uint64, shared bool) error {
	if _, was := w.totals.shared[post]; shared == was {
		return nil
	}
	value := []byte{wireVersion}
	if !shared {
		value = nil
	}
	w.set(binary.BigEndian.AppendUint64([]byte(rowShared), post), value)
	w.windows.Share(post, shared)
	return w.totals.share(post, shared)
}

// finish commits everything up to next, with the lists if they are due.
func (w *local) finish(ctx context.Context, next kafka.Position) error {
	if err := w.totals.settle(); err != nil {
		return err
	}
	if now := time.Now(); w.listsDue(now, next) {
		if err := w.seal(next); err != nil {
			return err
		}
		w.emitted = w.interval(now)
	}
	for key, value := range w.windows.Changed() {
		w.set(appendRowKey(nil, rowWindow, key), value)
	}
	w.totals.keep()
	clock := clockRow{w.windows.Clock, w.windows.Idle, w.gap, w.config.Settings(), w.windows.Kept(),
		w.config.RegionsHash()}
	w.set([]byte(rowClock), encode(clock.fields))
	if err := w.commit(ctx, next); err != nil {
		return fmt.Errorf("%s/%d up to offset %d: %w", w.input, w.partition, next.Offset, err)
	}
	w.measure()
	return nil
}

// seal writes all changed lists, and a seal to every partition of trending-local: there are no others up to next.
func (w *local) seal(next kafka.Position) error {
	w.windows.MakeVersions(next.Offset)
	lists, err := w.totals.lists(next.Offset)
	if err != nil {
		return err
	}
	for _, rowKey := range w.stale {
		w.set(rowKey, nil)
	}
	from := origin{w.progress.StateID, w.config.Settings()}
	last := map[window.Key][]byte{} // nil: an empty list
	for _, v := range append(w.windows.Versions, lists...) {
		l := &localList{Version: v, exclusions: w.exclusions.next, origin: from}
		value := encode(l.fields)
		w.emit(schema.KeyPartition(rankingKey(v.Key), w.outputs), listKey(v.Key, w.partition), value)
		if last[v.Key] = value; len(v.Posts) == 0 {
			last[v.Key] = nil
		}
	}
	for key, value := range last {
		w.set(append([]byte(rowList), listKey(key, w.partition)...), value)
	}
	s := localSeal{
		origin: from, gap: w.gap, marks: w.windows.Marks, layout: layout{w.progress.Layouts, w.progress.Migrating},
		Seal: window.Seal{Clock: w.windows.Clock, Mark: window.Mark{
			Watermark: w.windows.Watermark(), Offset: next.Offset, Idle: w.windows.Idle, Exclusions: w.exclusions.next,
		}},
	}
	for i := range s.marks {
		s.marks[i].Exclusions = w.exclusions.next
	}
	value := encode(s.fields)
	for p := range w.outputs {
		w.emit(p, fmt.Appendf(nil, "%s/%d", sealRegion, w.partition), value)
	}
	w.windows.Versions, w.windows.Marks, w.stale = w.windows.Versions[:0], w.windows.Marks[:0], nil
	w.sealed, w.sealDue = next, false
	return nil
}

func (w *local) pollExclusions(ctx context.Context) error {
	before, changed := w.exclusions.next, false
	err := w.exclusions.poll(ctx, w.txn.Client(), time.Now(), w.log, func(post uint64, excluded bool) {
		changed = true
		w.windows.Exclude(post, excluded)
	})
	for _, r := range w.totals.regions {
		r.dirty = r.dirty || changed
	}
	w.sealDue = w.sealDue || w.exclusions.next != before
	return err
}

// Close releases the partition and its gauges, because another process may own it next.
func (w *local) Close() {
	label := strconv.Itoa(int(w.partition))
	w.metrics.posts.DeleteLabelValues(label)
	w.metrics.buckets.DeleteLabelValues(label)
	w.table.Close()
}

func (w *local) measure() {
	for i, late := range w.windows.Late {
		w.metrics.late.WithLabelValues(w.config.Windows[i].Name).Add(float64(late))
		w.windows.Late[i] = 0
	}
	posts, cells := w.windows.Size()
	label := strconv.Itoa(int(w.partition))
	w.metrics.posts.WithLabelValues(label).Set(float64(posts))
	w.metrics.buckets.WithLabelValues(label).Set(float64(cells))
}
